//! The limits of one request with what came of each, and what follows from that.

mod queueing;
mod refusal;

use std::time::Duration;

use http::HeaderValue;
use smallvec::SmallVec;

pub(super) use queueing::QueuedLimit;

use super::compiled::{CompiledLimit, NamedBucket, Numbers};
use super::guard::DeferredCharge;
use super::pacing::PacedCheck;
use super::plan::PlannedLimits;
use crate::limit::tenants::{TENANTS, TenantTree};
use crate::limit::{Mode, Policy};
use crate::respond::Applied;
use crate::store::{Check, CheckOutcome, CheckSet, DeferredCheck};
use crate::telemetry::CallerNames;

/// Planned limits, and what the store has said of them.
#[derive(Debug)]
pub(super) struct LimitOutcomes<'p, 'a> {
    pub planned: &'p mut PlannedLimits<'a>,
    /// One for each check.
    pub outcomes: SmallVec<[CheckOutcome; 4]>,
}

/// One limit, what it asked for, and what came of that.
#[derive(Debug, Clone, Copy)]
pub(super) struct LimitOutcome<'a, 'c> {
    pub limit: &'a CompiledLimit,
    pub numbers: &'a Numbers,
    pub check: &'c Check<'a>,
    pub outcome: &'c CheckOutcome,
}

impl<'a> LimitOutcome<'a, '_> {
    /// What the limit is called for this caller.
    pub(super) fn name(&self) -> &'a str {
        self.numbers.text.name()
    }

    /// The same as logs have it: names of tenants are names of callers.
    pub(super) fn logged_name(&self, names: CallerNames) -> String {
        match self.name().split_once('/') {
            Some((TENANTS, tenant)) => format!("{TENANTS}/{}", names.of(tenant)),
            _ => self.name().to_owned(),
        }
    }

    /// Whether the limit refuses its request.
    fn refuses(&self) -> bool {
        self.check.refuses(self.outcome)
    }

    /// Whether the request was charged to the limit's bucket.
    fn is_charged(&self) -> bool {
        self.check.is_charged(self.outcome)
    }
}

/// What an admitted request leaves to be done.
#[derive(Debug)]
pub(super) struct OpenCharges {
    /// Slots that it holds until it has ended.
    pub slots: Vec<DeferredCheck>,
    /// Charges that wait for its response.
    pub deferred: Vec<DeferredCharge>,
}

impl<'p, 'a> LimitOutcomes<'p, 'a> {
    /// Limits that are yet to be decided.
    #[inline(always)]
    pub(super) fn new(planned: &'p mut PlannedLimits<'a>) -> Self {
        let mut limits = LimitOutcomes { planned, outcomes: SmallVec::new() };
        limits.outcomes.resize(limits.planned.checks.len(), CheckOutcome::default());
        limits
    }

    /// What the store is asked, and where it writes what came of it.
    pub(super) fn asked(&mut self) -> (CheckSet<'_>, &mut [CheckOutcome]) {
        let PlannedLimits { checks, keys, .. } = &*self.planned;
        (CheckSet { checks, keys: keys.view() }, &mut self.outcomes)
    }

    /// Whether one of them did not admit, also one that only watches. The first of a pair counts,
    /// too.
    pub(super) fn has_refused(&self) -> bool {
        self.outcomes.iter().any(|it| it.refused.is_some())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = LimitOutcome<'a, '_>> + Clone {
        let PlannedLimits { limits, numbers, checks, .. } = &*self.planned;
        let entries = limits.iter().zip(numbers).zip(checks).zip(&self.outcomes);
        entries.map(|(((limit, numbers), check), outcome)| LimitOutcome {
            limit,
            numbers,
            check,
            outcome,
        })
    }

    /// The same with each pair once.
    pub(super) fn told(&self) -> impl Iterator<Item = LimitOutcome<'a, '_>> + Clone {
        self.iter().filter(|it| it.check.is_told(it.outcome))
    }

    /// What rate headers are made of. Limits that could not be checked say nothing.
    pub(super) fn applied(&self) -> impl Iterator<Item = Applied<'_>> + Clone {
        let entries = self.planned.numbers.iter().zip(&self.planned.checks).zip(&self.outcomes);
        let decided =
            entries.filter(|((_, check), outcome)| outcome.decided && check.is_told(outcome));
        decided.map(|((numbers, check), outcome)| Applied { text: &numbers.text, check, outcome })
    }

