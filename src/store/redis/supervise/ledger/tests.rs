//! Debts, certain and uncertain: what is owed, for how long, and what refills take off.

use super::*;
use crate::limit::fixed_window::FixedWindow;
use crate::limit::token_bucket::TokenBucket;
use crate::limit::{Policy, Rate, State, Verdict};
use crate::store::redis::wire::pair_choices::PairChoices;

fn window() -> Policy {
    let rate = Rate::new(10, Duration::from_secs(1)).expect("a rate");
    Policy::FixedWindow(FixedWindow::new(rate))
}

fn ledger(most: usize) -> Ledger {
    Ledger::new(most, Duration::from_millis(20))
}

fn debt(cost: u64, until: u64) -> Debt {
    let (until, since) = (Micros(until), Micros(0));
    Debt { name: b"a".to_vec(), policy: window(), cost, until, since }
}

fn admitted(at: Option<Micros>) -> RequestOutcome {
    RequestOutcome::Admitted { at, pairs: PairChoices::default() }
}

fn due(ledger: &mut Ledger, now: u64) -> Vec<u64> {
    let debts = ledger.take(false);
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
    let mut ledger = ledger(10);
    let uncertain = UncertainCharge { worker: 0, call: 1, request: 0, pair: None };
    ledger.add(BucketId(1), debt(8), None, second(15));
    ledger.add(BucketId(1), debt(4), Some(uncertain), second(15));
    let mut debts = ledger.take(false);
    assert!(debts.values_mut().all(|it| it.age(second(15), 1, &[]) && it.cost == 3), "{debts:?}");
    ledger.note_payment(debts.iter().map(|(bucket, debt)| (*bucket, debt)));
    ledger.resolve(0, |_| second(16), |_, _| Some(RequestOutcome::NotRun));
    let mut debts = ledger.take(false);
    assert!(debts.values_mut().all(|it| it.age(second(16), 1, &[]) && it.cost == 4), "{debts:?}");
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
            let mut ledger = ledger(10);
            let empty = policy.charge_after(State::default(), second(0), 10);
            let (mut here, mut there) = (empty, empty);
            for request in 0..PASSED {
                let at = second(request + 1);
                let before = here.ends_at;
                here = passes(here, at);
                let (until, since) = (here.ends_at, before.max(at));
                let debt = Debt { name: b"a".to_vec(), policy, cost: 1, until, since };
                let charge = UncertainCharge { worker: 0, call: request, request: 0, pair: None };
                let charge = (uncertain >> request & 1 == 1).then_some(charge);
                ledger.add(BucketId(1), debt, charge, at);
            }
            for _ in 0..uncertain.count_ones() {
                there = passes(there, second(back));
            }
            let admitted = admitted(Some(second(back)));
            ledger.resolve(0, |_| second(back), |_, _| Some(admitted));
            let mut debts: Vec<_> = ledger.take(false).into_iter().collect();
            ledger.age(&mut debts, second(paid), second(paid), 1);
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
    let mut ledger = ledger(10);
    let uncertain = |request| Some(UncertainCharge { worker: 0, call: 1, request, pair: None });
    let late = |ledger: &Ledger| ledger.late_charges.values().map(Vec::len).sum::<usize>();
    ledger.add(BucketId(1), debt(1, 50), uncertain(0), Micros(0));
    ledger.resolve(0, |_| Micros(0), |_, _| Some(RequestOutcome::Lost));
    assert_eq!(late(&ledger), 0, "nothing is owed");
    ledger.add(BucketId(1), debt(1, 50), None, Micros(0));
    ledger.add(BucketId(1), debt(1, 60), uncertain(0), Micros(0));
    ledger.add(BucketId(2), debt(1, 60), uncertain(1), Micros(0));
    ledger.resolve(0, |_| Micros(0), |_, _| Some(RequestOutcome::Lost));
    assert_eq!(late(&ledger), 1, "the other bucket owes nothing");
    let debts = ledger.take(false);
    ledger.resolve(0, |_| Micros(0), |_, _| None);
    assert_eq!(late(&ledger), 1, "it is being paid");
    for (bucket, debt) in debts {
        ledger.put_back(bucket, debt, Micros(0));
    }
    ledger.resolve(0, |_| Micros(0), |_, _| None);
    assert_eq!(late(&ledger), 1, "it was not paid");
    let paid = ledger.take(false).len();
    ledger.paid(paid);
    assert_eq!(late(&ledger), 0);
}

