//! Pairs of buckets: the first of the two that admits is charged, within the one decision of the
//! request.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use weir::clock::{Clock, Micros};
use weir::limit::fixed_window::FixedWindow;
use weir::limit::refill_bucket::RefillBucket;
use weir::limit::sliding_window::SlidingWindow;
use weir::limit::token_bucket::TokenBucket;
use weir::limit::{Policy, Rate, Retry};
use weir::store::{Check, CheckOutcome, Choice, MemoryStore};

use crate::decider::{Answer, Ask, CheckMode, Decider, Engine, Names, Outcome, on_every_engine};
use crate::lua::Redis;
use crate::reference_model::{Model, rate_of};
use crate::strategies::{cases, exact, share, span, start, timed};

const SECOND: Duration = Duration::from_secs(1);

/// Counts and periods that meet each other, and round nothing.
fn small() -> impl Strategy<Value = Policy> {
    let seconds = || (1..10_u32).prop_map(|seconds| SECOND * seconds);
    let rate = move || {
        (1..40_u64, seconds()).prop_map(|(count, period)| Rate::new(count, period).expect("a rate"))
    };
    let refill = (seconds(), 1..20_u64, 1..40_u64).prop_map(|(every, amount, burst)| {
        Policy::RefillBucket(RefillBucket::new(every, amount, burst).expect("a bucket"))
    });
    prop_oneof![
        3 => small_bucket(),
        1 => refill,
        1 => rate().prop_map(|rate| Policy::FixedWindow(FixedWindow::new(rate))),
        1 => rate().prop_map(|rate| Policy::SlidingWindow(SlidingWindow::new(rate))),
    ]
}

/// A token takes a whole number of microseconds.
fn small_bucket() -> impl Strategy<Value = Policy> {
    (0..5_u32, 1..10_u32, 1..40_u64).prop_map(|(bits, seconds, burst)| {
        let rate = Rate::new(1 << bits, SECOND * seconds).expect("a rate");
        Policy::TokenBucket(TokenBucket::new(rate, burst).expect("a bucket"))
    })
}

fn policies() -> impl Strategy<Value = Vec<Policy>> {
    prop::collection::vec(prop_oneof![4 => small(), 1 => exact()], 3..8)
}

/// One pick of a request: a bucket, or two of them.
#[derive(Debug, Clone, Copy)]
struct Pick {
    first: usize,
    second: Option<usize>,
    cost: Cost,
    spends: bool,
    enforced: bool,
    /// With the others that are: see `Check::together`.
    together: bool,
}

#[derive(Debug, Clone, Copy)]
enum Cost {
    Exactly(u64),
    /// Of the first one's quota, in 2^-16.
    Share(u64),
}

#[derive(Debug, Clone)]
struct Step {
    /// By which policy's span time goes on, and by how much of it in 2^-16.
    pace: usize,
    gap: u64,
    picks: Vec<Pick>,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let cost = prop_oneof![
        4 => (0..8_u64).prop_map(Cost::Exactly),
        1 => (0..60_u64).prop_map(Cost::Exactly),
        2 => (0..1_u64 << 17).prop_map(Cost::Share),
    ];
    let second = prop::option::weighted(0.7, any::<usize>());
    let modes = (prop::bool::weighted(0.9), prop::bool::weighted(0.7), prop::bool::weighted(0.7));
    let pick = (any::<usize>(), second, cost, modes);
    let pick = pick.prop_map(|(first, second, cost, (spends, enforced, together))| Pick {
        first,
        second,
        cost,
        spends,
        enforced,
        together,
    });
    let gap = prop_oneof![4 => Just(0), 3 => 0..1_u64 << 13, 2 => 0..1_u64 << 16];
    let step = (any::<usize>(), gap, prop::collection::vec(pick, 1..5))
        .prop_map(|(pace, gap, picks)| Step { pace, gap, picks });
    prop::collection::vec(step, 1..50)
}

