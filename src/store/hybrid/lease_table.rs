//! The leases of one worker: what requests spend, which keys get one, and what is asked of Redis next.
//!
//! Pure: it is told the time and hands out what is to be sent, so that the simulation in
//! `tests/model/lease_simulation.rs` runs this code and no copy of it.

use std::rc::Rc;

use smallvec::SmallVec;

use super::demand::{Demand, is_worth_leasing};
use super::hot_keys::HotKeys;
use super::lease::{CallSpan, Lease, LeaseView, Phase, Spend};
use super::timing::LeaseTiming;
use crate::clock::Micros;
use crate::limit::Policy;
use crate::limit::lease::{LeaseReply, LeaseRequest};
use crate::store::redis::lease_call::LeaseCall;
use crate::store::{BucketId, BucketMap};

#[derive(Debug)]
pub struct LeaseTable {
    timing: LeaseTiming,
    hot: HotKeys,
    leases: BucketMap<Lease>,
    /// Those in [`Phase::Due`].
    due: Vec<BucketId>,
    /// Whether a request waits for one of them.
    urgent: bool,
    most: usize,
    last_id: u64,
    /// How often the store became another one.
    era: u64,
}

/// A bucket and what one request asks of it.
#[derive(Debug, Clone, Copy)]
pub struct LeaseCheck<'a> {
    pub bucket: BucketId,
    pub policy: &'a Policy,
    pub cost: u64,
}

/// Which attempt at a request this is: each request counts once in the demand for its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// If it cannot be decided without waiting, another one follows.
    Immediate,
    First,
    /// After waiting.
    Again,
}

impl Attempt {
    #[inline]
    fn counts(self, spend: Spend) -> bool {
        match self {
            Attempt::Immediate => !matches!(spend, Spend::Awaited | Spend::Unleased),
            Attempt::First => true,
            Attempt::Again => false,
        }
    }
}

/// What is to be asked of Redis for one bucket.
#[derive(Debug)]
pub struct LeaseAsk {
    pub bucket: BucketId,
    id: u64,
    pub key: Rc<[u8]>,
    /// See [`LeaseTable::orphan_all`].
    era: u64,
    pub policy: Policy,
    pub request: LeaseRequest,
}

impl LeaseAsk {
    /// The same as it is sent.
    pub fn call(&self) -> LeaseCall<'_> {
        LeaseCall { name: &self.key, policy: &self.policy, request: &self.request }
    }
}

/// Costs that were spent for a request whose other limits are not decided yet.
#[derive(Debug, Default)]
pub struct LeaseHold(SmallVec<[HeldCost; 4]>);

#[derive(Debug, Clone)]
struct HeldCost {
    bucket: BucketId,
    key: Rc<[u8]>,
    policy: Policy,
    id: u64,
    losses: u64,
    cost: u64,
    /// When it was spent, by the clock of Redis.
    at: Micros,
}

/// A cost that can no longer come back to the lease that it was spent from.
#[derive(Debug)]
pub struct StrandedCost {
    pub key: Rc<[u8]>,
    pub policy: Policy,
    pub cost: u64,
    /// When it was spent, by the clock of Redis.
    pub charged_at: Micros,
}

/// For metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeaseStats {
    /// Leases with units to spend.
    pub active: u64,
    /// Keys near their limit: refused until they are asked for again.
    pub dry: u64,
    pub tokens: u64,
}

/// Hot keys of one worker. More than these are decided by Redis.
const MOST_LEASES: usize = 16_384;

