//! One check as the scripts take it, and what they reply to it.
//!
//! The numbers of an algorithm are its own, beside the algorithm: see [`Algorithm`]. In front of
//! them goes one number that says which algorithm it is and how the check is meant.
//!
//! [`Algorithm`]: crate::limit::Algorithm

use super::msgpack::{self, Reader};
use crate::clock::Micros;
use crate::limit::wire::{WireArgs, WireCheck};
use crate::limit::{Policy, State};
use crate::store::Choice;

/// How a check is meant, added to its algorithm's number: see `lua/algorithms.lua`.
const SPENDS_NOTHING: u64 = 16;
const NOT_ENFORCED: u64 = 32;
const FIRST: u64 = 64;
const SECOND: u64 = 128;
const BOUND: u64 = 256;

/// Who asks, roughly when by the clock of Redis, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct CallContext {
    /// See [`WireCheck::holder`].
    pub holder: u64,
    /// See [`WireCheck::around`].
    pub around: Micros,
    /// The instant of Redis's clock after which nobody waits for the answer any more, if that is
    /// known: a call that is run later charges nothing.
    pub deadline: Option<Micros>,
}

/// What one check asks of its bucket. Equal arguments are sent once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CheckArgs {
    pub(crate) policy: Policy,
    /// At most one above all that may be used.
    pub(crate) cost: u64,
    pub(crate) waited: u64,
    pub(crate) spends: bool,
    pub(crate) enforced: bool,
    /// It is charged only if all that are bound so admit: see
    /// [`Check::together`](crate::store::Check::together).
    pub(crate) bound: bool,
    pub(crate) choice: Choice,
}

/// What a reply says of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckReply {
    pub state: State,
    /// When it would pass, if it does not and its state alone does not tell.
    pub passes_at: Option<Micros>,
    /// It is not enforced and would have refused, or is of a pair and has.
    pub would_refuse: bool,
    /// See [`CheckOutcome::skipped`](crate::store::CheckOutcome::skipped).
    pub skipped: bool,
    /// See [`CheckOutcome::withheld`](crate::store::CheckOutcome::withheld).
    pub withheld: bool,
}

impl CheckReply {
    /// Whether the check was charged, if its request was admitted and it spends.
    pub(crate) fn is_chosen(&self) -> bool {
        !self.would_refuse && !self.skipped && !self.withheld
    }
}

impl CheckArgs {
    pub(crate) fn new(policy: &Policy, cost: u64) -> Self {
        let (policy, bound, choice) = (*policy, false, Choice::Alone);
        Self { policy, cost, waited: 0, spends: true, enforced: true, bound, choice }.bounded()
    }

    /// With a cost that Lua can count with, and no more waiting than counts.
    pub(crate) fn bounded(self) -> Self {
        let waited = match &self.policy {
            Policy::TokenBucket(it) => it.grace(self.waited),
            _ => 0,
        };
        Self { cost: self.policy.bounded(self.cost), waited, ..self }
    }

    /// All its numbers, in the order in which the scripts take them.
    pub(crate) fn numbers(&self, context: CallContext) -> Vec<u64> {
        let args = self.wire_args(context);
        std::iter::once(self.kind()).chain(args.as_slice().iter().copied()).collect()
    }

    fn wire_args(&self, context: CallContext) -> WireArgs {
        let CallContext { holder, around, .. } = context;
        let check = WireCheck { cost: self.cost, grace: self.waited, holder, around };
        self.policy.wire_args(&check)
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>, context: CallContext) {
        let args = self.wire_args(context);
        msgpack::array(out, 1 + args.as_slice().len());
        msgpack::number(out, self.kind());
        for number in args.as_slice() {
            msgpack::number(out, *number);
        }
    }

    /// Which algorithm it is, and how the check is meant.
    fn kind(&self) -> u64 {
        let spends_nothing = if self.spends { 0 } else { SPENDS_NOTHING };
        let not_enforced = if self.enforced { 0 } else { NOT_ENFORCED };
        let choice = match self.choice {
            Choice::Alone => 0,
            Choice::First => FIRST,
            Choice::Second => SECOND,
        };
        let bound = if self.bound { BOUND } else { 0 };
        self.policy.wire_id() + spends_nothing + not_enforced + choice + bound
    }

    /// How many numbers a reply has for this check.
    pub(crate) fn reply_numbers(&self) -> usize {
        self.policy.reply_numbers()
    }

    /// `None` is what no script writes.
    pub(crate) fn read_reply(&self, reply: &mut Reader<'_>) -> Option<CheckReply> {
        let mut next = |bound| reply.number().filter(|number| *number < bound);
        let wire = self.policy.wire_state(&mut next)?;
        let (state, passes_at) = (wire.state, wire.passes_at);
        let (would_refuse, skipped, withheld) = (false, false, false);
        Some(CheckReply { state, passes_at, would_refuse, skipped, withheld })
    }
}