impl Step {
    fn after(&self, policies: &[Policy], last: Micros) -> Micros {
        Micros(last.0 + share(self.gap, span(&policies[self.pace % policies.len()])))
    }

    /// No bucket comes twice.
    fn asks<'a>(&self, policies: &'a [Policy]) -> Vec<(Ask<'a>, CheckMode)> {
        let (mut asks, mut taken) = (Vec::new(), HashSet::new());
        for Pick { first, second, cost, spends, enforced, together } in &self.picks {
            let first = first % policies.len();
            let second = second.map(|it| it % policies.len());
            if second == Some(first) || !taken.insert(first) {
                continue;
            }
            if second.is_some_and(|it| !taken.insert(it)) {
                taken.remove(&first);
                continue;
            }
            let cost = match *cost {
                Cost::Exactly(cost) => cost,
                Cost::Share(part) => share(part, policies[first].quota()),
            };
            let mut ask = |key: usize, choice| {
                let ask = Ask { policy: &policies[key], key: key as u64, cost };
                let (spends, enforced, together) = (*spends, *enforced, *together);
                asks.push((ask, CheckMode { spends, enforced, together, choice, waited: 0 }));
            };
            match second {
                None => ask(first, Choice::Alone),
                Some(second) => {
                    ask(first, Choice::First);
                    ask(second, Choice::Second);
                }
            }
        }
        asks
    }
}

