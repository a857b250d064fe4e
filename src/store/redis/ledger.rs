//! What this node has admitted alone, to be charged in Redis when it is back.
//!
//! Redis does not see what passes while it is out of reach, and time goes on filling its buckets.
//! So when it returns, each bucket is first charged with what was spent here: over the whole
//! outage no more passes than the limits allow.

use hashbrown::HashMap;

use crate::clock::Micros;
use crate::limit::Policy;
use crate::store::BucketId;

#[derive(Debug)]
pub(super) struct Ledger {
    debts: HashMap<BucketId, Debt>,
    /// What passed after a call whose reply did not come: it is owed only if the call was not run.
    doubts: Vec<(Doubt, BucketId, Debt)>,
    /// Debts at a time: as many as there are buckets here.
    most: usize,
}

/// A call of which it is not known whether it was run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Doubt {
    pub(super) worker: usize,
    pub(super) call: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Debt {
    pub(super) name: Vec<u8>,
    pub(super) policy: Policy,
    pub(super) cost: u64,
    /// When the bucket would be full again: from then on nothing is owed.
    pub(super) until: Micros,
}

impl Ledger {
    pub(super) fn new(most: usize) -> Self {
        Ledger { debts: HashMap::new(), doubts: Vec::new(), most }
    }

    /// Notes what passed without Redis, or after a call that may have been run.
    pub(super) fn add(&mut self, bucket: BucketId, debt: Debt, doubt: Option<Doubt>, now: Micros) {
        if let Some(doubt) = doubt {
            if self.doubts.len() < self.most {
                self.doubts.push((doubt, bucket, debt));
            }
        } else if let Some(known) = self.debts.get_mut(&bucket) {
            let before = if known.until > now { known.cost } else { 0 };
            // One that was in doubt may be older than what is known.
            let (cost, until) = (before.saturating_add(debt.cost), debt.until.max(known.until));
            *known = Debt { cost, until, ..debt };
        } else if self.debts.len() < self.most || self.forget_dead(now) {
            self.debts.insert(bucket, debt);
        }
    }

    /// A worker's calls are known to have been run up to that number, and those after it are
    /// known never to be.
    pub(super) fn settle(&mut self, worker: usize, run: u64, now: Micros) {
        let (ours, others) =
            std::mem::take(&mut self.doubts).into_iter().partition(|(it, ..)| it.worker == worker);
        self.doubts = others;
        let ours: Vec<(Doubt, BucketId, Debt)> = ours;
        for (_, bucket, debt) in ours.into_iter().filter(|(it, ..)| it.call > run) {
            self.add(bucket, debt, None, now);
        }
    }

    /// What a bucket owes, or may owe.
    pub(super) fn owed(&self, bucket: BucketId, now: Micros) -> u64 {
        let known = self.debts.get(&bucket).filter(|debt| debt.until > now);
        let doubted = self.doubts.iter().filter(|(_, it, _)| *it == bucket);
        let doubted = doubted.map(|(_, _, debt)| debt.cost);
        doubted.chain(known.map(|debt| debt.cost)).fold(0, u64::saturating_add)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.debts.is_empty() && self.doubts.is_empty()
    }

    pub(super) fn has_doubts(&self) -> bool {
        !self.doubts.is_empty()
    }

    /// Puts debts back that could not be paid.
    pub(super) fn restore(&mut self, debts: impl IntoIterator<Item = (BucketId, Debt)>) {
        for (bucket, debt) in debts {
            match self.debts.get_mut(&bucket) {
                Some(newer) => {
                    newer.cost = newer.cost.saturating_add(debt.cost);
                    newer.until = newer.until.max(debt.until);
                }
                None => {
                    self.debts.insert(bucket, debt);
                }
            }
        }
    }

    /// All debts that still count.
    pub(super) fn take(&mut self, now: Micros) -> Vec<(BucketId, Debt)> {
        self.debts.drain().filter(|(_, debt)| debt.until > now).collect()
    }

