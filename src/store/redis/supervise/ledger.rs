//! What this node has admitted alone, to be charged in Redis when it is back.
//!
//! Redis does not see what passes while it is out of reach, and time goes on filling its buckets.
//! So when it returns, each bucket is first charged with what was spent here: over the whole
//! outage no more passes than the limits allow.

use std::time::Duration;

use hashbrown::HashMap;

use crate::clock::Micros;
use crate::limit::Policy;
use crate::store::BucketId;
use crate::store::redis::wire::adjustment::{Adjustment, Op};

#[derive(Debug)]
pub(crate) struct Ledger {
    debts: Debts,
    /// What passed after a call whose reply did not come: it is owed only if the call did not
    /// charge it.
    uncertain: Vec<(UncertainCharge, BucketId, Debt)>,
    /// Debts at a time: as many as there are buckets here.
    most: usize,
    /// Debts that were taken out to be paid and are not yet.
    paying: usize,
    /// No debt is dead before this.
    earliest: Micros,
    /// How many have been turned away since it was last looked for dead ones.
    refused: usize,
    /// What had to be left out since that was last asked.
    turned_away: u64,
}

pub(crate) type Debts = HashMap<BucketId, Debt>;

/// A request of a call of which it is not known whether it was run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UncertainCharge {
    pub(crate) worker: usize,
    pub(crate) call: u64,
    pub(crate) request: usize,
}

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

impl Debt {
    /// The charge that pays it.
    pub(crate) fn adjustment(&self) -> Adjustment<'_> {
        Adjustment { op: Op::ChargeAfter, name: &self.name, policy: &self.policy, cost: self.cost }
    }

    /// Takes off what has refilled until now. False if nothing is left.
    pub(crate) fn age(&mut self, now: Micros, nodes: u64) -> bool {
        self.cost = self.due(now, nodes);
        self.since = self.since.max(now);
        self.cost > 0
    }

    /// What is left of it if `nodes` share in what has refilled.
    fn due(&self, now: Micros, nodes: u64) -> u64 {
        let span = now.since(self.since) / u32::try_from(nodes).unwrap_or(u32::MAX).max(1);
        if self.until <= now || span == Duration::ZERO {
            return if self.until > now { self.cost } else { 0 };
        }
        self.cost.saturating_sub(self.policy.refilled(span))
    }
}

impl Ledger {
    pub(crate) fn new(most: usize) -> Self {
        Ledger {
            debts: HashMap::new(),
            uncertain: Vec::new(),
            most,
            paying: 0,
            earliest: Micros(u64::MAX),
            refused: most,
            turned_away: 0,
        }
    }