/// What the models say of a request, which is charged to them.
fn expected(
    models: &mut [Model],
    now: Micros,
    asks: &[(Ask<'_>, CheckMode)],
) -> (bool, Vec<(Option<Retry>, bool)>) {
    let mut said: Vec<(Option<Retry>, bool)> = Vec::new();
    let mut admitted = true;
    for (at, (ask, mode)) in asks.iter().enumerate() {
        let refused = models[ask.key as usize].refusal(now, ask.cost);
        said.push(match mode.choice {
            Choice::Alone | Choice::First => (refused, false),
            Choice::Second => match said[at - 1].0 {
                None => (None, true),
                Some(first) => (refused.map(|second| second.min(first)), false),
            },
        });
        admitted &= !mode.enforced || mode.choice == Choice::First || said[at].0.is_none();
    }
    let bound = |mode: &CheckMode| mode.together && !mode.enforced;
    let bound_refuses = asks.iter().zip(&said).any(|((_, mode), (refused, _))| {
        bound(mode) && mode.choice != Choice::First && refused.is_some()
    });
    for ((ask, mode), (refused, skipped)) in asks.iter().zip(&said) {
        let withheld = bound_refuses && bound(mode);
        if admitted && mode.spends && refused.is_none() && !skipped && !withheld {
            models[ask.key as usize].charge(now, ask.cost);
        }
    }
    (admitted, said)
}

fn requests_with_pairs_agree_with_the_model<E: Engine>(engine: &E) {
    proptest!(cases(3 * E::CASES), |(
        policies in policies(), start in start(), steps in steps(),
    )| {
        let mut decider = engine.fresh();
        let mut models: Vec<Model> = policies.iter().map(Model::new).collect();
        for (now, step) in timed(steps, start, |it, now| it.after(&policies, now)) {
            let asks = step.asks(&policies);
            let (admitted, said) = expected(&mut models, now, &asks);
            let outcome = decider.decide_as(now, &asks);
            prop_assert_eq!(outcome.admitted, admitted);
            for (((ask, _), answer), said) in asks.iter().zip(&outcome.answers).zip(said) {
                prop_assert_eq!((answer.refused, answer.skipped), said);
                prop_assert_eq!(answer.report, models[ask.key as usize].report(now));
            }
        }
    });
}

/// Refunded at once, to the bucket that was charged, a request leaves no trace.
fn what_was_charged_of_a_pair_can_be_refunded<E: Engine>(engine: &E) {
    proptest!(cases(E::CASES), |(
        policies in policies(), start in start(), steps in steps(),
    )| {
        let mut decider = engine.fresh();
        let steps = timed(steps, start, |it, now| it.after(&policies, now));
        for (number, (now, step)) in steps.enumerate() {
            let asks = step.asks(&policies);
            let peeks: Vec<_> =
                asks.iter().map(|(ask, _)| (Ask { cost: 0, ..*ask }, CheckMode::default())).collect();
            let before = decider.decide_as(now, &peeks);
            let outcome = decider.decide_as(now, &asks);
            if number % 2 == 0 || !outcome.admitted {
                continue;
            }
            for ((ask, mode), answer) in asks.iter().zip(&outcome.answers) {
                let charged = answer.refused.is_none() && !answer.skipped && !answer.withheld;
                if mode.spends && charged && ask.cost > 0 {
                    decider.refund(now, ask, now);
                }
            }
            let after = decider.decide_as(now, &peeks);
            for (after, before) in after.answers.iter().zip(&before.answers) {
                prop_assert_eq!(after.report, before.report);
            }
        }
    });
}

/// One with a guarantee beside others who flood the pool, all at random instants.
fn a_flood_of_the_pool_refuses_nobody_whose_guarantee_admits<E: Engine>(engine: &E) {
    let event = (0..1_u64 << 15, 0..12_u64, any::<bool>());
    proptest!(cases(E::CASES), |(
        guarantee in small(), pool in small(), start in start(),
        events in prop::collection::vec(event, 1..80),
    )| {
        let (mut decider, mut now) = (engine.fresh(), start);
        let mut own = Model::new(&guarantee);
        for (gap, cost, guaranteed) in events {
            if !guaranteed {
                // Takes whatever there is.
                while cost > 0 && decider.decide(now, &[pool_ask(&pool, cost)]).admitted {}
                continue;
            }
            now = Micros(now.0 + share(gap, span(&guarantee)));
            let admits = own.refusal(now, cost).is_none();
            let outcome = decider.decide_as(now, &pair(&guarantee, &pool, cost));
            if admits {
                own.charge(now, cost);
                prop_assert!(outcome.admitted && outcome.answers[1].skipped);
            } else {
                prop_assert!(outcome.answers[0].refused.is_some());
            }
        }
    });
}

fn pool_ask(pool: &Policy, cost: u64) -> Ask<'_> {
    Ask { policy: pool, key: 1, cost }
}

/// The first on bucket 0, the second on bucket 1.
fn pair<'a>(first: &'a Policy, second: &'a Policy, cost: u64) -> [(Ask<'a>, CheckMode); 2] {
    let mode = |choice| CheckMode { choice, ..CheckMode::default() };
    let own = Ask { policy: first, key: 0, cost };
    [(own, mode(Choice::First)), (pool_ask(second, cost), mode(Choice::Second))]
}

/// Over any interval, no more than both bursts and both rates together.
fn a_pair_admits_no_more_than_both_of_it<E: Engine>(engine: &E) {
    let event = (0..1_u64 << 14, 0..50_u64, any::<bool>());
    proptest!(cases(E::CASES), |(
        policies in (small_bucket(), small_bucket()), start in start(),
        events in prop::collection::vec(event, 1..80),
    )| {
        let (first, second) = &policies;
        let (mut decider, mut now, mut history) = (engine.fresh(), start, Vec::new());
        for (gap, cost, both) in events {
            now = Micros(now.0 + share(gap, span(first).min(span(second))));
            let outcome = match both {
                true => decider.decide_as(now, &pair(first, second, cost)),
                false => decider.decide(now, &[pool_ask(second, cost)]),
            };
            if outcome.admitted {
                history.push((now, u128::from(cost)));
            }
        }
        let numbers = [first, second].map(|policy| {
            let rate = rate_of(policy);
            (u128::from(rate.count()), u128::from(rate.period_us()), u128::from(policy.quota()))
        });
        let [(count, period, burst), (other_count, other_period, other_burst)] = numbers;
        for from in 0..history.len() {
            let mut admitted = 0;
            for (at, cost) in &history[from..] {
                admitted += cost;
                let time = u128::from(at.0 - history[from].0.0);
                let allowed = (burst + other_burst) * period * other_period
                    + time * (count * other_period + other_count * period);
                prop_assert!(admitted * period * other_period <= allowed);
            }
        }
    });
}

