//! The shared store: buckets in Redis or Valkey, decided by Lua scripts.
//!
//! A request's checks are decided by one call of `lua/decide.lua`, which it shares with the other
//! requests of its worker ([`decide`]). When Redis fails, the breaker opens and each limit is served by
//! its `on_error`, until Redis is back ([`supervise`]). What is sent and received is in [`wire`], and
//! how Redis is reached in [`connect`].
//!
//! **How often a request is charged.** Once, if it passes. Calls are numbered. When a reply is late
//! or lost, its requests are decided without Redis; what passes then is charged later only if the
//! late reply, or the fence (`lua/fence.lua`) after a reconnect, shows that the call did not charge
//! it and never will. A cluster has no fence, since a call has to keep to one hash slot: there, what was
//! in flight when a reply did not come counts as charged.
//!
//! Some modules are public for the tests that compare the scripts with their twins in Rust. Nothing in
//! the crate outside `store` names this module.

mod connect;
mod decide;
mod open;
mod shared;
mod supervise;
mod wire;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use self::connect::failure::{Failure, Reason};
use self::connect::hash_slot::{HashSlotGroup, group_by_hash_slot, hash_slot};
use self::decide::call_pipeline::CallPipeline;
use self::decide::call_queue::{AbandonedSlots, Ticket};
pub(super) use self::decide::lease_link::LeaseLink;
use self::decide::worker_link::WorkerLink;
pub(super) use self::open::{StoreShape, open, open_as};
pub use self::shared::RedisShared;
pub use self::supervise::census;
use self::supervise::fallback;
use self::wire::adjustment::{Adjustment, Op};
pub use self::wire::{adjustment, batch, check_args, lease_call, pair_choices, reply, script};
use super::{
    BucketId, Check, CheckOutcome, CheckSet, Choice, Decided, Decision, DeferredCheck, KeyRange,
    Store, StoreError,
};
use crate::clock::{self, Micros};
use crate::limit::{Policy, Verdict};

/// One worker's hold on the store.
#[derive(Debug)]
pub struct RedisStore {
    shared: Arc<RedisShared>,
    link: Rc<WorkerLink>,
}

impl RedisStore {
    /// Has to be called on the worker's runtime, where it stays.
    pub fn start(shared: Arc<RedisShared>) -> Self {
        let worker = shared.next_worker.fetch_add(1, Ordering::Relaxed);
        let link = WorkerLink::start(shared.clone(), worker);
        CallPipeline::start(link.clone());
        RedisStore { shared, link }
    }

    /// What takes units of buckets in advance, over this worker's connection.
    pub(super) fn lease_link(&self) -> LeaseLink {
        LeaseLink::new(self.link.clone())
    }

    /// How long a decision may take.
    pub(super) fn timeout(&self) -> Duration {
        self.shared.timeout
    }

    pub(super) fn is_degraded(&self) -> bool {
        self.shared.breaker.is_open()
    }

    /// Refuses a request that Redis is sure to refuse. The other limits show their last known states.
    fn refuse(&self, asked: CheckSet<'_>, outcomes: &mut [CheckOutcome]) -> Option<Decision> {
        let mut refusals = self.link.refusals.borrow_mut();
        if refusals.is_empty() {
            return None;
        }
        let at = clock::cached_now();
        let (mut now, mut previous) = (None, None);
        for (check, outcome) in asked.checks.iter().zip(&mut *outcomes) {
            (outcome.refused, outcome.withheld) = (None, false);
            let known = if check.enforced { refusals.refused(check, at) } else { None };
            // A pair is refused if both of it are known to refuse.
            if let Some((retry, refusal)) = known.filter(|_| !check.choice.is_skipped(previous)) {
                outcome.refused = Some(check.choice.earlier(previous, retry));
                outcome.skipped = false;
                outcome.state = refusal.state;
                outcome.now = refusal.now;
                if check.refuses(outcome) {
                    now.get_or_insert(refusal.now);
                }
            }
            previous = outcome.refused;
        }
        let now = now?;
        self.show_known(asked, outcomes, now);
        Some(Decision { now, admitted: false, alone: false })
    }

