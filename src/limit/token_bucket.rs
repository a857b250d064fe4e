//! `token_bucket`.

use super::policy::{Report, State, Verdict};
use super::rate::Rate;
use crate::clock::Micros;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBucket {
    rate: Rate,
    burst: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BurstError {
    #[error("the burst must be between 1 and 1000000000")]
    OutOfRange,
    #[error("the burst would take more than 100 years to refill")]
    TooSlow,
}

impl TokenBucket {
    /// # Errors
    /// If the burst is out of range, or would take more than a century to refill.
    pub fn new(rate: Rate, burst: u64) -> Result<Self, BurstError> {
        Ok(Self { rate, burst })
    }

    #[must_use]
    pub fn rate(&self) -> Rate {
        self.rate
    }

    #[must_use]
    pub fn burst(&self) -> u64 {
        self.burst
    }

    #[must_use]
    pub fn refill_seconds(&self) -> u64 {
        todo!()
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
