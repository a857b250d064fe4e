//! What this node has admitted alone, to be charged in Redis when it is back.
//!
//! Redis does not see what passes while it is out of reach, and time goes on filling its buckets.
//! So when it returns, each bucket is first charged with what was spent here: over the whole
//! outage no more passes than the limits allow. Of a pair of buckets, the one that was charged here
//! owes it; unless a call whose reply was lost has charged the other for the same request.

mod debt;

use std::time::Duration;

use hashbrown::HashMap;
use tokio::time::Instant;

pub(crate) use self::debt::{Debt, LateCharge};
use super::settled_charges::{ReplyTimes, SettledCharges};
use crate::clock::{self, Micros};
use crate::store::redis::decide::call_outcomes::RequestOutcome;
use crate::store::redis::wire::pair_choices::PairChoice;
use crate::store::{BucketId, Choice};

#[derive(Debug)]
pub(crate) struct Ledger {
    debts: Debts,
    /// What passed after a call whose reply did not come: it is owed only if the call did not
    /// charge it.
    uncertain: Vec<(UncertainCharge, BucketId, Debt)>,
    /// What such calls turned out to have charged, while there are debts from before.
    late_charges: HashMap<BucketId, Vec<LateCharge>>,
    /// Debts at a time: as many as there are buckets here.
    most: usize,
    /// Debts that were taken out to be paid and are not yet.
    paying: usize,
    /// What their buckets owe, if requests may ask for them meanwhile.
    in_payment: HashMap<BucketId, u64>,
    /// What is owed no longer, while there may be replies that do not know of it.
    settled: SettledCharges,
    /// No debt is dead before this.
    earliest: Micros,
    /// By how much the clocks may differ that their instants are of.
    clock_spread: Duration,
    /// How many were left out since dead ones were last searched for.
    left_out_since_search: usize,
    /// What had to be left out since that was last asked.
    left_out: u64,
}

pub(crate) type Debts = HashMap<BucketId, Debt>;

/// A request of a call of which it is not known whether it was run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UncertainCharge {
    pub(crate) worker: usize,
    pub(crate) call: u64,
    pub(crate) request: usize,
    /// If the bucket that was charged here is one of a pair, the other, which the call may have
    /// charged in its place.
    pub(crate) pair: Option<UncertainPair>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UncertainPair {
    /// Which of the request's pairs it is.
    pub(crate) number: usize,
    /// Which one of the pair was charged here.
    pub(crate) choice: Choice,
    pub(crate) other: BucketId,
    /// See [`LateCharge::until`], if the other was charged.
    pub(crate) other_until: Micros,
}

impl Ledger {
    /// With at most so many debts, for replies that are waited for no longer than `timeout`.
    pub(crate) fn new(most: usize, timeout: Duration) -> Self {
        Ledger {
            debts: HashMap::new(),
            uncertain: Vec::new(),
            late_charges: HashMap::new(),
            most,
            paying: 0,
            in_payment: HashMap::new(),
            // A reply may have come in time, and its request run a moment later.
            settled: SettledCharges::new(timeout * 2, most),
            earliest: Micros(u64::MAX),
            clock_spread: Duration::ZERO,
            left_out_since_search: most,
            left_out: 0,
        }
    }

    pub(crate) fn set_clock_spread(&mut self, spread: Duration) {
        self.clock_spread = spread;
    }

    /// Notes what passed without Redis, or after a call that may have charged it.
    pub(crate) fn add(
        &mut self,
        bucket: BucketId,
        debt: Debt,
        uncertain: Option<UncertainCharge>,
        now: Micros,
    ) {
        if let Some(charge) = uncertain {
            self.keep_until(bucket, debt.until, now);
            if let Some(pair) = charge.pair {
                self.keep_until(pair.other, pair.other_until, now);
            }
            if self.uncertain.len() < self.most {
                self.uncertain.push((charge, bucket, debt));
            } else {
                self.left_out += 1;
            }
        } else if let Some(known) = self.debts.get_mut(&bucket) {
            self.earliest = self.earliest.min(debt.until);
            if known.until <= now {
                *known = debt;
            } else {
                known.cost = known.cost.saturating_add(debt.cost);
                if !debt.policy.refills() {
                    known.cost = known.cost.min(debt.policy.deepest());
                }
                // One that was uncertain may be older than what is known. The bucket in Redis is
                // full from the earliest on: the later ones were noted with what is owed on top.
                known.until = known.until.max(debt.until);
                known.since = known.since.min(debt.since);
                known.policy = debt.policy;
            }
        } else if self.has_room() || self.forget_dead(now) {
            self.earliest = self.earliest.min(debt.until);
            self.debts.insert(bucket, debt);
        } else {
            self.left_out_since_search += 1;
            self.left_out += 1;
        }
    }

