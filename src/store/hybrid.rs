//! The store for hot keys: decided in memory, from leases that were taken out of the buckets in Redis
//! beforehand. Everything else is decided by Redis, as with `kind = "redis"`.
//!
//! A key that is asked for often gets a lease: units of its bucket, charged in Redis already, that this
//! worker may spend until the lease ends ([`lease`]). [`lease_table`] has all of them, [`demand`] how
//! much is asked for, and [`renewal`] sends what has to be asked of Redis, for all keys of a worker
//! together. The other half, and why no interval ever admits more than `burst + rate × t`, is in
//! [`limit::lease`](crate::limit::lease).
//!
//! A request may have checks of both kinds. What its leases give is held until Redis has decided the
//! rest, and comes back if that is a refusal: all or nothing, as everywhere.

mod demand;
mod hot_keys;
pub mod lease;
pub mod lease_table;
mod open;
mod renewal;
mod split_checks;
pub mod timing;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use self::lease::{LeaseView, Spend};
use self::lease_table::{Attempt, LeaseCheck, LeaseHold, LeaseTable};
pub(super) use self::open::open;
use self::split_checks::{CheckMask, SplitChecks, checks_in, indexed, outcomes_of, put_outcomes};
use self::timing::LeaseTiming;
use super::redis::{LeaseLink, RedisShared, RedisStore};
use super::{Check, CheckOutcome, CheckSet, Choice, Decided, Decision, DeferredCheck, Store};
use crate::clock::{self, Clock, Micros};

/// One worker's hold on the store.
#[derive(Debug)]
pub struct HybridStore {
    redis: RedisStore,
    leases: Rc<Leases>,
}

/// What a worker's requests share with the task that renews its leases.
#[derive(Debug)]
struct Leases {
    table: RefCell<LeaseTable>,
    /// The clock of this process.
    clock: Clock,
    /// Calls for leases that are on their way.
    calls: Cell<usize>,
    /// Something is to be asked at once.
    wanted: Notify,
    /// Something was given, or refused.
    renewed: Notify,
}

/// As many checks as one number has bits: a request with more is decided by Redis.
const MOST_CHECKS: usize = 64;

/// A request waits for a lease for this part of `store.timeout`, and for a decision after that.
const LEASE_PATIENCE: u32 = 4;

/// What the leases say of a request.
enum LeaseVerdict {
    /// All of it is spent.
    Admitted { now: Micros },
    /// A bucket is known to be empty.
    Refused { now: Micros },
    /// More is being asked for, for one of its buckets.
    Awaited,
    /// Redis decides some of the checks; others are spent.
    Rest(SplitChecks),
}

impl HybridStore {
    /// Has to be called on the worker's runtime, where it stays.
    fn start(shared: &Arc<RedisShared>, timing: LeaseTiming, metrics: open::LeaseMetrics) -> Self {
        let redis = RedisStore::start(shared.clone());
        let leases = Rc::new(Leases {
            table: RefCell::new(LeaseTable::new(timing, shared.keys_per_worker())),
            clock: Clock::system(),
            calls: Cell::new(0),
            wanted: Notify::new(),
            renewed: Notify::new(),
        });
        renewal::start(leases.clone(), redis.lease_link(), timing, metrics);
        HybridStore { redis, leases }
    }

    /// Spends what the leases have. What is spent stays so unless it is given back.
    #[inline]
    fn spend(
        &self,
        asked: CheckSet<'_>,
        outcomes: &mut [CheckOutcome],
        attempt: Attempt,
    ) -> LeaseVerdict {
        let table = &mut *self.leases.table.borrow_mut();
        let now = self.leases.clock.now();
        let (mut rest, mut spent) = (CheckMask::default(), CheckMask::default());
        let mut verdict = None;
        // A request that waits is decided again.
        for it in &mut *outcomes {
            (it.refused, it.withheld, it.decided) = (None, false, true);
        }
        for (index, (check, outcome)) in asked.checks.iter().zip(&mut *outcomes).enumerate() {
            if !is_leasable(check) {
                rest.insert(index);
                continue;
            }
            match table.spend(lease_check(check), now, attempt) {
                Spend::Spent(view) => {
                    spent.insert(index);
                    write(outcome, view);
                }
                Spend::Refused(retry, view) => {
                    write(outcome, view);
                    outcome.refused = Some(retry);
                    if check.enforced {
                        verdict = Some(LeaseVerdict::Refused { now: view.now });
                        break;
                    }
                }
                Spend::Awaited => {
                    verdict = Some(LeaseVerdict::Awaited);
                    break;
                }
                Spend::Unleased => {
                    if attempt == Attempt::First {
                        table.count_unleased(lease_check(check), || asked.key(check).to_vec(), now);
                    }
                    rest.insert(index);
                }
            }
        }
        if table.take_urgent() {
            self.leases.wanted.notify_one();
        }
        match verdict {
            Some(verdict) => {
                let taken = indexed(asked.checks, spent);
                taken.for_each(|check| table.unspend(lease_check(check)));
                verdict
            }
            None if rest == CheckMask::default() => {
                LeaseVerdict::Admitted { now: outcomes.first().map_or(now, |it| it.now) }
            }
            None => LeaseVerdict::Rest(SplitChecks { for_redis: rest, spent }),
        }
    }