    fn forget_dead(&mut self, now: Micros) -> bool {
        self.debts.retain(|_, debt| debt.until > now);
        self.debts.len() < self.most
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limit::Rate;
    use crate::limit::fixed_window::FixedWindow;

    fn policy() -> Policy {
        let rate = Rate::new(10, Duration::from_secs(1)).expect("a rate");
        Policy::FixedWindow(FixedWindow::new(rate))
    }

    fn costs(ledger: &mut Ledger, now: u64) -> Vec<u64> {
        let mut costs: Vec<_> = ledger.take(Micros(now)).iter().map(|(_, it)| it.cost).collect();
        costs.sort_unstable();
        costs
    }

    fn debt(cost: u64, until: u64) -> Debt {
        Debt { name: b"a".to_vec(), policy: policy(), cost, until: Micros(until) }
    }

    #[test]
    fn debts_add_up_while_the_bucket_is_not_full() {
        let mut ledger = Ledger::new(10);
        ledger.add(BucketId(1), debt(2, 100), None, Micros(0));
        ledger.add(BucketId(1), debt(3, 120), None, Micros(50));
        ledger.add(BucketId(2), debt(1, 110), None, Micros(50));
        assert_eq!(costs(&mut ledger, 60), [1, 5]);
        assert_eq!(costs(&mut ledger, 60), [0; 0]);
    }

    #[test]
    fn what_has_refilled_is_not_owed() {
        let mut ledger = Ledger::new(10);
        ledger.add(BucketId(1), debt(2, 100), None, Micros(0));
        ledger.add(BucketId(1), debt(3, 200), None, Micros(100));
        ledger.add(BucketId(2), debt(1, 110), None, Micros(100));
        assert_eq!(costs(&mut ledger, 150), [3]);
    }

    #[test]
    fn it_forgets_the_dead_before_it_turns_anything_away() {
        let mut ledger = Ledger::new(1);
        ledger.add(BucketId(1), debt(1, 100), None, Micros(0));
        ledger.add(BucketId(2), debt(2, 200), None, Micros(50));
        ledger.add(BucketId(3), debt(4, 300), None, Micros(150));
        assert_eq!(costs(&mut ledger, 160), [4]);
    }

    #[test]
    fn debts_that_could_not_be_paid_are_added_to_newer_ones() {
        let mut ledger = Ledger::new(10);
        ledger.add(BucketId(1), debt(2, 100), None, Micros(0));
        let taken = ledger.take(Micros(0));
        ledger.add(BucketId(1), debt(3, 100), None, Micros(10));
        ledger.restore(taken);
        assert_eq!(costs(&mut ledger, 20), [5]);
    }

    #[test]
    fn an_old_doubt_makes_no_newer_debt_die() {
        let mut ledger = Ledger::new(10);
        let doubt = Doubt { worker: 0, call: 1 };
        ledger.add(BucketId(1), debt(1, 50), Some(doubt), Micros(0));
        ledger.add(BucketId(1), debt(2, 100), None, Micros(40));
        ledger.settle(0, 0, Micros(60));
        assert_eq!(costs(&mut ledger, 60), [3]);
    }

    #[test]
    fn what_passed_after_a_call_is_owed_only_if_the_call_was_not_run() {
        let mut ledger = Ledger::new(10);
        for (bucket, worker, call) in [(1, 0, 7), (2, 0, 8), (3, 1, 8)] {
            let doubt = Doubt { worker, call };
            ledger.add(BucketId(bucket), debt(1 << bucket, 100), Some(doubt), Micros(0));
        }
        assert_eq!(costs(&mut ledger, 0), [0; 0]);
        ledger.settle(0, 7, Micros(0));
        assert_eq!(costs(&mut ledger, 0), [4]);
        ledger.settle(1, 9, Micros(0));
        assert!(!ledger.has_doubts());
        assert_eq!(costs(&mut ledger, 0), [0; 0]);
    }
}