    /// Something passed on top of what a bucket owes: its debt lives at least until that has refilled,
    /// too.
    fn keep_until(&mut self, bucket: BucketId, until: Micros, now: Micros) {
        let known = self.debts.get_mut(&bucket).filter(|known| known.until > now);
        if let Some(known) = known {
            known.until = known.until.max(until);
        }
    }

    /// What a worker's calls have charged is not owed. `outcome` is what became of a request of a
    /// call, if it is known, and `now_of` tells the time by which a bucket of that name is judged.
    pub(crate) fn resolve(
        &mut self,
        worker: usize,
        now_of: impl Fn(&[u8]) -> Micros,
        outcome: impl Fn(u64, usize) -> Option<RequestOutcome>,
    ) {
        let known_at = clock::now();
        for (charge, bucket, debt) in std::mem::take(&mut self.uncertain) {
            let known = (charge.worker == worker).then(|| outcome(charge.call, charge.request));
            let mut charged = (bucket, debt.until);
            let at = match known.flatten() {
                None => {
                    self.uncertain.push((charge, bucket, debt));
                    continue;
                }
                Some(RequestOutcome::Refused | RequestOutcome::NotRun) => {
                    let now = now_of(&debt.name);
                    self.add(bucket, debt, None, now);
                    continue;
                }
                Some(RequestOutcome::Admitted { at, pairs }) => {
                    if let Some(pair) = charge.pair {
                        match pairs.of(pair.number) {
                            // It was only watched, and is charged nowhere.
                            PairChoice::Neither => continue,
                            came if came.is(pair.choice) => {}
                            _ => charged = (pair.other, pair.other_until),
                        }
                    }
                    at
                }
                Some(RequestOutcome::Lost) => None,
            };
            let (bucket, until) = charged;
            let late = LateCharge { cost: debt.cost, until, at };
            self.note_late_charge(bucket, late, now_of(&debt.name), known_at);
        }
        self.forget_late_charges();
    }

    /// Notes what Redis has charged for a request that passed without its answer, as became known at
    /// an instant of the clock here.
    pub(crate) fn note_late_charge(
        &mut self,
        bucket: BucketId,
        late: LateCharge,
        now: Micros,
        known_at: Instant,
    ) {
        self.settled.add(bucket, late.cost, late.at, known_at);
        self.keep_until(bucket, late.until, now);
        if !self.is_empty() || self.paying > 0 {
            self.late_charges.entry(bucket).or_default().push(late);
        }
    }

    /// Notes what Redis has charged in another way than by a call that decides.
    pub(crate) fn note_settled(&mut self, bucket: BucketId, cost: u64, at: Option<Micros>) {
        self.settled.add(bucket, cost, at, clock::now());
    }

    /// What passed here on a bucket that a reply does not know of, or may not.
    pub(crate) fn missing_from(&self, bucket: BucketId, reply: ReplyTimes) -> u64 {
        let known = self.debts.get(&bucket).filter(|debt| debt.until > reply.at);
        let uncertain = self.uncertain.iter().filter(|(_, it, _)| *it == bucket);
        let uncertain = uncertain.map(|(_, _, debt)| debt.cost);
        let in_payment = self.in_payment.get(&bucket).copied();
        let settled = self.settled.missing_from(bucket, reply);
        let owed = uncertain.chain(known.map(|debt| debt.cost)).chain(in_payment);
        owed.fold(settled, u64::saturating_add)
    }

    /// Whether a reply may lack more than [`Ledger::missing_from`] says.
    pub(crate) fn is_too_old(&self, reply: ReplyTimes) -> bool {
        self.settled.is_too_old(reply)
    }

    /// Whether something passed that replies may not know of.
    pub(crate) fn may_be_missing(&mut self) -> bool {
        self.settled.forget(clock::now());
        !self.is_empty() || !self.settled.is_empty()
    }

    /// Whether a bucket is known to owe something that is not paid yet.
    pub(crate) fn is_unpaid(&self, bucket: BucketId, now: Micros) -> bool {
        let is_owed = self.debts.get(&bucket).is_some_and(|debt| debt.until > now);
        is_owed || self.in_payment.contains_key(&bucket)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.debts.is_empty() && self.uncertain.is_empty() && self.in_payment.is_empty()
    }

    pub(crate) fn has_uncertain(&self) -> bool {
        !self.uncertain.is_empty()
    }

    pub(crate) fn debts(&self) -> usize {
        self.debts.len()
    }