    /// What the leases alone decide.
    #[inline]
    fn decided(
        &self,
        verdict: &LeaseVerdict,
        asked: CheckSet<'_>,
        outcomes: &mut [CheckOutcome],
    ) -> Option<Decision> {
        match *verdict {
            LeaseVerdict::Admitted { now } => Some(Decision { now, admitted: true, alone: false }),
            LeaseVerdict::Refused { now } => {
                self.redis.show_known(asked, outcomes, now);
                Some(Decision { now, admitted: false, alone: false })
            }
            LeaseVerdict::Awaited | LeaseVerdict::Rest(_) => None,
        }
    }

    /// A key that is refused often is asked for often, too.
    fn count_unleased(&self, asked: CheckSet<'_>, rest: CheckMask) {
        let (table, now) = (&mut *self.leases.table.borrow_mut(), self.leases.clock.now());
        for check in indexed(asked.checks, rest).filter(|check| is_leasable(check)) {
            table.count_unleased(lease_check(check), || asked.key(check).to_vec(), now);
        }
        if table.take_urgent() {
            self.leases.wanted.notify_one();
        }
    }

    /// What the leases gave to a request that Redis has not decided yet.
    fn hold(&self, asked: CheckSet<'_>, spent: CheckMask) -> PendingHold {
        let mut hold = LeaseHold::default();
        let (mut table, now) = (self.leases.table.borrow_mut(), self.leases.clock.now());
        for check in indexed(asked.checks, spent) {
            table.hold(lease_check(check), &mut hold, now);
        }
        PendingHold { leases: self.leases.clone(), link: self.redis.lease_link(), hold }
    }

    /// A request was refused: what its leases gave is there again.
    fn show_given_back(
        &self,
        asked: CheckSet<'_>,
        outcomes: &mut [CheckOutcome],
        spent: CheckMask,
    ) {
        let (table, now) = (self.leases.table.borrow(), self.leases.clock.now());
        for (index, check) in asked.checks.iter().enumerate() {
            if spent.has(index)
                && let Some(view) = table.view(check.bucket, now)
            {
                write(&mut outcomes[index], view);
            }
        }
    }

    /// What Redis has told of buckets beside their leases is newer than what those have heard.
    fn hear(
        &self,
        asked: CheckSet<'_>,
        outcomes: &[CheckOutcome],
        for_redis: CheckMask,
        decided: &Decided,
    ) {
        let Ok(Decision { admitted: true, alone: false, .. }) = decided else { return };
        let (mut table, now) = (self.leases.table.borrow_mut(), self.leases.clock.now());
        for (index, (check, outcome)) in asked.checks.iter().zip(outcomes).enumerate() {
            if for_redis.has(index) && is_leasable(check) {
                let told = LeaseView { state: outcome.state, now: outcome.now };
                table.hear(check.bucket, told, now);
            }
        }
    }

    /// The request has waited for a lease for long enough.
    fn leave_to_redis(&self, asked: CheckSet<'_>) {
        let (mut table, now) = (self.leases.table.borrow_mut(), self.leases.clock.now());
        for check in asked.checks.iter().filter(|check| is_leasable(check)) {
            table.leave_to_redis(lease_check(check), now);
        }
    }

    /// Waits until more was given, or not, for as long as a decision may wait.
    async fn renewed(&self, deadline: Instant) {
        let _ = timeout_at(deadline, self.leases.renewed.notified()).await;
    }
}

/// Whether a lease may serve a check: it spends, stands alone, and nobody waits for it.
#[inline]
fn is_leasable(check: &Check<'_>) -> bool {
    let stands_alone = check.choice == Choice::Alone && !check.is_bound();
    check.spends && check.may_lease && stands_alone && check.policy.is_leasable()
}

#[inline]
fn lease_check<'c>(check: &Check<'c>) -> LeaseCheck<'c> {
    LeaseCheck { bucket: check.bucket, policy: check.policy, cost: check.cost }
}

