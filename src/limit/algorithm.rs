//! What an algorithm is: a fixed set of functions, in Rust and in Lua by the same names.
//!
//! Each algorithm is one file here and one file of the same name in `lua/`, with the functions of
//! [`Algorithm`] in both, and both say in which order their numbers go over the wire. The embedded
//! store calls the Rust, Redis runs the Lua, and the two agree bit for bit.
//!
//! All of it is integers and pure: the same state, instant and cost always give the same verdict,
//! and a refusal names the first instant at which the cost would pass.

use super::wire::{WireArgs, WireCheck, WireState};
use crate::clock::Micros;

/// The state of one bucket, of any algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct State {
    /// The first instant at which the bucket is as good as absent, so an expired entry equals none
    /// and nothing needs a sweep.
    pub ends_at: Micros,
    /// What the algorithm keeps beside it.
    pub rest: u64,
    /// When what is left of a `sliding_log` can next grow; 0 for every other algorithm. Stores do
    /// not keep it.
    pub grows_at: Micros,
}

impl State {
    pub const fn new(ends_at: Micros, rest: u64) -> Self {
        Self { ends_at, rest, grows_at: Micros(0) }
    }
}

/// What a policy says of one cost at one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It may pass, and this is the state once it is charged.
    Admit(State),
    Refuse(Retry),
}

#[cfg(test)]
impl Verdict {
    /// The state after a cost that must pass.
    #[track_caller]
    pub(super) fn admitted(self) -> State {
        match self {
            Verdict::Admit(state) => state,
            Verdict::Refuse(retry) => panic!("refused until {retry:?}"),
        }
    }
}

/// When a refused cost would pass if nobody else spends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Retry {
    At(Micros),
    /// The cost is more than the limit ever holds.
    Never,
}

/// What responses say of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Report {
    /// Whole units left, never negative.
    pub remaining: u64,
    /// When `remaining` can next grow; now if the bucket is full.
    pub grows_at: Micros,
    /// When it is full again, or its window ends; now if it is full.
    pub full_at: Micros,
}

/// The functions that every algorithm has twice: here and in `lua/`. `tests/model/twin_files.rs`
/// compares the two sets by name.
pub trait Algorithm {
    /// Which algorithm a check is for, on the wire: its position in `lua/algorithms.lua`.
    const WIRE_ID: u64;

    /// How many numbers a reply has for one check.
    const REPLY_NUMBERS: usize;

    /// The state, brought into what these numbers allow; see [`Policy::clamp`].
    ///
    /// [`Policy::clamp`]: super::Policy::clamp
    #[must_use]
    fn clamp(&self, state: State, now: Micros) -> State;

    /// Decides one cost against one state.
    #[must_use]
    fn evaluate(&self, state: State, now: Micros, cost: u64) -> Verdict;

    /// The clamped state once the cost is charged without asking whether it passes: at most as deep
    /// as these numbers allow, unless other numbers of the same bucket have made it deeper.
    #[must_use]
    fn charge_after(&self, state: State, now: Micros, cost: u64) -> State;

    /// A live, clamped state without a cost that was charged at `charged_at`, which is not later
    /// than `now`: never more is left than if the charge had not been made.
    #[must_use]
    fn refund(&self, state: State, now: Micros, cost: u64, charged_at: Micros) -> State;

    /// The arguments of one check, in the order in which the Lua file takes them.
    fn wire_args(&self, check: &WireCheck) -> WireArgs;

    /// Reads the numbers that a reply has for one check, in the order in which the Lua file writes
    /// them. `next` takes the bound that the number lies below; `None` is what no script writes.
    fn wire_state(&self, next: &mut impl FnMut(u64) -> Option<u64>) -> Option<WireState>;
}
