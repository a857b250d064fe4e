//! The file as written: TOML tables and values that know their place in the text.
//!
//! A [`Section`] hands out the values of one table, key by key; a [`Value`] turns itself into
//! what the reader asks for. Neither stops at a fault: it is noted, and reading goes on, so one
//! look at a file finds everything that is wrong with it.

mod section;
mod syntax;
mod value;

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::diagnostic::Fault;

pub(super) use section::Section;
pub(super) use syntax::File;
pub(super) use value::{Unique, Value};

/// What reading a file brings to light.
#[derive(Debug, Default)]
pub(super) struct Notes {
    faults: RefCell<Vec<Fault>>,
    /// Every key that was asked for, such as `limits.NAME.rate`: these, and no others, are known.
    known: RefCell<BTreeSet<String>>,
}

impl Notes {
    pub(super) fn fault(&self, fault: Fault) {
        self.faults.borrow_mut().push(fault);
    }

    pub(super) fn into_faults(self) -> Vec<Fault> {
        self.faults.into_inner()
    }

    fn know(&self, path: String) {
        self.known.borrow_mut().insert(path);
    }

    #[cfg(test)]
    pub(super) fn known(&self) -> BTreeSet<String> {
        self.known.borrow().clone()
    }
}
