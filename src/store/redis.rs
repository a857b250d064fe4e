//! The shared store: buckets in Redis or Valkey, decided by Lua scripts.
//!
//! A request's checks are decided by one call of `lua/decide.lua`, which it shares with the other
//! requests of its worker ([`queue`], [`link`]). Whoever is known to be refused is refused here
//! ([`refusals`]). When Redis fails, the breaker opens ([`health`]) and each limit is served by
//! its `on_error`, until the [`keeper`] has brought Redis back.
//!
//! **How often a request is charged.** Once, if it passes. Calls are numbered. When a reply is late
//! or lost, its requests are decided without Redis; what passes then is charged later only if the
//! late reply, or the fence (`lua/fence.lua`) after a reconnect, shows that the call did not charge
//! it and never will. A cluster has no fence, since a call has to keep to one slot: there, what was
//! in flight when a reply did not come counts as charged.

pub mod adjustment;
mod backoff;
pub mod batch;
pub mod census;
mod cluster_view;
mod dialer;
pub mod failure;
pub mod health;
mod holdings;
pub mod keeper;
mod known_nodes;
mod lane;
mod lateness;
mod ledger;
mod link;
pub mod msgpack;
pub mod name;
mod nodes;
mod outcome;
mod payments;
mod probe;
mod queue;
mod refunds;
mod refusals;
pub mod reply;
mod reply_order;
mod resync;
mod rulings;
pub mod script;
mod sentinel_watch;
mod sentinels;
mod server_clock;
mod session;
mod shared;
mod slot;
mod stand_in;
pub mod terms;
mod trial;
mod verdicts;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use smallvec::SmallVec;

use self::adjustment::{Adjustment, Op};
use self::failure::{Failure, Reason};
use self::lane::Lane;
use self::link::Link;
use self::queue::{Abandoned, Ticket};
pub use self::shared::Shared;
use self::slot::slot;
use super::{BucketId, Check, Decision, Lasting, Name, Names, Store, StoreError};
use crate::clock;
use crate::limit::{Policy, Verdict};

/// One worker's hold on the store.
#[derive(Debug)]
pub struct RedisStore {
    shared: Arc<Shared>,
    link: Rc<Link>,
}

impl RedisStore {
    /// Has to be called on the worker's runtime, where it stays.
    #[must_use]
    pub fn start(shared: Arc<Shared>) -> Self {
        let worker = shared.next_worker.fetch_add(1, Ordering::Relaxed);
        let link = Link::start(shared.clone(), worker);
        Lane::start(link.clone());
        RedisStore { shared, link }
    }

    /// Refuses a request that Redis is sure to refuse. The other limits are told as they were
    /// last heard of.
    fn refuse(&self, checks: &mut [Check<'_>]) -> Option<Decision> {
        let mut refusals = self.link.refusals.borrow_mut();
        if refusals.is_empty() {
            return None;
        }
        let at = clock::recent();
        let mut now = None;
        for check in checks.iter_mut() {
            check.refused = None;
            if !check.enforced {
                continue;
            }
            if let Some((retry, refusal)) = refusals.refused(check, at) {
                check.refused = Some(retry);
                check.state = refusal.state;
                check.now = refusal.now;
                now.get_or_insert(refusal.now);
            }
        }
        let now = now?;
        for check in checks.iter_mut().filter(|check| check.refused.is_none()) {
            let known = self.shared.local.look(check.bucket).unwrap_or_default();
            check.state = check.policy.settle(known, now);
            check.now = now;
            if !check.enforced
                && let Verdict::Refuse(retry) = check.policy.evaluate(check.state, now, check.cost)
            {
                check.refused = Some(retry);
            }
        }
        Some(Decision { now, admitted: false, alone: false })
    }

    async fn decide_all(
        &self,
        checks: &mut [Check<'_>],
        names: &Names,
    ) -> Result<Decision, StoreError> {
        // One that has waited may have been asked before, when nobody could tell.
        checks.iter_mut().for_each(|check| check.decided = true);
        if self.shared.health.is_open() {
            self.link.refusals.borrow_mut().clear();
            if let Some(decided) = stand_in::decide_while_open(&self.shared, checks, names) {
                return decided;
            }
        }
        if let Some(decision) = self.refuse(checks) {
            return Ok(decision);
        }
        let ticket = Some(self.link.queue.join(checks, names));
        let mut on_its_way = OnItsWay { link: &self.link, ticket, checks, names };
        let done = match &on_its_way.ticket {
            Some(ticket) => ticket.wait().await,
            None => return Err(StoreError::Unavailable),
        };
        let Some(ticket) = on_its_way.ticket.take() else { return Err(StoreError::Unavailable) };
        let decided = self.link.conclude(&ticket, done, on_its_way.checks, names);
        drop(on_its_way);
        self.link.queue.recycle(ticket);
        decided
    }

    /// Counts the places that an admitted request holds.
    fn hold(&self, checks: &mut [Check<'_>], names: &Names, alone: bool) {
        let taken = |check: &&mut Check<'_>| {
            check.policy.is_held() && check.spends && check.refused.is_none() && check.decided
        };
        for check in checks.iter_mut().filter(taken) {
            let name = names.get(check.name);
            if alone {
                // It has been counted here by deciding, and Redis does not know of it.
                self.link.holdings.take_alone(check.bucket, name, check.policy, check.cost);
            } else {
                self.link.holdings.take(check.bucket, name, check.policy, check.cost);
                check.shared = self.shared.local.owe_one(*check).shared;
            }
        }
    }
}

fn owed(charge: &Lasting) -> Adjustment<'_> {
    let (name, policy, cost) = (charge.name(), charge.policy(), charge.cost);
    Adjustment { op: Op::Owe, name, policy, cost }
}

/// What a request asks for whose decision is on its way. If it leaves before that has come, Redis may
/// give it places all the same: they are told again once that is over. And what one slot takes
/// while another refuses is given back, whatever became of the client.
struct OnItsWay<'a, 'c> {
    link: &'a Rc<Link>,
    ticket: Option<Ticket>,
    checks: &'a mut [Check<'c>],
    names: &'a Names,
}

