//! The file as written: TOML tables and values that know their place in the text.
//!
//! A [`Section`] hands out the values of one table, key by key; a [`Value`] turns itself into
//! what the reader asks for. Neither stops at a fault: it is noted, and reading goes on, so one
//! look at a file finds everything that is wrong with it.

mod client_keys;
mod colon;
mod duplicate;
mod foreign_keys;
mod section;
mod syntax;
mod unique;
mod value;

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::diagnostic::{Diagnostic, Severity};

#[cfg(test)]
pub(super) use colon::{BOOLEANS, LISTS, NUMBERS};
#[cfg(test)]
pub(super) use duplicate::ARRAYS;
pub(super) use section::{NamedSection, Section};
pub(super) use syntax::TomlFile;
pub(super) use unique::{UniqueValues, unique_values};
pub(super) use value::Value;

/// What reading a file brings to light.
#[derive(Debug, Default)]
pub(super) struct Reporter {
    faults: RefCell<Vec<Diagnostic>>,
    /// Every key that was asked for, such as `limits.NAME.rate`: these, and no others, are known.
    known: RefCell<BTreeSet<String>>,
    /// The kind of the store, for what is said of keys that depend on it.
    store_kind: RefCell<Option<String>>,
}

impl Reporter {
    pub(super) fn report(&self, fault: Diagnostic) {
        self.faults.borrow_mut().push(fault);
    }

    pub(super) fn into_diagnostics(self) -> Vec<Diagnostic> {
        self.faults.into_inner()
    }

    /// Whether anything so far keeps the file from being used.
    pub(super) fn has_errors(&self) -> bool {
        self.faults.borrow().iter().any(|fault| fault.severity == Severity::Error)
    }

    fn note_store_kind(&self, kind: &str) {
        *self.store_kind.borrow_mut() = Some(kind.to_owned());
    }

    fn store_kind(&self) -> Option<String> {
        self.store_kind.borrow().clone()
    }

    fn note_known_key(&self, path: String) {
        self.known.borrow_mut().insert(path);
    }

    #[cfg(test)]
    pub(super) fn known_keys(&self) -> BTreeSet<String> {
        self.known.borrow().clone()
    }
}