fn told(outcome: &Outcome) -> Vec<&'static str> {
    let of = |answer: &Answer| match (answer.refused, answer.skipped) {
        (None, false) => "charged",
        (None, true) => "skipped",
        (Some(_), _) => "refuses",
    };
    outcome.answers.iter().map(of).collect()
}

/// A watched pair refuses nobody, and is charged like any other.
fn a_watched_pair_is_charged_and_refuses_nobody(engine: &impl Engine) {
    let rate = Rate::new(1, SECOND * 3_600).expect("a rate");
    let policy = Policy::FixedWindow(FixedWindow::new(rate));
    let (mut decider, now) = (engine.fresh(), Micros(1_700_000_000_000_000));
    let watched =
        pair(&policy, &policy, 1).map(|(ask, mode)| (ask, CheckMode { enforced: false, ..mode }));
    for expected in [["charged", "skipped"], ["refuses", "charged"], ["refuses", "refuses"]] {
        let outcome = decider.decide_as(now, &watched);
        assert!(outcome.admitted);
        assert_eq!(told(&outcome), expected);
    }
}

/// More checks than a verdict has bits, all of them pairs but the last.
fn the_most_pairs_that_a_request_may_have_are_told_exactly(engine: &impl Engine) {
    let rate = Rate::new(1, SECOND * 3_600).expect("a rate");
    let policy = Policy::FixedWindow(FixedWindow::new(rate));
    let (mut decider, now) = (engine.fresh(), Micros(1_700_000_000_000_000));
    let ask = |key, choice| {
        (Ask { policy: &policy, key, cost: 1 }, CheckMode { choice, ..CheckMode::default() })
    };
    // Of every second pair the first is spent, and of every third both are.
    for pair in 0..Choice::MOST_PAIRS as u64 {
        if pair % 2 == 1 {
            assert!(decider.decide_as(now, &[ask(2 * pair, Choice::Alone)]).admitted);
        }
    }
    let watching = |(ask, mode)| (ask, CheckMode { enforced: false, ..mode });
    let mut asks = Vec::new();
    for pair in 0..Choice::MOST_PAIRS as u64 {
        asks.extend([ask(2 * pair, Choice::First), ask(2 * pair + 1, Choice::Second)]);
    }
    asks.push(watching(ask(1_000, Choice::Alone)));
    let outcome = decider.decide_as(now, &asks);
    assert!(outcome.admitted);
    let expected = (0..Choice::MOST_PAIRS).flat_map(|pair| match pair % 2 {
        0 => ["charged", "skipped"],
        _ => ["refuses", "charged"],
    });
    assert_eq!(told(&outcome), expected.chain(["charged"]).collect::<Vec<_>>());
}

on_every_engine! {
    requests_with_pairs_agree_with_the_model
    what_was_charged_of_a_pair_can_be_refunded
    a_flood_of_the_pool_refuses_nobody_whose_guarantee_admits
    a_pair_admits_no_more_than_both_of_it
    a_watched_pair_is_charged_and_refuses_nobody
    the_most_pairs_that_a_request_may_have_are_told_exactly
}

