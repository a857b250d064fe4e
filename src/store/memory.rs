//! The embedded store.

use super::{Check, Decision, Store, StoreError};
use crate::clock::Clock;

#[derive(Debug)]
pub struct MemoryStore {
    clock: Clock,
}

impl MemoryStore {
    #[must_use]
    pub fn new(_max_keys: usize, clock: Clock) -> Self {
        Self { clock }
    }

    /// Decides without waiting: what [`Store::decide`] does here.
    pub fn decide_now(&self, _checks: &mut [Check<'_>]) -> Decision {
        todo!()
    }
}

impl Store for MemoryStore {
    async fn decide(&self, checks: &mut [Check<'_>]) -> Result<Decision, StoreError> {
        Ok(self.decide_now(checks))
    }
}