    /// Fills in the checks of a refused request that are not known to refuse, by their last known states.
    pub(super) fn show_known(
        &self,
        asked: CheckSet<'_>,
        outcomes: &mut [CheckOutcome],
        now: Micros,
    ) {
        let (mut previous, is_one_time) = (None, self.shared.clocks_agree());
        for (check, outcome) in asked.checks.iter().zip(outcomes) {
            if outcome.refused.is_none() {
                let now = if is_one_time { now } else { self.shared.now_for(asked, check) };
                let known = self.shared.local.state(check.bucket).unwrap_or_default();
                outcome.state = check.policy.clamp(known, now);
                outcome.now = now;
                outcome.skipped = check.choice.is_skipped(previous);
                // The bucket can only have become emptier since, except by time, and a request is told the
                // latest instant of all that refuse it.
                if !outcome.skipped
                    && let Verdict::Refuse(retry) =
                        check.policy.evaluate(outcome.state, now, check.cost)
                {
                    outcome.refused = Some(check.choice.earlier(previous, retry));
                }
            }
            previous = outcome.refused;
        }
    }

    /// Decides what needs no call to Redis: everything while the breaker is open, and what Redis is
    /// known to refuse.
    fn decide_here(&self, asked: CheckSet<'_>, outcomes: &mut [CheckOutcome]) -> Option<Decided> {
        // A request that waits is decided again, and may have been undecided before.
        outcomes.iter_mut().for_each(|outcome| outcome.decided = true);
        if self.shared.breaker.is_open() {
            self.link.refusals.borrow_mut().clear();
            let decided = fallback::decide_while_open(&self.shared, asked, outcomes);
            if decided.is_some() {
                return decided;
            }
        }
        self.refuse(asked, outcomes).map(Ok)
    }

    /// Decides all checks. If the caller is gone before that, `abandoned` hears whether Redis has
    /// admitted them.
    pub(super) async fn decide_or_tell(
        &self,
        asked: CheckSet<'_>,
        outcomes: &mut [CheckOutcome],
        abandoned: impl FnOnce(bool) + 'static,
    ) -> Decided {
        let mut decided = self.decide_here(asked, outcomes);
        if decided.is_none() && self.may_owe(asked) {
            // Boxed, since it is rare, and what every request waits with would be larger by it.
            decided = Box::pin(self.decide_unpaid(asked, outcomes)).await;
        }
        let decided = match decided {
            Some(decided) => decided,
            None => {
                let (ticket, abandoned) = (Some(self.link.queue.join(asked)), Some(abandoned));
                let mut pending = PendingDecision { link: &self.link, ticket, asked, abandoned };
                let times = match &pending.ticket {
                    Some(ticket) => ticket.wait().await,
                    None => return Err(StoreError::Unavailable),
                };
                let Some(ticket) = pending.ticket.take() else {
                    return Err(StoreError::Unavailable);
                };
                let decided = self.link.conclude(&ticket, times, asked, outcomes);
                self.link.queue.recycle(ticket);
                decided
            }
        };
        self.hold(asked, outcomes, &decided);
        decided
    }

    /// Counts the slots that an admitted request holds.
    fn hold(&self, asked: CheckSet<'_>, outcomes: &mut [CheckOutcome], decided: &Decided) {
        let Ok(Decision { admitted: true, alone, .. }) = *decided else { return };
        let taken = |(check, outcome): &(&Check<'_>, &mut CheckOutcome)| {
            check.policy.is_held() && check.spends && outcome.refused.is_none() && outcome.decided
        };
        for (check, outcome) in asked.checks.iter().zip(outcomes).filter(taken) {
            let name = &asked.key(check).text();
            if alone {
                // It has been counted here by deciding, and Redis does not know of it.
                self.link.held_slots.take_alone(check.bucket, name, check.policy, check.cost);
            } else {
                self.link.held_slots.take(check.bucket, name, check.policy, check.cost);
                outcome.shared = self.shared.local.charge_one_after(check).shared;
            }
        }
    }
}

fn adjustment_of(charge: &DeferredCheck) -> Adjustment<'_> {
    let (name, policy, cost) = (charge.key(), charge.policy(), charge.cost);
    Adjustment { op: Op::ChargeAfter, name, policy, cost }
}

/// A request whose decision is under way. If its client leaves before that, Redis may give it slots all
/// the same: they are reported again once the call is done. And what one hash slot charges while
/// another refuses is refunded, also if the client has left.
struct PendingDecision<'a, F: FnOnce(bool) + 'static> {
    link: &'a Rc<WorkerLink>,
    ticket: Option<Ticket>,
    asked: CheckSet<'a>,
    /// Hears whether the request was admitted, if its client has left.
    abandoned: Option<F>,
}

