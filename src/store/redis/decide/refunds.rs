//! Refunds of what was charged for requests that were not admitted.
//!
//! Mostly the charge is known and is refunded at once, in the background. If a reply did not come
//! in time, what it would have said becomes known later, or never: until then the refund waits.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::{Instant, timeout_at};

use super::call_outcomes::RequestOutcome;
use super::call_pipeline::LATE;
use super::worker_link::{ADJUST_TIMEOUT, AdjustTarget, WorkerLink, adjust};
use crate::clock::Micros;
use crate::limit::Policy;
use crate::store::Choice;
use crate::store::redis::RedisShared;
use crate::store::redis::wire::adjustment::{Adjustment, Op};
use crate::store::redis::wire::pair_choices::PairChoices;

/// Refunds that wait at a time. Beyond them nothing is refunded: before the breaker opens, a
/// worker has a few uncertain calls.
const MOST: usize = 4_096;

/// Refunds whose charges are uncertain.
#[derive(Debug, Default)]
pub(crate) struct Refunds(RefCell<Vec<(Claim, Refund)>>);

/// A request of a call of which it is not known whether it was run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) call: u64,
    pub(crate) request: usize,
}

/// What a request was charged with in one slot.
#[derive(Debug)]
pub(crate) struct Refund {
    pub(crate) slot: u16,
    pub(crate) charges: Vec<Charged>,
}

#[derive(Debug)]
pub(crate) struct Charged {
    pub(crate) name: Vec<u8>,
    pub(crate) policy: Policy,
    pub(crate) cost: u64,
    /// The number of its pair, and which one of it it is: charged if the choice fell on it.
    pub(crate) pair: Option<(usize, Choice)>,
}

impl Refund {
    /// The same without what was not charged of pairs.
    pub(crate) fn chosen(mut self, pairs: PairChoices) -> Self {
        self.charges.retain(|it| it.pair.is_none_or(|(pair, choice)| pairs.of(pair).is(choice)));
        self
    }
}

/// How many refunds are known to be due and have not been made, of all workers.
///
/// Counted in two groups, so that those that are due by an instant can be waited for: under load there
/// is hardly an instant at which none is.
#[derive(Debug, Default)]
pub(crate) struct RefundsInFlight {
    groups: [AtomicUsize; 2],
    /// In which of the two those count that become due now.
    current: AtomicUsize,
}

/// Refunds that were due by an instant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RefundGroup(usize);

impl RefundsInFlight {
    /// Those that are due by now. Only one may wait for them at a time.
    pub(crate) fn due(&self) -> RefundGroup {
        RefundGroup(self.current.fetch_xor(1, Ordering::AcqRel))
    }

    /// Whether any of them is still to be made. Those of the wait before that took too long count among
    /// them.
    pub(crate) fn are_under_way(&self, group: RefundGroup) -> bool {
        self.groups[group.0].load(Ordering::Acquire) > 0
    }

    fn begin(&self) -> RefundGroup {
        let group = self.current.load(Ordering::Acquire);
        self.groups[group].fetch_add(1, Ordering::AcqRel);
        RefundGroup(group)
    }
}

/// A refund that is known to be due, until it is made or given up.
struct UnderWay {
    shared: Arc<RedisShared>,
    group: RefundGroup,
}

impl UnderWay {
    fn begin(shared: &Arc<RedisShared>) -> Self {
        UnderWay { group: shared.refunds_in_flight.begin(), shared: shared.clone() }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.shared.refunds_in_flight.groups[self.group.0].fetch_sub(1, Ordering::AcqRel);
    }
}

impl WorkerLink {
    /// Gives back once it is known that it was charged.
    pub(crate) fn refund_if_charged(&self, claim: Claim, refund: Refund) {
        let mut waiting = self.refunds.0.borrow_mut();
        if waiting.len() < MOST && !refund.charges.is_empty() {
            waiting.push((claim, refund));
        }
    }

    /// It has become known what uncertain calls have charged.
    pub(crate) fn resolve_refunds(self: &Rc<Self>) {
        let waiting = std::mem::take(&mut *self.refunds.0.borrow_mut());
        for (claim, refund) in waiting {
            let verdict = self.call_outcomes.borrow().of(claim.call, claim.request);
            match verdict {
                None => self.refunds.0.borrow_mut().push((claim, refund)),
                Some(RequestOutcome::Admitted { at: Some(at), pairs }) => {
                    self.refund(at, refund.chosen(pairs));
                }
                Some(_) => {}
            }
        }
    }

    /// Gives back what was charged at that instant, in the background: as soon as there is a
    /// connection, and once. If that gets lost, callers have less than their due, never more.
    pub(crate) fn refund(self: &Rc<Self>, charged_at: Micros, refund: Refund) {
        if refund.charges.is_empty() {
            return;
        }
        let link = self.clone();
        let under_way = UnderWay::begin(&self.shared);
        tokio::task::spawn_local(async move {
            let _under_way = under_way;
            let given_up = Instant::now() + LATE;
            loop {
                let session = timeout_at(given_up, link.connected());
                let Ok(Some(session)) = session.await else { return };
                let op = Op::GiveBack { charged_at };
                let charges = refund.charges.iter();
                let adjustments: Vec<_> = charges
                    .map(|it| Adjustment { op, name: &it.name, policy: &it.policy, cost: it.cost })
                    .collect();
                let deadline = Instant::now() + ADJUST_TIMEOUT;
                let context = link.call_context();
                let target = AdjustTarget { session: &session, slot: refund.slot, deadline };
                match adjust(target, &adjustments, None, context).await {
                    Ok(()) => return,
                    Err(failure) => {
                        link.shared.breaker.count(&failure);
                        if failure.is_silence() || Instant::now() >= given_up {
                            return;
                        }
                    }
                }
                tokio::time::sleep(ADJUST_TIMEOUT / 10).await;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refunds_that_become_due_later_are_not_waited_for() {
        let refunds = RefundsInFlight::default();
        let end = |group: RefundGroup| refunds.groups[group.0].fetch_sub(1, Ordering::AcqRel);
        assert!(!refunds.are_under_way(refunds.due()));
        let first = refunds.begin();
        let due = refunds.due();
        let later = refunds.begin();
        assert!(refunds.are_under_way(due));
        end(first);
        assert!(!refunds.are_under_way(due));
        let due = refunds.due();
        assert!(refunds.are_under_way(due), "now it is due as well");
        end(later);
        assert!(!refunds.are_under_way(due));
    }

    #[test]
    fn refunds_that_took_too_long_once_are_waited_for_with_others() {
        let refunds = RefundsInFlight::default();
        let lasting = refunds.begin();
        for _ in 0..2 {
            let _given_up = refunds.due();
        }
        assert!(refunds.are_under_way(refunds.due()));
        refunds.groups[lasting.0].fetch_sub(1, Ordering::AcqRel);
        assert!(!refunds.are_under_way(refunds.due()));
    }
}
