//! A request of which Redis decides one part, and leases have served the other.

use smallvec::SmallVec;

use crate::store::{Check, CheckOutcome, CheckSet};

/// A request of which Redis decides a part.
#[derive(Debug, Clone, Copy)]
pub(super) struct SplitChecks {
    pub(super) for_redis: CheckMask,
    /// The others, but for those that only watch and are known to refuse.
    pub(super) spent: CheckMask,
}

/// Some of a request's checks, by their positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct CheckMask(u64);

impl CheckMask {
    pub(super) fn insert(&mut self, index: usize) {
        self.0 |= 1 << index;
    }

    pub(super) fn has(self, index: usize) -> bool {
        self.0 >> index & 1 == 1
    }

    pub(super) fn is_all(self, checks: usize) -> bool {
        self.0.count_ones() as usize == checks
    }
}

pub(super) fn indexed<'a, 'c>(
    checks: &'a [Check<'c>],
    mask: CheckMask,
) -> impl Iterator<Item = &'a Check<'c>> {
    checks.iter().enumerate().filter(move |(index, _)| mask.has(*index)).map(|(_, it)| it)
}

pub(super) fn checks_in<'c>(asked: CheckSet<'c>, mask: CheckMask) -> SmallVec<[Check<'c>; 4]> {
    indexed(asked.checks, mask).copied().collect()
}

pub(super) fn outcomes_of(
    outcomes: &[CheckOutcome],
    rest: CheckMask,
) -> SmallVec<[CheckOutcome; 4]> {
    let chosen = outcomes.iter().enumerate().filter(|(index, _)| rest.has(*index));
    chosen.map(|(_, outcome)| *outcome).collect()
}

pub(super) fn put_outcomes(
    outcomes: &mut [CheckOutcome],
    rest: CheckMask,
    others: &[CheckOutcome],
) {
    let chosen = outcomes.iter_mut().enumerate().filter(|(index, _)| rest.has(*index));
    chosen.zip(others).for_each(|((_, outcome), other)| *outcome = *other);
}
