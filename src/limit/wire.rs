//! What an algorithm and its Lua twin send each other: whole numbers, in an order that both state.
//!
//! Lua has doubles only, so every number is below 2^53: a cost above the quota is sent as one above
//! it, since no such cost passes, and spans of time are split as a state splits them.

use super::algorithm::State;
use crate::clock::Micros;

/// Above any instant: up to here a double holds every whole number.
pub const EXACT: u64 = 1 << 53;
/// Above any count of a window, a log or slots.
pub const COUNTS: u64 = 1 << 30;

/// The most numbers that an algorithm sends.
const MAX_ARGS: usize = 9;

/// What one check asks, beside the numbers of its limit.
#[derive(Debug, Clone, Copy)]
pub struct WireCheck {
    pub cost: u64,
    /// How long ago it could have passed, in µs, as far as that counts.
    pub grace: u64,
    /// The worker that holds slots, by a number among all workers of all gateways, below 2^53.
    pub holder: u64,
    /// Roughly the time of Redis. Lua knows no time zones: it gets the bounds of the calendar
    /// windows around this instant.
    pub around: Micros,
}

/// The arguments of one check. They live on the stack: a call allocates nothing for them.
#[derive(Debug, Clone, Copy)]
pub struct WireArgs {
    numbers: [u64; MAX_ARGS],
    length: usize,
}

impl WireArgs {
    pub(super) fn new<const N: usize>(numbers: [u64; N]) -> Self {
        let mut args = Self { numbers: [0; MAX_ARGS], length: N };
        args.numbers[..N].copy_from_slice(&numbers);
        args
    }

    pub fn as_slice(&self) -> &[u64] {
        &self.numbers[..self.length]
    }
}

/// A cost as a check's arguments have it: `cost` and, where an algorithm counts in time, `cost_rest`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireCost {
    pub cost: u64,
    pub rest: u64,
}

/// What a reply says of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireState {
    pub state: State,
    /// When it would pass, if it does not and its state alone does not tell.
    pub passes_at: Option<Micros>,
}

impl From<State> for WireState {
    fn from(state: State) -> Self {
        Self { state, passes_at: None }
    }
}