    /// All debts; many of them may be dead. They count until they are [`Ledger::paid`]. If Redis is
    /// `in_use`, their buckets are remembered until the payment [ends](Ledger::end_payment). If it is
    /// not, nothing is sent before they are paid.
    pub(crate) fn take(&mut self, in_use: bool) -> Debts {
        self.paying += self.debts.len();
        if in_use {
            for (bucket, debt) in &self.debts {
                let cost = self.in_payment.entry(*bucket).or_default();
                *cost = cost.saturating_add(debt.cost);
            }
        } else if !self.debts.is_empty() {
            self.settled.omit(clock::now());
        }
        self.earliest = Micros(u64::MAX);
        std::mem::take(&mut self.debts)
    }

    /// Takes off what has refilled until an instant, and what windows that have ended until now forgive;
    /// leaves out of which nothing is left.
    pub(crate) fn age(
        &self,
        debts: &mut Vec<(BucketId, Debt)>,
        now: Micros,
        refill_until: Micros,
        nodes: u64,
    ) {
        debts.retain_mut(|(bucket, debt)| {
            let late = self.late_charges.get(bucket).map(Vec::as_slice).unwrap_or_default();
            let until = if debt.policy.refills() { refill_until } else { now };
            debt.age(until, nodes, late)
        });
    }

    /// All that was taken out is paid, or put back, except for what these buckets owe: of that it is
    /// not known.
    pub(crate) fn end_payment(&mut self, unconfirmed: impl Iterator<Item = BucketId>) {
        let kept = unconfirmed.filter_map(|it| self.in_payment.remove_entry(&it)).collect();
        let known_at = clock::now();
        for (bucket, cost) in std::mem::replace(&mut self.in_payment, kept) {
            self.settled.add(bucket, cost, None, known_at);
        }
    }

    /// So many of those that were taken out are paid, dead, or about to be put back.
    pub(crate) fn paid(&mut self, count: usize) {
        self.paying = self.paying.saturating_sub(count);
        self.forget_late_charges();
    }

    /// Puts back one of those that were taken out.
    pub(crate) fn put_back(&mut self, bucket: BucketId, debt: Debt, now: Micros) {
        self.paying = self.paying.saturating_sub(1);
        if let Some(cost) = self.in_payment.get_mut(&bucket) {
            *cost = cost.saturating_sub(debt.cost);
        }
        self.add(bucket, debt, None, now);
    }

    /// Forgets late charges that no debt is older than.
    fn forget_late_charges(&mut self) {
        if self.late_charges.is_empty() || self.paying > 0 {
            return;
        }
        let uncertain = self.uncertain.iter().map(|(_, bucket, debt)| (*bucket, debt.since));
        let mut oldest: HashMap<BucketId, Micros> = HashMap::new();
        for (bucket, since) in uncertain {
            oldest.entry(bucket).and_modify(|it| *it = since.min(*it)).or_insert(since);
        }
        let debts = &self.debts;
        self.late_charges.retain(|bucket, late| {
            let known = debts.get(bucket).map(|debt| debt.since);
            let since = known.into_iter().chain(oldest.get(bucket).copied()).min();
            let Some(since) = since else { return false };
            late.retain(|it| it.until > since);
            !late.is_empty()
        });
    }

    /// These debts are about to be charged: the bucket in Redis is no longer full then. What has
    /// refilled until now is taken off of them, and must not be taken off once more of uncertain
    /// charges.
    pub(crate) fn note_payment<'a>(&mut self, debts: impl Iterator<Item = (BucketId, &'a Debt)>) {
        if self.uncertain.is_empty() {
            return;
        }
        let full: HashMap<BucketId, Micros> = debts.map(|(id, debt)| (id, debt.until)).collect();
        for (_, bucket, debt) in &mut self.uncertain {
            if let Some(until) = full.get(bucket) {
                debt.since = debt.since.max(*until);
            }
        }
    }

    /// How many debts had to be left out since this was last asked.
    pub(crate) fn take_left_out(&mut self) -> u64 {
        std::mem::take(&mut self.left_out)
    }

    fn has_room(&self) -> bool {
        self.debts.len() + self.paying < self.most
    }

    /// Makes room. It goes through all debts, so it has to be worth it: only after one in so many was
    /// left out.
    fn forget_dead(&mut self, now: Micros) -> bool {
        const ONE_IN: usize = 16;
        let now = Micros(now.0.saturating_sub(self.clock_spread.as_micros() as u64));
        if now < self.earliest || self.left_out_since_search < self.debts.len() / ONE_IN {
            return false;
        }
        self.left_out_since_search = 0;
        let mut earliest = Micros(u64::MAX);
        self.debts.retain(|_, debt| {
            let live = debt.until > now;
            if live {
                earliest = earliest.min(debt.until);
            }
            live
        });
        self.earliest = earliest;
        self.has_room()
    }
}

#[cfg(test)]
mod tests;