#[test]
fn debts_add_up_while_the_bucket_is_not_full() {
    let mut ledger = ledger(10);
    ledger.add(BucketId(1), debt(2, 100), None, Micros(0));
    ledger.add(BucketId(1), debt(3, 120), None, Micros(50));
    ledger.add(BucketId(2), debt(1, 110), None, Micros(50));
    let reply = ReplyTimes { sent: clock::now(), at: Micros(60) };
    assert_eq!(ledger.missing_from(BucketId(1), reply), 5);
    assert_eq!(due(&mut ledger, 60), [1, 5]);
    assert_eq!(due(&mut ledger, 60), [0; 0]);
}

#[test]
fn what_has_refilled_is_not_owed() {
    let mut ledger = ledger(10);
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
    let mut ledger = ledger(10);
    for _ in 0..3 {
        ledger.add(BucketId(1), debt(4, 100), None, Micros(0));
    }
    assert_eq!(due(&mut ledger, 0), [10]);
}

#[test]
fn it_forgets_the_dead_before_it_leaves_anything_out() {
    let mut ledger = ledger(1);
    ledger.add(BucketId(1), debt(1, 100), None, Micros(0));
    ledger.add(BucketId(2), debt(2, 200), None, Micros(50));
    assert_eq!([ledger.take_left_out(), ledger.take_left_out()], [1, 0]);
    ledger.add(BucketId(3), debt(4, 300), None, Micros(150));
    assert_eq!(ledger.take_left_out(), 0);
    assert_eq!(due(&mut ledger, 160), [4]);
}

#[test]
fn what_is_being_paid_takes_room_until_it_is_paid() {
    let mut ledger = ledger(2);
    ledger.add(BucketId(1), debt(1, 100), None, Micros(0));
    ledger.add(BucketId(2), debt(1, 100), None, Micros(0));
    let paying = ledger.take(false);
    ledger.add(BucketId(3), debt(1, 100), None, Micros(0));
    assert_eq!((ledger.debts(), ledger.take_left_out()), (0, 1));
    ledger.paid(paying.len());
    ledger.add(BucketId(3), debt(1, 100), None, Micros(0));
    assert_eq!((ledger.debts(), ledger.take_left_out()), (1, 0));
}

#[test]
fn a_ledger_full_of_live_debts_is_not_searched_for_each_that_comes() {
    let mut ledger = ledger(1_000);
    for bucket in 0..1_000 {
        ledger.add(BucketId(bucket), debt(1, 100 + bucket as u64), None, Micros(0));
    }
    for bucket in 1_000..2_000 {
        ledger.add(BucketId(bucket), debt(1, 5_000), None, Micros(100));
    }
    assert_eq!(ledger.debts(), 1_000);
    assert!(ledger.left_out_since_search > 900, "at an instant at which one in a thousand is dead");
}

#[test]
fn an_old_uncertain_charge_makes_no_newer_debt_die() {
    let mut ledger = ledger(10);
    let uncertain = UncertainCharge { worker: 0, call: 1, request: 0, pair: None };
    ledger.add(BucketId(1), debt(1, 50), Some(uncertain), Micros(0));
    ledger.add(BucketId(1), debt(2, 100), None, Micros(40));
    ledger.resolve(0, |_| Micros(60), |_, _| Some(RequestOutcome::NotRun));
    assert_eq!(due(&mut ledger, 60), [3]);
}

#[test]
fn what_passed_after_a_call_is_owed_only_if_the_call_did_not_charge_it() {
    let mut ledger = ledger(10);
    for (bucket, worker, call, request) in [(1, 0, 7, 0), (2, 0, 7, 1), (3, 0, 8, 0), (4, 1, 8, 0)]
    {
        let uncertain = UncertainCharge { worker, call, request, pair: None };
        ledger.add(BucketId(bucket), debt(1 << bucket, 100), Some(uncertain), Micros(0));
    }
    assert_eq!(due(&mut ledger, 0), [0; 0]);
    let (admitted, refused) = (admitted(None), RequestOutcome::Refused);
    ledger.resolve(
        0,
        |_| Micros(0),
        |call, request| (call == 7).then_some(if request == 0 { admitted } else { refused }),
    );
    assert_eq!(due(&mut ledger, 0), [4], "the second request of the seventh call was refused");
    ledger.resolve(0, |_| Micros(0), |_, _| Some(RequestOutcome::NotRun));
    assert_eq!(due(&mut ledger, 0), [8], "the eighth was not run");
    ledger.resolve(1, |_| Micros(0), |_, _| Some(RequestOutcome::Lost));
    assert!(ledger.is_empty());
}