    /// Notes what passed without Redis, or after a call that may have charged it.
    pub(crate) fn add(
        &mut self,
        bucket: BucketId,
        debt: Debt,
        doubt: Option<UncertainCharge>,
        now: Micros,
    ) {
        if let Some(doubt) = doubt {
            if self.uncertain.len() < self.most {
                self.uncertain.push((doubt, bucket, debt));
            } else {
                self.turned_away += 1;
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
            self.refused += 1;
            self.turned_away += 1;
        }
    }

    /// What a worker's calls have charged is not owed. `charged` says so of a request of a call,
    /// if it is known.
    pub(crate) fn resolve(
        &mut self,
        worker: usize,
        now: Micros,
        charged: impl Fn(u64, usize) -> Option<bool>,
    ) {
        for (doubt, bucket, debt) in std::mem::take(&mut self.uncertain) {
            let known = (doubt.worker == worker).then(|| charged(doubt.call, doubt.request));
            match known.flatten() {
                None => self.uncertain.push((doubt, bucket, debt)),
                Some(true) => {}
                Some(false) => self.add(bucket, debt, None, now),
            }
        }
    }

    /// What a bucket owes, or may owe.
    pub(crate) fn owed(&self, bucket: BucketId, now: Micros) -> u64 {
        let known = self.debts.get(&bucket).filter(|debt| debt.until > now);
        let doubted = self.uncertain.iter().filter(|(_, it, _)| *it == bucket);
        let doubted = doubted.map(|(_, _, debt)| debt.cost);
        doubted.chain(known.map(|debt| debt.cost)).fold(0, u64::saturating_add)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.debts.is_empty() && self.uncertain.is_empty()
    }

    pub(crate) fn has_uncertain(&self) -> bool {
        !self.uncertain.is_empty()
    }

    pub(crate) fn debts(&self) -> usize {
        self.debts.len()
    }

    /// All debts; many of them may be dead. They count until they are [`Ledger::paid`].
    pub(crate) fn take(&mut self) -> Debts {
        self.paying += self.debts.len();
        self.earliest = Micros(u64::MAX);
        std::mem::take(&mut self.debts)
    }

    /// So many of those that were taken out are paid, dead, or about to be put back.
    pub(crate) fn paid(&mut self, count: usize) {
        self.paying = self.paying.saturating_sub(count);
    }

    /// These debts are about to be charged: the bucket in Redis is no longer full then. What has
    /// refilled until now is taken off of them, and must not be taken off of a doubt once more.
    pub(crate) fn told<'a>(&mut self, debts: impl Iterator<Item = (BucketId, &'a Debt)>) {
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
    pub(crate) fn turned_away(&mut self) -> u64 {
        std::mem::take(&mut self.turned_away)
    }

    fn has_room(&self) -> bool {
        self.debts.len() + self.paying < self.most
    }

    /// Makes room. It takes a look at all, so it has to be worth it: after one in so many was turned
    /// away.
    fn forget_dead(&mut self, now: Micros) -> bool {
        const ONE_IN: usize = 16;
        if now < self.earliest || self.refused < self.debts.len() / ONE_IN {
            return false;
        }
        self.refused = 0;
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
mod tests {
    use super::*;
    use crate::limit::Rate;
    use crate::limit::fixed_window::FixedWindow;
    use crate::limit::token_bucket::TokenBucket;

    fn window() -> Policy {
        let rate = Rate::new(10, Duration::from_secs(1)).expect("a rate");
        Policy::FixedWindow(FixedWindow::new(rate))
    }

    fn debt(cost: u64, until: u64) -> Debt {
        let (until, since) = (Micros(until), Micros(0));
        Debt { name: b"a".to_vec(), policy: window(), cost, until, since }
    }

    fn due(ledger: &mut Ledger, now: u64) -> Vec<u64> {
        let debts = ledger.take();
        ledger.paid(debts.len());
        let mut due: Vec<_> = debts.values().map(|it| it.due(Micros(now), 1)).collect();
        due.retain(|cost| *cost > 0);
        due.sort_unstable();
        due
    }

    /// A token a second; the bucket in Redis is full from second 10 on, and now it is second 15.
    #[test]
    fn what_refilled_is_taken_off_once_though_some_was_in_doubt() {
        let second = |count: u64| Micros(count * 1_000_000);
        let rate = Rate::new(1, Duration::from_secs(1)).expect("a rate");
        let policy = Policy::TokenBucket(TokenBucket::new(rate, 30).expect("a bucket"));
        let debt = |cost| {
            let (until, since) = (second(40), second(10));
            Debt { name: b"a".to_vec(), policy, cost, until, since }
        };
        let mut ledger = Ledger::new(10);
        let doubt = UncertainCharge { worker: 0, call: 1, request: 0 };
        ledger.add(BucketId(1), debt(8), None, second(15));
        ledger.add(BucketId(1), debt(4), Some(doubt), second(15));
        let mut debts = ledger.take();
        assert!(debts.values_mut().all(|it| it.age(second(15), 1) && it.cost == 3), "{debts:?}");
        ledger.told(debts.iter().map(|(bucket, debt)| (*bucket, debt)));
        ledger.resolve(0, second(16), |_, _| Some(false));
        let mut debts = ledger.take();
        assert!(debts.values_mut().all(|it| it.age(second(16), 1) && it.cost == 4), "{debts:?}");
        assert_eq!(debts.len(), 1);
    }

    #[test]
    fn debts_add_up_while_the_bucket_is_not_full() {
        let mut ledger = Ledger::new(10);
        ledger.add(BucketId(1), debt(2, 100), None, Micros(0));
        ledger.add(BucketId(1), debt(3, 120), None, Micros(50));
        ledger.add(BucketId(2), debt(1, 110), None, Micros(50));
        assert_eq!(ledger.owed(BucketId(1), Micros(60)), 5);
        assert_eq!(due(&mut ledger, 60), [1, 5]);
        assert_eq!(due(&mut ledger, 60), [0; 0]);
    }

    #[test]
    fn what_has_refilled_is_not_owed() {
        let mut ledger = Ledger::new(10);
        ledger.add(BucketId(1), debt(2, 100), None, Micros(0));
        ledger.add(BucketId(1), debt(3, 200), None, Micros(100));
        ledger.add(BucketId(2), debt(1, 110), None, Micros(100));
        assert_eq!(due(&mut ledger, 150), [3]);
    }

    #[test]
    fn what_a_full_bucket_loses_is_taken_off() {
        let rate = Rate::new(10, Duration::from_secs(1)).expect("a rate");
        let policy = Policy::TokenBucket(TokenBucket::new(rate, 20).expect("a bucket"));
        let until = Micros(100_000_000);
        let debt = Debt { policy, until, since: Micros(1_000_000), ..debt(15, 0) };
        assert_eq!(debt.due(Micros(1_000_000), 1), 15, "it was not full before");
        assert_eq!(debt.due(Micros(1_550_000), 1), 10);
        assert_eq!(debt.due(Micros(1_550_000), 2), 13, "the other node takes off as much");
        assert_eq!(debt.due(Micros(9_000_000), 1), 0);
    }

    #[test]
    fn a_window_owes_no_more_than_it_holds() {
        let mut ledger = Ledger::new(10);
        for _ in 0..3 {
            ledger.add(BucketId(1), debt(4, 100), None, Micros(0));
        }
        assert_eq!(due(&mut ledger, 0), [10]);
    }

    #[test]
    fn it_forgets_the_dead_before_it_turns_anything_away() {
        let mut ledger = Ledger::new(1);
        ledger.add(BucketId(1), debt(1, 100), None, Micros(0));
        ledger.add(BucketId(2), debt(2, 200), None, Micros(50));
        assert_eq!([ledger.turned_away(), ledger.turned_away()], [1, 0]);
        ledger.add(BucketId(3), debt(4, 300), None, Micros(150));
        assert_eq!(ledger.turned_away(), 0);
        assert_eq!(due(&mut ledger, 160), [4]);
    }

    #[test]
    fn what_is_being_paid_takes_room_until_it_is_paid() {
        let mut ledger = Ledger::new(2);
        ledger.add(BucketId(1), debt(1, 100), None, Micros(0));
        ledger.add(BucketId(2), debt(1, 100), None, Micros(0));
        let paying = ledger.take();
        ledger.add(BucketId(3), debt(1, 100), None, Micros(0));
        assert_eq!((ledger.debts(), ledger.turned_away()), (0, 1));
        ledger.paid(paying.len());
        ledger.add(BucketId(3), debt(1, 100), None, Micros(0));
        assert_eq!((ledger.debts(), ledger.turned_away()), (1, 0));
    }

    #[test]
    fn a_ledger_full_of_live_debts_is_not_searched_for_each_that_comes() {
        let mut ledger = Ledger::new(1_000);
        for bucket in 0..1_000 {
            ledger.add(BucketId(bucket), debt(1, 100 + bucket as u64), None, Micros(0));
        }
        for bucket in 1_000..2_000 {
            ledger.add(BucketId(bucket), debt(1, 5_000), None, Micros(100));
        }
        assert_eq!(ledger.debts(), 1_000);
        assert!(ledger.refused > 900, "at an instant at which one in a thousand is dead");
    }

    #[test]
    fn an_old_doubt_makes_no_newer_debt_die() {
        let mut ledger = Ledger::new(10);
        let doubt = UncertainCharge { worker: 0, call: 1, request: 0 };
        ledger.add(BucketId(1), debt(1, 50), Some(doubt), Micros(0));
        ledger.add(BucketId(1), debt(2, 100), None, Micros(40));
        ledger.resolve(0, Micros(60), |_, _| Some(false));
        assert_eq!(due(&mut ledger, 60), [3]);
    }

    #[test]
    fn what_passed_after_a_call_is_owed_only_if_the_call_did_not_charge_it() {
        let mut ledger = Ledger::new(10);
        for (bucket, worker, call, request) in
            [(1, 0, 7, 0), (2, 0, 7, 1), (3, 0, 8, 0), (4, 1, 8, 0)]
        {
            let doubt = UncertainCharge { worker, call, request };
            ledger.add(BucketId(bucket), debt(1 << bucket, 100), Some(doubt), Micros(0));
        }
        assert_eq!(due(&mut ledger, 0), [0; 0]);
        ledger.resolve(0, Micros(0), |call, request| (call == 7).then_some(request == 0));
        assert_eq!(due(&mut ledger, 0), [4], "the second request of the seventh call was refused");
        ledger.resolve(0, Micros(0), |_, _| Some(false));
        assert_eq!(due(&mut ledger, 0), [8], "the eighth was not run");
        ledger.resolve(1, Micros(0), |_, _| Some(true));
        assert!(ledger.is_empty());
    }
}
