//! Which limit a request may wait for, where its strategy is `queue`.

use std::time::Duration;

use super::{LimitOutcome, LimitOutcomes};
use crate::clock::Micros;
use crate::limit::{Retry, Strategy};
use crate::store::{BucketId, Check, Choice};

/// A limit that a request may wait for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueuedLimit {
    /// An index into the checks.
    pub check: usize,
    pub max_wait: Duration,
    pub max_queue: usize,
}

impl LimitOutcomes<'_, '_> {
    /// The limit that a refused request may wait for, and until when: of those that refuse, the one
    /// that does so for longest. `None` if a limit of another strategy refuses, or for ever.
    pub(crate) fn queued_limit(&self, now: Micros) -> Option<(QueuedLimit, Micros)> {
        let mut longest = None;
        for (index, entry) in self.iter().enumerate().filter(|(_, entry)| entry.refuses()) {
            let LimitOutcome { limit, outcome, .. } = entry;
            let (Strategy::Queue { max_wait, max_queue }, Some(Retry::At(at))) =
                (limit.limit.strategy, outcome.refused)
            else {
                return None;
            };
            // A cluster keeps buckets by several clocks.
            let at = Micros(now.0 + at.0.saturating_sub(outcome.now.0));
            if longest.is_none_or(|(_, latest)| at > latest) {
                longest = Some((QueuedLimit { check: index, max_wait, max_queue }, at));
            }
        }
        longest
    }

    /// The first limit whose queue is not empty, which the request has to join. `None` also for a
    /// request that could never pass and so need not wait.
    pub(crate) fn occupied_queue(
        &self,
        is_occupied: impl Fn(BucketId) -> bool,
    ) -> Option<QueuedLimit> {
        let checks = &self.planned.checks;
        let never = |check: &Check<'_>| check.enforced && check.cost > check.policy.quota();
        // A pair can never pass if neither of it can.
        let refuses = |(at, check): (usize, &Check<'_>)| match check.choice {
            Choice::Alone => never(check),
            Choice::First => false,
            Choice::Second => never(check) && never(&checks[at - 1]),
        };
        if checks.iter().enumerate().any(refuses) {
            return None;
        }
        self.iter().enumerate().find_map(|(index, it)| match it.limit.limit.strategy {
            Strategy::Queue { max_wait, max_queue }
                if it.check.enforced && is_occupied(it.check.bucket) =>
            {
                Some(QueuedLimit { check: index, max_wait, max_queue })
            }
            _ => None,
        })
    }

    /// Notes that a check is refused for at least so long, because others wait before it.
    pub(crate) fn refuse_for(&mut self, check: usize, wait: Duration) {
        let (policy, outcome) = (self.planned.checks[check].policy, &mut self.outcomes[check]);
        let passes = Micros(outcome.now.0 + wait.as_micros() as u64);
        let passes = passes.max(policy.report(outcome.state, outcome.now).grows_at);
        outcome.refused = match outcome.refused {
            Some(Retry::At(at)) => Some(Retry::At(at.max(passes))),
            Some(Retry::Never) => Some(Retry::Never),
            None => Some(Retry::At(passes)),
        };
    }
}