/// Of two pairs of a request, the first was charged in bucket 1 here, and bucket 2 is its other; the
/// second in bucket 4, and bucket 3 is its other. Bucket 2 and bucket 3 owe something from before.
#[test]
fn what_a_call_charged_to_the_other_of_a_pair_is_not_owed_by_this_one() {
    let resolved = |outcome: RequestOutcome| {
        let mut ledger = ledger(10);
        [2, 3].into_iter().for_each(|it| ledger.add(BucketId(it), debt(1, 90), None, Micros(0)));
        for (bucket, number, choice, other) in [(1, 0, Choice::First, 2), (4, 1, Choice::Second, 3)]
        {
            let (other, other_until) = (BucketId(other), Micros(100));
            let pair = Some(UncertainPair { number, choice, other, other_until });
            let uncertain = UncertainCharge { worker: 0, call: 7, request: 0, pair };
            ledger.add(BucketId(bucket), debt(8, 100), Some(uncertain), Micros(0));
        }
        ledger.resolve(0, |_| Micros(0), |_, _| Some(outcome));
        let mut late: Vec<_> = ledger.late_charges.keys().map(|it| it.0).collect();
        late.sort_unstable();
        let mut owed: Vec<_> =
            ledger.take(false).into_iter().map(|(it, debt)| (it.0, debt)).collect();
        owed.sort_unstable_by_key(|(bucket, _)| *bucket);
        assert!(owed.iter().all(|(_, debt)| debt.until == Micros(100)), "{owed:?}");
        (owed.iter().map(|(bucket, debt)| (*bucket, debt.cost)).collect::<Vec<_>>(), late)
    };
    let charged = |choices: [PairChoice; 2]| {
        let pairs = PairChoices::default().with(0, choices[0]).with(1, choices[1]);
        resolved(RequestOutcome::Admitted { at: None, pairs })
    };
    let before = vec![(2, 1), (3, 1)];
    use PairChoice::{First, Neither, Second};
    // A late charge counts where there is an older debt.
    assert_eq!(charged([First, Second]), (before.clone(), vec![]));
    assert_eq!(charged([Second, Second]), (before.clone(), vec![2]));
    assert_eq!(charged([First, First]), (before.clone(), vec![3]));
    assert_eq!(charged([Second, First]), (before.clone(), vec![2, 3]));
    assert_eq!(charged([Neither, Neither]), (before, vec![]));
    let owed = vec![(1, 8), (2, 1), (3, 1), (4, 8)];
    assert_eq!(resolved(RequestOutcome::NotRun), (owed.clone(), vec![]));
    assert_eq!(resolved(RequestOutcome::Refused), (owed, vec![]));
}

#[test]
fn a_bucket_is_unpaid_until_its_payment_ends() {
    let (mut ledger, bucket, now) = (ledger(10), BucketId(1), Micros(5));
    ledger.add(bucket, debt(1, 100), None, now);
    assert!(ledger.is_unpaid(bucket, now) && !ledger.is_unpaid(BucketId(2), now));
    assert!(!ledger.is_unpaid(bucket, Micros(100)), "it has refilled");
    let taken = ledger.take(true);
    assert!(ledger.is_unpaid(bucket, now) && !ledger.is_empty(), "its payment is on its way");
    ledger.paid(taken.len());
    ledger.end_payment(std::iter::empty());
    assert!(!ledger.is_unpaid(bucket, now) && ledger.is_empty());
}

#[test]
fn debt_is_dead_once_it_is_by_all_clocks() {
    for spread in [0, 100] {
        let mut ledger = ledger(1);
        ledger.set_clock_spread(Duration::from_micros(spread));
        ledger.add(BucketId(1), debt(1, 50), None, Micros(0));
        // By the clock of the other bucket, which is ahead.
        ledger.add(BucketId(2), debt(1, 200), None, Micros(120));
        assert_eq!(ledger.take_left_out(), u64::from(spread > 0));
        ledger.add(BucketId(3), debt(1, 300), None, Micros(250));
        assert_eq!(ledger.take_left_out(), 0, "it is by both");
    }
}

/// Another gateway has paid at second 8: from then on full buckets lose nothing any more.
#[test]
fn windows_that_have_ended_owe_nothing_whenever_others_have_paid() {
    let second = |count: u64| Micros(count * 1_000_000);
    let rate = Rate::new(1, Duration::from_secs(1)).expect("a rate");
    let bucket = Policy::TokenBucket(TokenBucket::new(rate, 30).expect("a bucket"));
    let cost_of = |policy| {
        let (until, since) = (second(10), second(0));
        let debt = Debt { name: b"a".to_vec(), policy, cost: 9, until, since };
        let mut debts = vec![(BucketId(1), debt)];
        ledger(1).age(&mut debts, second(11), second(8), 1);
        debts.first().map(|(_, debt)| debt.cost)
    };
    assert_eq!(cost_of(window()), None);
    assert_eq!(cost_of(bucket), Some(1));
}