impl Drop for OnItsWay<'_, '_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        let places = held(self.checks).map(|check| Abandoned {
            bucket: check.bucket,
            name: self.names.get(check.name).to_vec(),
            policy: *check.policy,
        });
        if let Err(places) = ticket.abandon(places.collect()) {
            for it in places {
                self.link.holdings.doubt(it.bucket, &it.name, &it.policy);
            }
        }
        let (link, names) = (self.link.clone(), self.names.clone());
        let left: Vec<Left> = self.checks.iter().map(Left::of).collect();
        tokio::task::spawn_local(async move {
            let done = ticket.wait().await;
            let mut checks: Vec<Check<'_>> = left.iter().map(Left::check).collect();
            link.conclude_abandoned(&ticket, done, &mut checks, &names);
            link.queue.recycle(ticket);
        });
    }
}

/// A check whose request has left.
struct Left {
    policy: Policy,
    limit: u64,
    bucket: BucketId,
    name: Name,
    cost: u64,
    spends: bool,
    enforced: bool,
}

impl Left {
    fn of(check: &Check<'_>) -> Self {
        let Check { policy, limit, bucket, name, cost, spends, enforced, .. } = *check;
        Left { policy: *policy, limit, bucket, name, cost, spends, enforced }
    }

    fn check(&self) -> Check<'_> {
        let Left { ref policy, limit, bucket, name, cost, spends, enforced } = *self;
        Check { name, spends, enforced, ..Check::new(policy, limit, bucket, cost) }
    }
}

/// The checks that ask for places.
fn held<'a, 'c>(checks: &'a [Check<'c>]) -> impl Iterator<Item = &'a Check<'c>> {
    checks.iter().filter(|check| check.policy.is_held() && check.spends)
}

impl Link {
    /// Redis may have other counts of these places than are held.
    fn doubt(&self, checks: &[Check<'_>], names: &Names) {
        for check in held(checks) {
            self.holdings.doubt(check.bucket, names.get(check.name), check.policy);
        }
    }
}

impl Store for RedisStore {
    async fn decide(
        &self,
        checks: &mut [Check<'_>],
        names: &Names,
    ) -> Result<Decision, StoreError> {
        let decided = self.decide_all(checks, names).await;
        if decided.as_ref().is_ok_and(|it| it.admitted) {
            self.hold(checks, names, decided.as_ref().is_ok_and(|it| it.alone));
        }
        decided
    }

    /// Each cost is charged at most once: if it cannot be known whether Redis has done so, it is
    /// taken to have.
    async fn owe(&self, charges: &[Lasting]) {
        let shared = &*self.shared;
        let cluster = shared.is_cluster();
        let place = |charge: &Lasting| if cluster { slot(charge.name()) } else { 0 };
        let mut slots: SmallVec<[u16; 4]> = charges.iter().map(place).collect();
        slots.sort_unstable();
        slots.dedup();
        let deadline = clock::look() + shared.timeout;
        for slot in slots {
            let here = || charges.iter().filter(|charge| place(charge) == slot);
            let adjustments: Vec<_> = here().map(owed).collect();
            let charged = if shared.health.is_open() {
                Err(Failure::not_asked())
            } else {
                self.link.owe(slot, &adjustments, deadline).await
            };
            match charged {
                Ok(()) => here().for_each(|charge| {
                    shared.local.owe_one(charge.check());
                }),
                Err(failure) => {
                    if failure.reason != Reason::NotAsked {
                        shared.health.count(&failure);
                    }
                    here().for_each(|it| stand_in::owe(shared, it, !failure.is_silence()));
                }
            }
        }
    }

    fn owe_unheard(&self, charges: &[Lasting]) {
        charges.iter().for_each(|charge| stand_in::owe(&self.shared, charge, true));
    }

    fn release(&self, places: &[Lasting]) {
        for place in places {
            let check = place.check();
            self.shared.local.give_back(&check, check.now);
            let holdings = &self.link.holdings;
            holdings.give_back(check.bucket, place.name(), check.policy, check.cost);
        }
    }

    async fn settle(&self) {
        while !self.link.holdings.is_settled() && !self.shared.health.is_open() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
