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
use crate::store::redis::decide::call_outcomes::RequestOutcome;
use crate::store::redis::wire::adjustment::{Adjustment, Op};

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
    /// No debt is dead before this.
    earliest: Micros,
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

/// What Redis has charged for a request that passed without its answer. The bucket there, full until
/// then, is not full again before it has refilled that: so much is not lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LateCharge {
    pub(crate) cost: u64,
    /// When the bucket would be full again, by what was known here with this charge. The
    /// [`Debt::since`] of what passed later is no earlier, and so has it in it already.
    pub(crate) until: Micros,
    /// When Redis charged it, if that is known.
    pub(crate) at: Option<Micros>,
}

impl Debt {
    /// The charge that pays it.
    pub(crate) fn adjustment(&self) -> Adjustment<'_> {
        Adjustment { op: Op::ChargeAfter, name: &self.name, policy: &self.policy, cost: self.cost }
    }

    /// Takes off what has refilled until now. False if nothing is left.
    fn age(&mut self, now: Micros, nodes: u64, late: &[LateCharge]) -> bool {
        self.cost = self.due(now, nodes, late);
        self.since = self.since.max(now);
        self.cost > 0
    }

    /// What is left of it if `nodes` share in what has refilled.
    fn due(&self, now: Micros, nodes: u64, late: &[LateCharge]) -> u64 {
        let late = || late.iter().filter(|it| it.until > self.since);
        if late().map(|it| it.until).fold(self.until, Micros::max) <= now {
            return 0;
        }
        let nodes = u32::try_from(nodes).unwrap_or(u32::MAX).max(1);
        let refilled = |until: Micros| match until.since(self.since) / nodes {
            Duration::ZERO => 0,
            span => self.policy.refilled(span),
        };
        // The bucket in Redis was full until the first late charge, and is again once it has
        // refilled them all: in between nothing is lost.
        let charged = late().fold(0, |sum: u64, it| sum.saturating_add(it.cost));
        let first = late().map(|it| it.at.unwrap_or_default()).min().unwrap_or(now).min(now);
        let lost = refilled(now).saturating_sub(charged).max(refilled(first));
        self.cost.saturating_sub(lost)
    }
}

