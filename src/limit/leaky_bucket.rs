//! `leaky_bucket`: decides as a [token bucket](super::token_bucket) does, and an admitted request
//! waits until as many as came before it have refilled: so requests leave at a steady rate.
//!
//! In Redis it is the token bucket too: the gateway computes from the state when a request leaves.

use std::time::Duration;

use super::algorithm::{Algorithm, Report, State, Verdict};
use super::rate::Rate;
use super::token_bucket::{BurstError, TokenBucket};
use super::wire::{WireArgs, WireCheck, WireState};
use crate::clock::Micros;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeakyBucket(TokenBucket);

impl From<TokenBucket> for LeakyBucket {
    fn from(bucket: TokenBucket) -> Self {
        Self(bucket)
    }
}

impl LeakyBucket {
    /// # Errors
    /// As [`TokenBucket::new`].
    pub fn new(rate: Rate, burst: u64) -> Result<Self, BurstError> {
        TokenBucket::new(rate, burst).map(Self)
    }

    /// The bucket that decides.
    pub fn bucket(&self) -> &TokenBucket {
        &self.0
    }

    #[must_use]
    pub fn with_debt(self, debt: u64) -> Self {
        Self(self.0.with_debt(debt))
    }

    #[must_use]
    pub fn beside(self, other: &Self) -> Self {
        Self(self.0.beside(&other.0))
    }

    #[must_use]
    pub fn share(&self, nodes: u64, cost: u64) -> Self {
        Self(self.0.share(nodes, cost))
    }

    pub fn rate(&self) -> Rate {
        self.0.rate()
    }

    pub fn burst(&self) -> u64 {
        self.0.burst()
    }

    pub fn deepest(&self) -> u64 {
        self.0.deepest()
    }

    pub fn window_seconds(&self) -> Option<u64> {
        self.0.window_seconds()
    }

    pub fn span(&self, units: u64) -> Duration {
        self.0.span(units)
    }

    pub fn refilled(&self, span: Duration) -> u64 {
        self.0.refilled(span)
    }

    pub fn report(&self, state: State, now: Micros) -> Report {
        self.0.report(state, now)
    }

    /// How far apart requests of this cost leave, rounded up: to nanoseconds, so that it does not
    /// slow down fast limits.
    pub fn pace(&self, cost: u64) -> Duration {
        self.0.pace(cost)
    }

    /// How long an admitted request waits for its turn, given the state with its charge.
    pub fn turn(&self, charged: State, now: Micros, cost: u64) -> Duration {
        self.0.turn(charged, now, cost)
    }
}

impl Algorithm for LeakyBucket {
    const WIRE_ID: u64 = 7;
    const REPLY_NUMBERS: usize = TokenBucket::REPLY_NUMBERS;

    fn clamp(&self, state: State, now: Micros) -> State {
        self.0.clamp(state, now)
    }

    fn evaluate(&self, state: State, now: Micros, cost: u64) -> Verdict {
        self.0.evaluate(state, now, cost)
    }

    fn charge_after(&self, state: State, now: Micros, cost: u64) -> State {
        self.0.charge_after(state, now, cost)
    }

    fn refund(&self, state: State, now: Micros, cost: u64, charged_at: Micros) -> State {
        self.0.refund(state, now, cost, charged_at)
    }

    fn wire_args(&self, check: &WireCheck) -> WireArgs {
        self.0.wire_args(check)
    }

    fn wire_state(&self, next: &mut impl FnMut(u64) -> Option<u64>) -> Option<WireState> {
        self.0.wire_state(next)
    }
}