impl<F: FnOnce(bool) + 'static> Drop for PendingDecision<'_, F> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        let slots = held(self.asked.checks).map(|check| AbandonedSlots {
            bucket: check.bucket,
            name: self.asked.key(check).to_vec(),
            policy: *check.policy,
        });
        if let Err(slots) = ticket.abandon(slots.collect()) {
            for it in slots {
                self.link.held_slots.mark_dirty(it.bucket, &it.name, &it.policy);
            }
        }
        let (link, keys) = (self.link.clone(), self.asked.keys.written());
        let left: Vec<AbandonedCheck> = self.asked.checks.iter().map(AbandonedCheck::of).collect();
        let abandoned = self.abandoned.take();
        tokio::task::spawn_local(async move {
            let times = ticket.wait().await;
            let checks: Vec<Check<'_>> = left.iter().map(AbandonedCheck::check).collect();
            let mut outcomes = vec![CheckOutcome::default(); checks.len()];
            let asked = CheckSet { checks: &checks, keys: keys.view() };
            let admitted = link.conclude_abandoned(&ticket, times, asked, &mut outcomes);
            link.queue.recycle(ticket);
            abandoned.into_iter().for_each(|tell| tell(admitted));
        });
    }
}

/// A check whose request has left.
struct AbandonedCheck {
    policy: Policy,
    limit_prefix: u64,
    bucket: BucketId,
    key: KeyRange,
    cost: u64,
    spends: bool,
    enforced: bool,
    together: bool,
    choice: Choice,
}

impl AbandonedCheck {
    fn of(check: &Check<'_>) -> Self {
        AbandonedCheck {
            policy: *check.policy,
            limit_prefix: check.limit_prefix,
            bucket: check.bucket,
            key: check.key,
            cost: check.cost,
            spends: check.spends,
            enforced: check.enforced,
            together: check.together,
            choice: check.choice,
        }
    }

    fn check(&self) -> Check<'_> {
        Check {
            key: self.key,
            spends: self.spends,
            enforced: self.enforced,
            together: self.together,
            choice: self.choice,
            ..Check::new(&self.policy, self.limit_prefix, self.bucket, self.cost)
        }
    }
}

/// The checks that ask for slots.
fn held<'a, 'c>(checks: &'a [Check<'c>]) -> impl Iterator<Item = &'a Check<'c>> {
    checks.iter().filter(|check| check.policy.is_held() && check.spends)
}

impl WorkerLink {
    /// Redis may have other counts of these slots than are held.
    fn mark_dirty(&self, asked: CheckSet<'_>) {
        for check in held(asked.checks) {
            self.held_slots.mark_dirty(check.bucket, &asked.key(check).text(), check.policy);
        }
    }
}

impl Store for RedisStore {
    fn try_decide(&self, asked: CheckSet<'_>, outcomes: &mut [CheckOutcome]) -> Option<Decided> {
        let decided = self.decide_here(asked, outcomes)?;
        self.hold(asked, outcomes, &decided);
        Some(decided)
    }

    fn decide(
        &self,
        asked: CheckSet<'_>,
        outcomes: &mut [CheckOutcome],
    ) -> impl Future<Output = Decided> {
        self.decide_or_tell(asked, outcomes, |_| ())
    }

    /// Each cost is charged at most once: if it cannot be known whether Redis has done so, it is
    /// taken to have.
    async fn charge_after(&self, charges: &[DeferredCheck]) {
        let shared = &*self.shared;
        let cluster = shared.is_cluster();
        let slot_of = |it: &&DeferredCheck| if cluster { hash_slot(it.key()) } else { 0 };
        let deadline = clock::now() + shared.timeout;
        for HashSlotGroup { slot, items } in group_by_hash_slot(charges, slot_of) {
            let adjustments: Vec<_> = items.iter().map(|charge| adjustment_of(charge)).collect();
            let charged = if shared.breaker.is_open() {
                Err(Failure::not_asked())
            } else {
                self.link.charge_after(slot, &adjustments, deadline).await
            };
            match charged {
                Ok(()) => items.iter().for_each(|charge| {
                    shared.charge_known(&charge.check(), slot);
                }),
                Err(failure) => {
                    if failure.reason != Reason::NotAsked {
                        shared.breaker.count(&failure);
                    }
                    items
                        .iter()
                        .for_each(|it| fallback::charge_after(shared, it, !failure.is_silence()));
                }
            }
        }
    }

    fn try_charge_after(&self, _charges: &[DeferredCheck]) -> bool {
        false
    }

    fn charge_detached(&self, charges: &[DeferredCheck]) {
        charges.iter().for_each(|charge| fallback::charge_after(&self.shared, charge, true));
    }

    fn release(&self, slots: &[DeferredCheck]) {
        for held in slots {
            let check = held.check();
            self.shared.local.refund(&check, held.outcome());
            let held_slots = &self.link.held_slots;
            held_slots.release(check.bucket, held.key(), check.policy, check.cost);
        }
    }

    async fn flush(&self) {
        while !self.link.held_slots.is_synced() && !self.shared.breaker.is_open() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

#[cfg(test)]
mod tests;
