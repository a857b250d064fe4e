//! A policy and a cost as the scripts take them, and a state as they give it.
//!
//! Lua has doubles only. Everything here is below 2^53: a cost above the quota is sent as one
//! above it, for no such cost passes, and spans of time are split as a state splits them.

use super::msgpack::{self, Reader};
use crate::clock::Micros;
use crate::limit::fixed_window::Windows;
use crate::limit::{Policy, State};

/// Any instant: what a double holds exactly.
pub(super) const EXACT: u64 = 1 << 53;
/// A token bucket's `rest`: parts of a microsecond.
const PARTS: u64 = 1 << 32;
/// A window's count.
const COUNTS: u64 = 1 << 30;

/// What one check asks of its bucket. Equal terms are sent once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Terms {
    pub(super) policy: Policy,
    /// At most one above the quota.
    pub(super) cost: u64,
}

impl Terms {
    pub(super) fn new(policy: &Policy, cost: u64) -> Self {
        Self { policy: *policy, cost: policy.bounded(cost) }
    }

    /// Lua knows no time zones: of a calendar it is told the bounds of the windows around the time
    /// that Redis's clock is about to show.
    pub(super) fn write(&self, out: &mut Vec<u8>, around: Micros) {
        match &self.policy {
            Policy::TokenBucket(it) => {
                let [cost, empty] = it.spans(self.cost);
                write_all(out, &[1, cost.0, cost.1, empty.0, empty.1]);
            }
            Policy::SlidingWindow(it) => {
                let rate = it.rate();
                write_all(out, &[2, self.cost, rate.count(), rate.period_us(), it.mark()]);
            }
            Policy::FixedWindow(it) => match it.windows() {
                Windows::Every(rate) => {
                    write_all(out, &[3, self.cost, it.count(), rate.period_us()]);
                }
                Windows::Calendar(calendar) => {
                    let [start, end, next, last] = calendar.bounds(around).map(|it| it.0);
                    write_all(out, &[3, self.cost, it.count(), 0, start, end, next, last]);
                }
            },
        }
    }

    /// How many numbers a state has in a reply.
    pub(super) fn numbers(&self) -> usize {
        match &self.policy {
            Policy::TokenBucket(_) | Policy::FixedWindow(_) => 2,
            Policy::SlidingWindow(_) => 3,
        }
    }

    /// Reads a state. `None` is one that no script writes.
    pub(super) fn state(&self, reply: &mut Reader<'_>) -> Option<State> {
        let mut next = |bound| reply.number().filter(|number| *number < bound);
        let until = Micros(next(EXACT)?);
        Some(match &self.policy {
            Policy::TokenBucket(_) => State { until, rest: next(PARTS)? },
            Policy::FixedWindow(_) => State { until, rest: next(COUNTS)? },
            Policy::SlidingWindow(it) => it.state(until, next(COUNTS)?, next(COUNTS)?),
        })
    }
}

fn write_all(out: &mut Vec<u8>, numbers: &[u64]) {
    msgpack::array(out, numbers.len());
    for number in numbers {
        msgpack::number(out, *number);
    }
}