impl Ledger {
    pub(crate) fn new(most: usize) -> Self {
        Ledger {
            debts: HashMap::new(),
            uncertain: Vec::new(),
            late_charges: HashMap::new(),
            most,
            paying: 0,
            earliest: Micros(u64::MAX),
            left_out_since_search: most,
            left_out: 0,
        }
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
    /// call, if it is known.
    pub(crate) fn resolve(
        &mut self,
        worker: usize,
        now: Micros,
        outcome: impl Fn(u64, usize) -> Option<RequestOutcome>,
    ) {
        for (charge, bucket, debt) in std::mem::take(&mut self.uncertain) {
            let known = (charge.worker == worker).then(|| outcome(charge.call, charge.request));
            let at = match known.flatten() {
                None => {
                    self.uncertain.push((charge, bucket, debt));
                    continue;
                }
                Some(RequestOutcome::Refused | RequestOutcome::NotRun) => {
                    self.add(bucket, debt, None, now);
                    continue;
                }
                Some(RequestOutcome::Admitted(at)) => at,
                Some(RequestOutcome::Lost) => None,
            };
            self.note_late_charge(
                bucket,
                LateCharge { cost: debt.cost, until: debt.until, at },
                now,
            );
        }
        self.forget_late_charges();
    }

    /// Notes what Redis has charged for a request that passed without its answer.
    pub(crate) fn note_late_charge(&mut self, bucket: BucketId, late: LateCharge, now: Micros) {
        self.keep_until(bucket, late.until, now);
        if !self.is_empty() || self.paying > 0 {
            self.late_charges.entry(bucket).or_default().push(late);
        }
    }

    /// What a bucket owes, or may owe.
    pub(crate) fn owed(&self, bucket: BucketId, now: Micros) -> u64 {
        let known = self.debts.get(&bucket).filter(|debt| debt.until > now);
        let uncertain = self.uncertain.iter().filter(|(_, it, _)| *it == bucket);
        let uncertain = uncertain.map(|(_, _, debt)| debt.cost);
        uncertain.chain(known.map(|debt| debt.cost)).fold(0, u64::saturating_add)
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

    /// Takes off what has refilled until now, and leaves out of which nothing is left.
    pub(crate) fn age(&self, debts: &mut Vec<(BucketId, Debt)>, now: Micros, nodes: u64) {
        debts.retain_mut(|(bucket, debt)| {
            let late = self.late_charges.get(bucket).map(Vec::as_slice).unwrap_or_default();
            debt.age(now, nodes, late)
        });
    }

    /// So many of those that were taken out are paid, dead, or about to be put back.
    pub(crate) fn paid(&mut self, count: usize) {
        self.paying = self.paying.saturating_sub(count);
        self.forget_late_charges();
    }

    /// Puts back one of those that were taken out.
    pub(crate) fn put_back(&mut self, bucket: BucketId, debt: Debt, now: Micros) {
        self.paying = self.paying.saturating_sub(1);
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
            since.is_some_and(|since| late.iter().any(|it| it.until > since))
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
mod tests {
    use super::*;
    use crate::limit::fixed_window::FixedWindow;
    use crate::limit::token_bucket::TokenBucket;
    use crate::limit::{Rate, State, Verdict};

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
        let mut due: Vec<_> = debts.values().map(|it| it.due(Micros(now), 1, &[])).collect();
        due.retain(|cost| *cost > 0);
        due.sort_unstable();
        due
    }

    /// A token a second; the bucket in Redis is full from second 10 on, and now it is second 15.
    #[test]
    fn what_refilled_is_taken_off_once_though_some_was_uncertain() {
        let second = |count: u64| Micros(count * 1_000_000);
        let rate = Rate::new(1, Duration::from_secs(1)).expect("a rate");
        let policy = Policy::TokenBucket(TokenBucket::new(rate, 30).expect("a bucket"));
        let debt = |cost| {
            let (until, since) = (second(40), second(10));
            Debt { name: b"a".to_vec(), policy, cost, until, since }
        };
        let mut ledger = Ledger::new(10);
        let uncertain = UncertainCharge { worker: 0, call: 1, request: 0 };
        ledger.add(BucketId(1), debt(8), None, second(15));
        ledger.add(BucketId(1), debt(4), Some(uncertain), second(15));
        let mut debts = ledger.take();
        assert!(
            debts.values_mut().all(|it| it.age(second(15), 1, &[]) && it.cost == 3),
            "{debts:?}"
        );
        ledger.note_payment(debts.iter().map(|(bucket, debt)| (*bucket, debt)));
        ledger.resolve(0, second(16), |_, _| Some(RequestOutcome::NotRun));
        let mut debts = ledger.take();
        assert!(
            debts.values_mut().all(|it| it.age(second(16), 1, &[]) && it.cost == 4),
            "{debts:?}"
        );
        assert_eq!(debts.len(), 1);
    }

    /// A bucket of ten that refills one token a second, empty here and in Redis at second 0. Redis
    /// does not answer from then on. Each second one passes here: some are owed for certain, others
    /// are of calls that Redis runs when it comes back. Once all is paid, there is no more to have
    /// there than here.
    #[test]
    fn what_a_call_charged_late_is_not_taken_off_of_a_debt_from_before() {
        const PASSED: u64 = 6;
        let second = |count: u64| Micros(100_000_000 + count * 1_000_000);
        let rate = Rate::new(1, Duration::from_secs(1)).expect("a rate");
        let policy = Policy::TokenBucket(TokenBucket::new(rate, 10).expect("a bucket"));
        let passes = |state, at| match policy.evaluate(state, at, 1) {
            Verdict::Admit(state) => state,
            Verdict::Refuse(_) => panic!("it has one to give"),
        };
        let deficit = |state: State, at: Micros| state.ends_at.since(at).as_secs();
        let cases = (0..1_u32 << PASSED).flat_map(|it| (PASSED..=14).map(move |back| (it, back)));
        for (uncertain, back) in cases {
            for paid in back..=15 {
                let mut ledger = Ledger::new(10);
                let empty = policy.charge_after(State::default(), second(0), 10);
                let (mut here, mut there) = (empty, empty);
                for request in 0..PASSED {
                    let at = second(request + 1);
                    let before = here.ends_at;
                    here = passes(here, at);
                    let (until, since) = (here.ends_at, before.max(at));
                    let debt = Debt { name: b"a".to_vec(), policy, cost: 1, until, since };
                    let charge = UncertainCharge { worker: 0, call: request, request: 0 };
                    let charge = (uncertain >> request & 1 == 1).then_some(charge);
                    ledger.add(BucketId(1), debt, charge, at);
                }
                for _ in 0..uncertain.count_ones() {
                    there = passes(there, second(back));
                }
                let admitted = RequestOutcome::Admitted(Some(second(back)));
                ledger.resolve(0, second(back), |_, _| Some(admitted));
                let mut debts: Vec<_> = ledger.take().into_iter().collect();
                ledger.age(&mut debts, second(paid), 1);
                for (_, debt) in &debts {
                    there = policy.charge_after(there, second(paid), debt.cost);
                }
                let (here, there) = (deficit(here, second(paid)), deficit(there, second(paid)));
                let case = format!("{uncertain:06b}, back at {back}, paid at {paid}");
                assert!(there >= here, "{case}: {there} are missing there, and {here} here");
            }
        }
    }

    #[test]
    fn late_charges_are_forgotten_with_the_debts_from_before() {
        let mut ledger = Ledger::new(10);
        let uncertain = |request| Some(UncertainCharge { worker: 0, call: 1, request });
        let late = |ledger: &Ledger| ledger.late_charges.values().map(Vec::len).sum::<usize>();
        ledger.add(BucketId(1), debt(1, 50), uncertain(0), Micros(0));
        ledger.resolve(0, Micros(0), |_, _| Some(RequestOutcome::Lost));
        assert_eq!(late(&ledger), 0, "nothing is owed");
        ledger.add(BucketId(1), debt(1, 50), None, Micros(0));
        ledger.add(BucketId(1), debt(1, 60), uncertain(0), Micros(0));
        ledger.add(BucketId(2), debt(1, 60), uncertain(1), Micros(0));
        ledger.resolve(0, Micros(0), |_, _| Some(RequestOutcome::Lost));
        assert_eq!(late(&ledger), 1, "the other bucket owes nothing");
        let debts = ledger.take();
        ledger.resolve(0, Micros(0), |_, _| None);
        assert_eq!(late(&ledger), 1, "it is being paid");
        for (bucket, debt) in debts {
            ledger.put_back(bucket, debt, Micros(0));
        }
        ledger.resolve(0, Micros(0), |_, _| None);
        assert_eq!(late(&ledger), 1, "it was not paid");
        let paid = ledger.take().len();
        ledger.paid(paid);
        assert_eq!(late(&ledger), 0);
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
        assert_eq!(debt.due(Micros(1_000_000), 1, &[]), 15, "it was not full before");
        assert_eq!(debt.due(Micros(1_550_000), 1, &[]), 10);
        assert_eq!(debt.due(Micros(1_550_000), 2, &[]), 13, "the other node takes off as much");
        assert_eq!(debt.due(Micros(9_000_000), 1, &[]), 0);
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
    fn it_forgets_the_dead_before_it_leaves_anything_out() {
        let mut ledger = Ledger::new(1);
        ledger.add(BucketId(1), debt(1, 100), None, Micros(0));
        ledger.add(BucketId(2), debt(2, 200), None, Micros(50));
        assert_eq!([ledger.take_left_out(), ledger.take_left_out()], [1, 0]);
        ledger.add(BucketId(3), debt(4, 300), None, Micros(150));
        assert_eq!(ledger.take_left_out(), 0);
        assert_eq!(due(&mut ledger, 160), [4]);
    }

    #[test]
    fn what_is_being_paid_takes_room_until_it_is_paid() {
        let mut ledger = Ledger::new(2);
        ledger.add(BucketId(1), debt(1, 100), None, Micros(0));
        ledger.add(BucketId(2), debt(1, 100), None, Micros(0));
        let paying = ledger.take();
        ledger.add(BucketId(3), debt(1, 100), None, Micros(0));
        assert_eq!((ledger.debts(), ledger.take_left_out()), (0, 1));
        ledger.paid(paying.len());
        ledger.add(BucketId(3), debt(1, 100), None, Micros(0));
        assert_eq!((ledger.debts(), ledger.take_left_out()), (1, 0));
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
        assert!(
            ledger.left_out_since_search > 900,
            "at an instant at which one in a thousand is dead"
        );
    }

    #[test]
    fn an_old_uncertain_charge_makes_no_newer_debt_die() {
        let mut ledger = Ledger::new(10);
        let uncertain = UncertainCharge { worker: 0, call: 1, request: 0 };
        ledger.add(BucketId(1), debt(1, 50), Some(uncertain), Micros(0));
        ledger.add(BucketId(1), debt(2, 100), None, Micros(40));
        ledger.resolve(0, Micros(60), |_, _| Some(RequestOutcome::NotRun));
        assert_eq!(due(&mut ledger, 60), [3]);
    }

    #[test]
    fn what_passed_after_a_call_is_owed_only_if_the_call_did_not_charge_it() {
        let mut ledger = Ledger::new(10);
        for (bucket, worker, call, request) in
            [(1, 0, 7, 0), (2, 0, 7, 1), (3, 0, 8, 0), (4, 1, 8, 0)]
        {
            let uncertain = UncertainCharge { worker, call, request };
            ledger.add(BucketId(bucket), debt(1 << bucket, 100), Some(uncertain), Micros(0));
        }
        assert_eq!(due(&mut ledger, 0), [0; 0]);
        let (admitted, refused) = (RequestOutcome::Admitted(None), RequestOutcome::Refused);
        ledger.resolve(0, Micros(0), |call, request| {
            (call == 7).then_some(if request == 0 { admitted } else { refused })
        });
        assert_eq!(due(&mut ledger, 0), [4], "the second request of the seventh call was refused");
        ledger.resolve(0, Micros(0), |_, _| Some(RequestOutcome::NotRun));
        assert_eq!(due(&mut ledger, 0), [8], "the eighth was not run");
        ledger.resolve(1, Micros(0), |_, _| Some(RequestOutcome::Lost));
        assert!(ledger.is_empty());
    }
}