    /// The checks of an admitted request that let requests go one by one, with their limits. Those
    /// that are charged after the response are not paced.
    pub(super) fn paced(&self) -> impl Iterator<Item = (&'a CompiledLimit, PacedCheck)> {
        let entries = self.planned.paces.then(|| self.iter()).into_iter().flatten();
        entries.filter_map(|entry| {
            let LimitOutcome { limit, check, .. } = entry;
            let (Policy::LeakyBucket(policy), Mode::Enforce) = (*check.policy, limit.limit.mode)
            else {
                return None;
            };
            let paced = PacedCheck { bucket: check.bucket, policy, cost: check.cost };
            entry.is_charged().then_some((limit, paced))
        })
    }

    /// How long an admitted request is to be held back, and because of which limit.
    pub(super) fn pacing_delay(&self) -> Option<(&'a CompiledLimit, Duration)> {
        if !self.planned.paces {
            return None;
        }
        let admits = |it: &LimitOutcome<'a, '_>| {
            it.limit.limit.mode == Mode::Enforce && it.outcome.is_chosen()
        };
        let delays =
            self.iter().filter(admits).map(|LimitOutcome { limit, check, outcome, .. }| {
                (limit, check.policy.turn(outcome.state, outcome.now, check.cost))
            });
        delays.max_by_key(|(_, delay)| *delay).filter(|(_, delay)| !delay.is_zero())
    }

    /// The names of the limits that did not admit a request that is forwarded all the same.
    pub(super) fn degraded(&self) -> Option<HeaderValue> {
        let mut degraded = self.told().filter(|LimitOutcome { limit, outcome, .. }| {
            outcome.refused.is_some() && outcome.decided && limit.degrades()
        });
        let first = degraded.next()?.limit;
        let more: Vec<&str> = degraded.map(|it| it.limit.limit.name.as_str()).collect();
        if more.is_empty() {
            return Some(first.header_name.clone());
        }
        let all = format!("{}, {}", first.limit.name, more.join(", "));
        Some(HeaderValue::try_from(all).unwrap_or_else(|_| first.header_name.clone()))
    }

    /// What the request holds while it is under way, and what it is charged when its response is
    /// known. `None` if that is nothing. The tree is the one that it was planned by.
    pub(super) fn open_charges(&self, tree: &TenantTree) -> Option<OpenCharges> {
        let PlannedLimits { checks, keys, deferred, holds, score, .. } = &*self.planned;
        if !holds && deferred.is_empty() {
            return None;
        }
        let keys = keys.view();
        let held = self.iter().filter(|it| it.is_charged() && it.check.policy.is_held());
        let slots = held.map(|it| DeferredCheck::new(it.check, it.outcome, keys)).collect();
        // Limits that only watch are charged only if they would have admitted.
        // Of a pair, the one that was chosen is charged.
        let admitted = deferred.iter().filter(|it| self.outcomes[it.check].is_chosen());
        let deferred = admitted.map(|it| {
            let check = Check { cost: it.cost, ..checks[it.check] };
            let charge = DeferredCheck::new(&check, &self.outcomes[it.check], keys);
            let (cost, limit) = (it.limit.cost.clone(), it.limit.limit);
            let tenant = it.tenant.map(|bucket| NamedBucket::new(tree, bucket));
            DeferredCharge { charge, cost, score: *score, limit, tenant }
        });
        Some(OpenCharges { slots, deferred: deferred.collect() })
    }

    /// Brings the states up to date with what was charged after the response.
    pub(super) fn note_charged(&mut self, charged: &[DeferredCheck]) {
        for charge in charged {
            let mut entries = self.planned.checks.iter().zip(&mut self.outcomes);
            let same = entries.find(|(check, _)| check.bucket == charge.bucket());
            if let Some((check, it)) = same {
                it.state = check.policy.charge_after(it.state, it.now, charge.cost);
            }
        }
    }

    /// What came of the checks that may refuse the request.
    fn enforced(&self) -> impl Iterator<Item = &CheckOutcome> {
        self.told().filter(|it| it.check.enforced).map(|it| it.outcome)
    }
}

#[cfg(test)]
mod tests;