/// The same with a journal at each bucket, as where another hash slot may yet refuse; and late
/// refunds of what was charged are as if the request had never been made.
#[test]
fn a_tentative_charge_to_one_of_a_pair_is_refunded_late_as_if_never_made() {
    let redis = Redis::start();
    let event = (0..1_u64 << 13, 0..6_u64, prop::option::of(0..4_usize));
    proptest!(cases(Redis::CASES), |(
        policies in (small_bucket(), small_bucket()), start in start(),
        events in prop::collection::vec(event, 1..12),
    )| {
        let (first, second) = &policies;
        let (mut lua, mut now) = (redis.fresh(), start);
        lua.tentative = true;
        let mut due: Vec<(usize, Ask<'_>, Micros)> = Vec::new();
        let mut kept: Vec<(Ask<'_>, Micros)> = Vec::new();
        for (number, (gap, cost, refunded)) in events.iter().enumerate() {
            now = Micros(now.0 + share(*gap, span(first).min(span(second))));
            let asks = pair(first, second, *cost + 1);
            let outcome = lua.decide_as(now, &asks);
            let chosen = asks.iter().zip(&outcome.answers).find(|(_, answer)| {
                answer.refused.is_none() && !answer.skipped
            });
            if let Some(((ask, _), _)) = chosen {
                match refunded {
                    Some(later) => due.push((number + later, *ask, now)),
                    None => kept.push((*ask, now)),
                }
            }
            for (_, ask, at) in due.extract_if(.., |(when, ..)| *when <= number) {
                lua.refund(now, &ask, at);
            }
        }
        for (_, ask, at) in due {
            lua.refund(now, &ask, at);
        }
        for (key, policy) in [first, second].into_iter().enumerate() {
            let mut model = Model::new(policy);
            for (ask, at) in kept.iter().filter(|(ask, _)| ask.key == key as u64) {
                model.charge(*at, ask.cost);
            }
            let peek = lua.decide(now, &[Ask { policy, key: key as u64, cost: 0 }]);
            prop_assert_eq!(peek.answers[0].report, model.report(now));
        }
    });
}

/// Threads that flood a pool, beside as many that have a guarantee of their own each.
#[test]
fn threads_that_flood_a_pool_never_starve_a_guarantee() {
    const THREADS: u64 = 16;
    let rate = Rate::new(1, SECOND * 3_600).expect("a rate");
    let bucket = |burst| Policy::TokenBucket(TokenBucket::new(rate, burst).expect("a bucket"));
    let (guarantee, pool) = (bucket(200), bucket(500));
    for max_keys in [100, 1_000_000] {
        let clock = Clock::manual(Micros(1_700_000_000_000_000));
        let (store, names) = (MemoryStore::new(max_keys, clock), Names::new());
        let [guaranteed, flooded, refused] = [0, 0, 0].map(AtomicU64::new);
        let pool_check = || names.check(&Ask { policy: &pool, key: 0, cost: 1 });
        std::thread::scope(|scope| {
            for thread in 1..=THREADS {
                let (guaranteed, flooded) = (&guaranteed, &flooded);
                let (store, names, refused) = (&store, &names, &refused);
                let (guarantee, pool_check) = (&guarantee, &pool_check);
                scope.spawn(move || {
                    for _ in 0..400 {
                        let admitted = store
                            .decide_now(&[pool_check()], &mut [CheckOutcome::default()])
                            .admitted;
                        flooded.fetch_add(u64::from(admitted), Ordering::Relaxed);
                    }
                });
                scope.spawn(move || {
                    for asked in 0..400_u64 {
                        let own = names.check(&Ask { policy: guarantee, key: thread, cost: 1 });
                        let checks = [
                            Check { choice: Choice::First, ..own },
                            Check { choice: Choice::Second, ..pool_check() },
                        ];
                        let mut outcomes = [CheckOutcome::default(); 2];
                        let admitted = store.decide_now(&checks, &mut outcomes).admitted;
                        guaranteed.fetch_add(u64::from(admitted), Ordering::Relaxed);
                        refused.fetch_add(u64::from(!admitted && asked < 200), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(refused.into_inner(), 0, "its guarantee had something left");
        let passed = guaranteed.into_inner() + flooded.into_inner();
        assert_eq!(passed, THREADS * 200 + 500);
    }
}