#[inline]
fn write(outcome: &mut CheckOutcome, view: LeaseView) {
    let LeaseView { state, now } = view;
    *outcome = CheckOutcome { state, now, ..CheckOutcome::default() };
}

/// What leases gave to a request, until Redis has decided the rest of it.
struct PendingHold {
    leases: Rc<Leases>,
    link: LeaseLink,
    hold: LeaseHold,
}

impl PendingHold {
    fn conclude(&self, admitted: bool) {
        let now = self.leases.clock.now();
        let stranded = self.leases.table.borrow_mut().conclude(&self.hold, admitted, now);
        for it in stranded {
            self.link.refund(it);
        }
    }
}

impl Store for HybridStore {
    #[inline]
    fn try_decide(&self, asked: CheckSet<'_>, outcomes: &mut [CheckOutcome]) -> Option<Decided> {
        if asked.checks.len() > MOST_CHECKS {
            return self.redis.try_decide(asked, outcomes);
        }
        let verdict = self.spend(asked, outcomes, Attempt::Immediate);
        if let Some(decision) = self.decided(&verdict, asked, outcomes) {
            return Some(Ok(decision));
        }
        let LeaseVerdict::Rest(SplitChecks { for_redis, spent }) = verdict else { return None };
        let decided = if for_redis.is_all(asked.checks.len()) {
            self.redis.try_decide(asked, outcomes)
        } else {
            let checks = checks_in(asked, for_redis);
            let mut others = outcomes_of(outcomes, for_redis);
            let set = CheckSet { checks: &checks, ..asked };
            let decided = self.redis.try_decide(set, &mut others);
            put_outcomes(outcomes, for_redis, &others);
            decided
        };
        if decided.is_some() {
            self.count_unleased(asked, for_redis);
        }
        if !decided.as_ref().is_some_and(|it| it.as_ref().is_ok_and(|it| it.admitted)) {
            let table = &mut *self.leases.table.borrow_mut();
            indexed(asked.checks, spent).for_each(|check| table.unspend(lease_check(check)));
        }
        if let Some(Ok(Decision { admitted: false, .. })) = decided {
            self.show_given_back(asked, outcomes, spent);
        }
        decided
    }

    async fn decide(&self, asked: CheckSet<'_>, outcomes: &mut [CheckOutcome]) -> Decided {
        if asked.checks.len() > MOST_CHECKS {
            return self.redis.decide(asked, outcomes).await;
        }
        let deadline = clock::now() + self.redis.timeout() / LEASE_PATIENCE;
        let mut attempt = Attempt::First;
        let SplitChecks { for_redis, spent } = loop {
            let verdict = self.spend(asked, outcomes, attempt);
            attempt = Attempt::Again;
            if let Some(decision) = self.decided(&verdict, asked, outcomes) {
                return Ok(decision);
            }
            match verdict {
                LeaseVerdict::Rest(split) => break split,
                _ if self.redis.is_degraded() || clock::cached_now() >= deadline => {
                    self.leave_to_redis(asked);
                }
                _ => self.renewed(deadline).await,
            }
        };
        if for_redis.is_all(asked.checks.len()) {
            let decided = self.redis.decide(asked, outcomes).await;
            self.hear(asked, outcomes, for_redis, &decided);
            return decided;
        }
        let checks = checks_in(asked, for_redis);
        let mut others = outcomes_of(outcomes, for_redis);
        let set = CheckSet { checks: &checks, ..asked };
        let hold = Rc::new(self.hold(asked, spent));
        let abandoned = hold.clone();
        let tell = move |admitted| abandoned.conclude(admitted);
        let decided = self.redis.decide_or_tell(set, &mut others, tell).await;
        put_outcomes(outcomes, for_redis, &others);
        hold.conclude(decided.as_ref().is_ok_and(|it| it.admitted));
        self.hear(asked, outcomes, for_redis, &decided);
        if let Ok(Decision { admitted: false, .. }) = decided {
            self.show_given_back(asked, outcomes, spent);
        }
        decided
    }

    async fn charge_after(&self, charges: &[DeferredCheck]) {
        self.redis.charge_after(charges).await;
    }

    fn try_charge_after(&self, charges: &[DeferredCheck]) -> bool {
        self.redis.try_charge_after(charges)
    }

    fn charge_detached(&self, charges: &[DeferredCheck]) {
        self.redis.charge_detached(charges);
    }

    fn release(&self, slots: &[DeferredCheck]) {
        self.redis.release(slots);
    }

    async fn flush(&self) {
        tokio::join!(renewal::return_all(&self.leases, &self.redis), self.redis.flush());
    }
}
