//! A policy and a cost as the scripts take them, and a state as they give it.
//!
//! Lua has doubles only. Everything here is below 2^53: a cost above the quota is sent as one
//! above it, for no such cost passes, and spans of time are split as a state splits them.

use std::time::Duration;

use super::msgpack::{self, Reader};
use crate::clock::Micros;
use crate::limit::fixed_window::Windows;
use crate::limit::refill::Reach;
use crate::limit::{Policy, State};

/// Any instant: what a double holds exactly.
pub(super) const EXACT: u64 = 1 << 53;
/// A token bucket's `rest`: parts of a microsecond.
const PARTS: u64 = 1 << 32;
/// A window's count.
const COUNTS: u64 = 1 << 30;

/// How a check is meant, on top of its algorithm's number: see `lua/algorithms.lua`.
const SPENDS_NOTHING: u64 = 16;
const WATCHES: u64 = 32;

/// How long places are held without a word from their holder. A dead gateway's come back after it.
pub const LEASE: Duration = Duration::from_secs(10);

/// Who asks, roughly when by the clock of Redis, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Asker {
    /// The number of a worker among all that hold places, below 2^53.
    pub holder: u64,
    /// Lua knows no time zones: of a calendar it is told the bounds of the windows around this.
    pub around: Micros,
    /// The instant of Redis's clock after which nobody waits for the answer any more, if that is
    /// known: a call that is run later charges nothing.
    pub deadline: Option<Micros>,
}

/// What one check asks of its bucket. Equal terms are sent once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Terms {
    pub(super) policy: Policy,
    /// At most one above all that may be owed.
    pub(super) cost: u64,
    pub(super) late: u64,
    pub(super) spends: bool,
    pub(super) enforced: bool,
}

/// What a reply says of one check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    pub state: State,
    /// When it would pass, if it does not and its state alone does not tell.
    pub passes_at: Option<Micros>,
    /// It only watches, and would have refused.
    pub would_refuse: bool,
}

impl Terms {
    pub(super) fn new(policy: &Policy, cost: u64) -> Self {
        Self { policy: *policy, cost, late: 0, spends: true, enforced: true }.bounded()
    }

    /// With a cost that Lua can count with, and no more lateness than counts.
    pub(super) fn bounded(self) -> Self {
        let late = match &self.policy {
            Policy::TokenBucket(it) => it.grace(self.late),
            _ => 0,
        };
        Self { cost: self.policy.bounded(self.cost), late, ..self }
    }

    pub(super) fn write(&self, out: &mut Vec<u8>, asker: Asker) {
        let meant =
            if self.spends { 0 } else { SPENDS_NOTHING } + if self.enforced { 0 } else { WATCHES };
        match &self.policy {
            Policy::TokenBucket(it) | Policy::LeakyBucket(it) => {
                let [cost, empty, deepest, reach] = it.spans(self.cost);
                let spans = [cost.0, cost.1, empty.0, empty.1, deepest.0, deepest.1];
                let [a, b, c, d, e, f] = spans;
                let numbers = [1 + meant, a, b, c, d, e, f, self.late, reach.0, reach.1];
                // Most buckets have one set of numbers only.
                write_all(out, if reach == deepest { &numbers[..8] } else { &numbers });
            }
            Policy::SlidingWindow(it) => {
                let (count, period) = (it.rate().count(), it.rate().period_us());
                let (deepest, mark, reach) = (it.deepest(), it.mark(), it.reach());
                write_all(out, &[2 + meant, self.cost, count, deepest, period, mark, reach]);
            }
            Policy::FixedWindow(it) => {
                let [kind, cost, count, deepest] = [3 + meant, self.cost, it.count(), it.deepest()];
                match it.windows() {
                    Windows::Every(rate) => {
                        write_all(out, &[kind, cost, count, deepest, rate.period_us()]);
                    }
                    Windows::Calendar(calendar) => {
                        let [b1, b2, b3, b4] = calendar.bounds(asker.around).map(|it| it.0);
                        write_all(out, &[kind, cost, count, deepest, 0, b1, b2, b3, b4]);
                    }
                }
            }
            Policy::RefillBucket(it) => {
                let (burst, deepest) = (it.burst(), it.deepest());
                let (every, amount) = (it.every_us(), it.amount());
                let Reach { refills, overflow } = it.reach();
                let kind = 4 + meant;
                let numbers = [kind, self.cost, burst, deepest, every, amount, refills, overflow];
                write_all(out, &numbers);
            }
            Policy::SlidingLog(it) => {
                let (count, period) = (it.rate().count(), it.rate().period_us());
                let (deepest, (kept, most)) = (it.deepest(), it.kept());
                write_all(out, &[5 + meant, self.cost, count, deepest, period, kept, most]);
            }
            Policy::Concurrency(it) => {
                let lease = LEASE.as_micros() as u64;
                write_all(out, &[6 + meant, self.cost, it.limit(), asker.holder, lease]);
            }
        }
    }

    /// How many numbers a reply has of a check.
    pub(super) fn numbers(&self) -> usize {
        match &self.policy {
            Policy::TokenBucket(_) | Policy::LeakyBucket(_) | Policy::RefillBucket(_) => 2,
            Policy::FixedWindow(_) | Policy::Concurrency(_) => 2,
            Policy::SlidingWindow(_) => 3,
            Policy::SlidingLog(_) => 4,
        }
    }

    /// Reads what is told of a check. `None` is what no script writes.
    pub(super) fn told(&self, reply: &mut Reader<'_>) -> Option<Told> {
        let mut next = |bound| reply.number().filter(|number| *number < bound);
        let until = Micros(next(EXACT)?);
        let mut passes_at = None;
        let state = match &self.policy {
            Policy::TokenBucket(_) | Policy::LeakyBucket(_) => State::new(until, next(PARTS)?),
            Policy::FixedWindow(_) | Policy::Concurrency(_) => State::new(until, next(COUNTS)?),
            Policy::RefillBucket(_) => State::new(until, next(COUNTS)?),
            Policy::SlidingWindow(it) => it.state(until, next(COUNTS)?, next(COUNTS)?),
            Policy::SlidingLog(_) => {
                let (rest, oldest) = (next(COUNTS)?, Micros(next(EXACT)?));
                passes_at = Some(Micros(next(EXACT)?)).filter(|at| at.0 > 0);
                State { until, rest, next: oldest }
            }
        };
        Some(Told { state, passes_at, would_refuse: false })
    }
}

fn write_all(out: &mut Vec<u8>, numbers: &[u64]) {
    msgpack::array(out, numbers.len());
    for number in numbers {
        msgpack::number(out, *number);
    }
}