impl LeaseTable {
    pub fn new(timing: LeaseTiming, most: usize) -> Self {
        LeaseTable {
            timing,
            hot: HotKeys::new(timing.sync),
            leases: BucketMap::default(),
            due: Vec::new(),
            urgent: false,
            most: most.min(MOST_LEASES),
            last_id: 0,
            era: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    /// Spends a cost from the bucket's lease, if it has one.
    #[inline]
    pub fn spend(&mut self, check: LeaseCheck<'_>, now: Micros, attempt: Attempt) -> Spend {
        let Some(lease) = self.leases.get_mut(&check.bucket) else { return Spend::Unleased };
        // What no bucket holds is no demand, and Redis says so.
        if check.cost > check.policy.quota() {
            return Spend::Unleased;
        }
        if lease.policy != *check.policy {
            // The units go back by the numbers that they were taken by.
            lease.is_outdated = true;
            self.mark_due(check.bucket, false);
            return Spend::Unleased;
        }
        let spend = lease.spend(check.cost, now);
        if attempt.counts(spend) {
            lease.demand.add(check.cost);
        }
        match spend {
            Spend::Spent(_) if lease.is_low(now) => self.mark_due(check.bucket, false),
            Spend::Awaited => {
                let is_new = lease.is_new();
                self.mark_due(check.bucket, true);
                if is_new {
                    return Spend::Unleased;
                }
            }
            _ => {}
        }
        spend
    }

    /// Redis has decided a check of a bucket, and told of it.
    pub fn hear(&mut self, bucket: BucketId, told: LeaseView, now: Micros) {
        if let Some(lease) = self.leases.get_mut(&bucket).filter(|lease| !lease.is_new()) {
            lease.hear(told, now);
        }
    }

    /// What is left of a bucket, as far as is known.
    pub fn view(&self, bucket: BucketId, now: Micros) -> Option<LeaseView> {
        self.leases.get(&bucket).map(|lease| lease.view(now))
    }

    /// Gives back what was spent a moment ago: the request is decided once more, or refused.
    pub fn unspend(&mut self, check: LeaseCheck<'_>) {
        if let Some(lease) = self.leases.get_mut(&check.bucket) {
            lease.unspend(check.cost);
        }
    }

    /// A cost that was spent may have to come back.
    pub fn hold(&mut self, check: LeaseCheck<'_>, hold: &mut LeaseHold, now: Micros) {
        if let Some(lease) = self.leases.get_mut(&check.bucket) {
            lease.hold(check.cost);
            let (bucket, id, losses) = (check.bucket, lease.id, lease.losses);
            let (key, policy) = (lease.key.clone(), lease.policy);
            let (cost, at) = (check.cost, lease.redis_time(now));
            hold.0.push(HeldCost { bucket, key, policy, id, losses, cost, at });
        }
    }

    /// A request has been decided. What cannot come back here, though it was not admitted, is to be
    /// refunded by Redis.
    #[must_use]
    pub fn conclude(
        &mut self,
        hold: &LeaseHold,
        admitted: bool,
        now: Micros,
    ) -> SmallVec<[StrandedCost; 1]> {
        let mut stranded = SmallVec::new();
        for HeldCost { bucket, key, policy, id, losses, cost, at } in hold.0.iter().cloned() {
            let is_it = |it: &&mut Lease| it.id == id && it.losses == losses;
            let mut comes_back = false;
            if let Some(lease) = self.leases.get_mut(&bucket).filter(is_it) {
                comes_back = lease.is_live(now);
                lease.conclude(cost, admitted || !comes_back);
            }
            if !admitted && !comes_back {
                stranded.push(StrandedCost { key, policy, cost, charged_at: at });
            }
        }
        stranded
    }

    /// A bucket without a lease is decided by Redis. If that happens often it gets one.
    pub fn count_unleased(
        &mut self,
        check: LeaseCheck<'_>,
        key: impl FnOnce() -> Vec<u8>,
        now: Micros,
    ) {
        let Some(requests) = self.hot.count(check.bucket, now) else { return };
        let is_full = self.leases.len() >= self.most;
        let has_one = self.leases.contains_key(&check.bucket);
        if is_full || has_one || !is_worth_leasing(check.policy, self.timing) {
            return;
        }
        self.last_id += 1;
        let demand = Demand::of_new(requests, check.cost);
        self.leases.insert(check.bucket, Lease::new(self.last_id, check.policy, key(), demand));
        self.mark_due(check.bucket, true);
    }

    fn mark_due(&mut self, bucket: BucketId, urgent: bool) {
        let Some(lease) = self.leases.get_mut(&bucket) else { return };
        if lease.phase == Phase::Quiet {
            lease.phase = Phase::Due;
            self.due.push(bucket);
        }
        self.urgent |= urgent && lease.phase == Phase::Due;
    }

    /// Whether something is to be asked that a request waits for. Says so once.
    pub fn take_urgent(&mut self) -> bool {
        std::mem::take(&mut self.urgent)
    }

    /// Follows demand: to be called every tick.
    pub fn tick(&mut self, now: Micros) {
        let LeaseTable { timing, leases, due, .. } = self;
        leases.retain(|bucket, lease| {
            lease.demand.tick();
            let is_unwanted = lease.is_unwanted();
            if is_unwanted && lease.is_over(now) {
                return false;
            }
            let is_due = is_unwanted || lease.ends_soon(now, *timing) || lease.is_too_much();
            if is_due && lease.phase == Phase::Quiet {
                lease.phase = Phase::Due;
                due.push(*bucket);
            }
            true
        });
        due.retain(|bucket| leases.contains_key(bucket));
    }

    /// What is to be asked next, of so many buckets at most.
    pub fn take_due(&mut self, most: usize, now: Micros) -> Vec<LeaseAsk> {
        let rest = self.due.split_off(self.due.len().min(most));
        let mut asks = Vec::with_capacity(self.due.len());
        for bucket in std::mem::replace(&mut self.due, rest) {
            // A lease that was forgotten meanwhile may have a successor, which is asked for once.
            let is_due = |it: &&mut Lease| it.phase == Phase::Due;
            let Some(lease) = self.leases.get_mut(&bucket).filter(is_due) else { continue };
            let request = lease.request(now, self.timing);
            let (id, key, policy, era) = (lease.id, lease.key.clone(), lease.policy, self.era);
            asks.push(LeaseAsk { bucket, id, key, era, policy, request });
        }
        asks
    }

    pub fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Takes over the reply to a question.
    pub fn apply(&mut self, ask: &LeaseAsk, reply: &LeaseReply, times: CallSpan) {
        let timing = self.timing;
        if ask.era != self.era {
            // It may have come from another store than the next question goes to.
            return self.lose(ask, times.received);
        }
        if let Some(lease) = self.lease_of(ask) {
            lease.apply(&ask.request, reply, times, timing);
            if lease.is_unwanted() && lease.is_over(times.received) {
                self.leases.remove(&ask.bucket);
            }
        }
    }

    /// There will be no reply to a question.
    pub fn lose(&mut self, ask: &LeaseAsk, now: Micros) {
        let timing = self.timing;
        if let Some(lease) = self.lease_of(ask) {
            lease.lose_reply(now, timing);
        }
    }

    /// A request has waited for long enough: Redis decides it, and those that come next.
    pub fn leave_to_redis(&mut self, check: LeaseCheck<'_>, now: Micros) {
        if let Some(lease) = self.leases.get_mut(&check.bucket) {
            lease.leave_to_redis(now, self.timing);
        }
    }

    fn lease_of(&mut self, ask: &LeaseAsk) -> Option<&mut Lease> {
        self.leases.get_mut(&ask.bucket).filter(|it| it.id == ask.id)
    }

    /// The store is another one, or may have lost its data: nothing is reported to it of what another
    /// has given.
    pub fn orphan_all(&mut self) {
        self.era += 1;
        self.leases.values_mut().for_each(Lease::orphan);
    }

    /// Everything goes back: the process ends.
    pub fn return_all(&mut self) {
        for (bucket, lease) in &mut self.leases {
            lease.demand = Demand::over();
            if lease.phase == Phase::Quiet {
                lease.phase = Phase::Due;
                self.due.push(*bucket);
            }
        }
    }

    /// What may still be spent of a bucket, or may come back to its lease.
    pub fn unspent(&self, bucket: BucketId, now: Micros) -> u64 {
        let live = self.leases.get(&bucket).filter(|lease| lease.is_live(now));
        live.map_or(0, Lease::unspent_or_held)
    }

    pub fn stats(&self, now: Micros) -> LeaseStats {
        let mut stats = LeaseStats::default();
        for lease in self.leases.values() {
            if lease.is_dry(now) {
                stats.dry += 1;
            } else if lease.unspent() > 0 && lease.is_live(now) {
                stats.active += 1;
                stats.tokens += lease.unspent();
            }
        }
        stats
    }
}

#[cfg(test)]
mod tests;
