//! What a bucket owes Redis, and how much of it time has made good.

use std::time::Duration;

use crate::clock::Micros;
use crate::limit::Policy;
use crate::store::redis::wire::adjustment::{Adjustment, Op};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Debt {
    pub(crate) name: Vec<u8>,
    pub(crate) policy: Policy,
    pub(crate) cost: u64,
    /// When the bucket would be full again: from then on nothing is owed.
    pub(crate) until: Micros,
    /// From when on the bucket in Redis is full, which does not know of the debt. What would
    /// refill after that is lost there, and so is no longer owed.
    pub(crate) since: Micros,
}

/// What Redis has charged for a request that passed without its answer. The bucket there, full until
/// then, is not full again before it has refilled that: so much is not lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LateCharge {
    pub(crate) cost: u64,
    /// When the bucket would be full again, by what was known here with this charge. The
    /// [`Debt::since`] of what passed later is no earlier, and so has it in it already.
    pub(crate) until: Micros,
    /// When Redis charged it, if that is known.
    pub(crate) at: Option<Micros>,
}

impl Debt {
    /// The charge that pays it.
    pub(crate) fn adjustment(&self) -> Adjustment<'_> {
        Adjustment { op: Op::ChargeAfter, name: &self.name, policy: &self.policy, cost: self.cost }
    }

    /// Takes off what has refilled until now. False if nothing is left.
    pub(super) fn age(&mut self, now: Micros, nodes: u64, late: &[LateCharge]) -> bool {
        self.cost = self.due(now, nodes, late);
        self.since = self.since.max(now);
        self.cost > 0
    }

    /// What is left of it if `nodes` share in what has refilled.
    pub(super) fn due(&self, now: Micros, nodes: u64, late: &[LateCharge]) -> u64 {
        let late = || late.iter().filter(|it| it.until > self.since);
        if late().map(|it| it.until).fold(self.until, Micros::max) <= now {
            return 0;
        }
        let nodes = u32::try_from(nodes).unwrap_or(u32::MAX).max(1);
        let refilled = |until: Micros| match until.since(self.since) / nodes {
            Duration::ZERO => 0,
            span => self.policy.refilled(span),
        };
        // The bucket in Redis was full until the first late charge, and is again once it has
        // refilled them all: in between nothing is lost.
        let charged = late().fold(0, |sum: u64, it| sum.saturating_add(it.cost));
        let first = late().map(|it| it.at.unwrap_or_default()).min().unwrap_or(now).min(now);
        let lost = refilled(now).saturating_sub(charged).max(refilled(first));
        self.cost.saturating_sub(lost)
    }
}
