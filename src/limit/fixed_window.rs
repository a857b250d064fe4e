//! `fixed_window`.

use super::policy::{Report, State, Verdict};
use super::rate::Rate;
use crate::clock::Micros;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedWindow {
    rate: Rate,
}

impl FixedWindow {
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        Self { rate }
    }

    #[must_use]
    pub fn rate(&self) -> Rate {
        self.rate
    }

    #[must_use]
    pub fn evaluate(&self, _state: State, _now: Micros, _cost: u64) -> Verdict {
        todo!()
    }

    #[must_use]
    pub fn report(&self, _state: State, _now: Micros) -> Report {
        todo!()
    }
}
