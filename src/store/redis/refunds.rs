//! Giving back what was charged for requests that were not admitted.
//!
//! Mostly the charge is known and is given back at once, in the background. If a reply did not come
//! in time, what it would have said becomes known later, or never: until then the refund waits.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::{Instant, timeout_at};

use super::Shared;
use super::adjustment::{Adjustment, Op};
use super::lane::LATE;
use super::link::{ADJUST_TIMEOUT, Link, adjust};
use super::verdicts::Verdict;
use crate::clock::Micros;
use crate::limit::Policy;

/// Refunds that wait at a time. Beyond them nothing is given back: before the breaker opens, a
/// worker has a few calls in doubt.
const MOST: usize = 4_096;

/// Refunds whose charges are in doubt.
#[derive(Debug, Default)]
pub(super) struct Refunds(RefCell<Vec<(Claim, Refund)>>);

/// A request of a call of which it is not known whether it was run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) call: u64,
    pub(super) request: usize,
}

/// What a request was charged with in one slot.
#[derive(Debug)]
pub(super) struct Refund {
    pub(super) slot: u16,
    pub(super) charges: Vec<Charged>,
}

#[derive(Debug)]
pub(super) struct Charged {
    pub(super) name: Vec<u8>,
    pub(super) policy: Policy,
    pub(super) cost: u64,
}

/// A refund that is known to be due, until it is made or given up.
struct UnderWay(Arc<Shared>);

impl UnderWay {
    fn begin(shared: &Arc<Shared>) -> Self {
        shared.refunding.fetch_add(1, Ordering::AcqRel);
        UnderWay(shared.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.refunding.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Link {
    /// Gives back once it is known that it was charged.
    pub(super) fn refund_if_charged(&self, claim: Claim, refund: Refund) {
        let mut waiting = self.refunds.0.borrow_mut();
        if waiting.len() < MOST && !refund.charges.is_empty() {
            waiting.push((claim, refund));
        }
    }

    /// It has become known what was charged by calls that were in doubt.
    pub(super) fn settle_refunds(self: &Rc<Self>) {
        let waiting = std::mem::take(&mut *self.refunds.0.borrow_mut());
        for (claim, refund) in waiting {
            let verdict = self.verdicts.borrow().of(claim.call, claim.request);
            match verdict {
                None => self.refunds.0.borrow_mut().push((claim, refund)),
                Some(Verdict::Admitted(Some(at))) => self.refund(at, refund),
                Some(_) => {}
            }
        }
    }

    /// Gives back what was charged at that instant, in the background: as soon as there is a
    /// connection, and once. If that gets lost, callers are left with less than they are due,
    /// never with more.
    pub(super) fn refund(self: &Rc<Self>, charged_at: Micros, refund: Refund) {
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
                let asker = link.asker();
                let sent = adjust(&session, refund.slot, &adjustments, None, asker, deadline);
                match sent.await {
                    Ok(()) => return,
                    Err(failure) => {
                        link.shared.health.count(&failure);
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
