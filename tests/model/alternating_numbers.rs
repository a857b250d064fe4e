//! Several sets of numbers that alternate on one bucket: under each of them no more passes than
//! it promises by itself, and a refusal leaves the bucket as it was.

use proptest::prelude::*;
use weir::clock::Micros;
use weir::limit::adjust::Numbers;
use weir::limit::{Policy, Retry};

use crate::bucket_bound::holds_everywhere;
use crate::decider::{Ask, CheckMode, Decider, Embedded, Engine, on_every_engine};
use crate::log_bound::holds_in_every_window;
use crate::lua::{Lua, Redis};
use crate::reference_model::{Model, pace_of, rate_of, window_of};
use crate::strategies::{
    LATEST, bucket, cases, gap, log, refill_bucket, share, small_log, span, start, timed, window,
};

/// A bucket as it is kept, whatever anybody makes of it.
pub(crate) trait Kept: Decider {
    fn kept(&self, ask: &Ask<'_>) -> String;
}

impl Kept for Embedded {
    fn kept(&self, ask: &Ask<'_>) -> String {
        format!("{:?}", self.store.state(self.names.check(ask).bucket))
    }
}

impl Kept for Lua<'_> {
    fn kept(&self, ask: &Ask<'_>) -> String {
        let text: Option<String> = self.redis.ask(::redis::cmd("GET").arg(&self.name(ask)));
        text.unwrap_or_default()
    }
}

/// One request under one of the sets of numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) which: usize,
    /// By whose span time goes on, and by how much of it in 2^-16.
    pub(crate) pace: usize,
    pub(crate) gap: u64,
    /// A share of the quota in 2^-16.
    pub(crate) cost: u64,
    /// Whether it is charged without being asked.
    pub(crate) charge_after: bool,
    /// Whether it comes as soon as the last refusal has promised.
    pub(crate) promised: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let gap = gap(6, [(3, 12), (2, 15), (1, 17)]);
    let cost = prop_oneof![3 => 0..1_u64 << 13, 2 => 0..=1_u64 << 16];
    let step = (
        any::<usize>(),
        any::<usize>(),
        gap,
        cost,
        prop::bool::weighted(0.05),
        prop::bool::weighted(0.2),
    );
    let step = step.prop_map(|(which, pace, gap, cost, charge_after, promised)| Step {
        which,
        pace,
        gap,
        cost,
        charge_after,
        promised,
    });
    prop::collection::vec(step, 1..120)
}

/// The same limit with other numbers, as overrides make them: windows stay as long as they are.
fn boosted(policy: Policy, tenths: u64) -> Option<Policy> {
    let boost = Some(tenths as f64 / 10.0);
    policy.adjusted(&Numbers { rate: None, burst: None, boost }).ok()
}

/// Two or three sets of numbers for one bucket, each beside the others, some with room for debts.
fn numbers() -> impl Strategy<Value = Vec<Policy>> {
    let alike = |all: &Vec<Policy>| all.iter().all(|it| it.kind() == all[0].kind());
    let some = || 2..=3_usize;
    let boosts = || prop::collection::vec(1..200_u64, 1..=2);
    let with_boosts = |(policy, boosts): (Policy, Vec<u64>)| {
        let more = boosts.into_iter().map(|tenths| boosted(policy, tenths));
        std::iter::once(Some(policy)).chain(more).collect::<Option<Vec<_>>>()
    };
    let sets = prop_oneof![
        3 => prop::collection::vec(bucket(), some()).prop_filter("another algorithm", alike),
        2 => (bucket(), boosts()).prop_filter_map("out of range", with_boosts),
        2 => (refill_bucket(), boosts()).prop_filter_map("out of range", with_boosts),
        3 => (window(), boosts()).prop_filter_map("out of range", with_boosts),
        2 => (small_log(), boosts()).prop_filter_map("out of range", with_boosts),
        2 => prop::collection::vec(small_log(), some()),
        1 => prop::collection::vec(log(), some()),
    ];
    let debts = prop::collection::vec(prop_oneof![2 => Just(0), 1 => 0..1_u64 << 17], 3);
    (sets, debts).prop_map(|(set, debts)| {
        let debt = |policy: Policy, part| policy.with_debt(share(part, policy.quota()));
        let set: Vec<Policy> = set.iter().zip(debts).map(|(it, part)| debt(*it, part)).collect();
        beside_each_other(&set)
    })
}

pub(crate) fn beside_each_other(set: &[Policy]) -> Vec<Policy> {
    set.iter().map(|policy| set.iter().fold(*policy, Policy::beside)).collect()
}

/// The promise of one set of numbers, over what was admitted under it.
fn keeps_its_promise(policy: &Policy, history: &[(Micros, u64)]) -> Result<(), TestCaseError> {
    match policy {
        Policy::TokenBucket(_) | Policy::LeakyBucket(_) => {
            holds_everywhere(history, rate_of(policy), policy.quota())
        }
        Policy::RefillBucket(_) => {
            let (amount, every) = pace_of(policy);
            for (first, (begin, _)) in history.iter().enumerate() {
                let mut admitted = 0;
                for (at, cost) in &history[first..] {
                    admitted += u128::from(*cost);
                    let refills = u128::from((at.0 - begin.0) / every) + 1;
                    let most = u128::from(policy.quota()) + refills * u128::from(amount);
                    prop_assert!(admitted <= most, "{} of {}", admitted, most);
                }
            }
            Ok(())
        }
        Policy::FixedWindow(_) => {
            for (first, _) in history {
                let same = |at| window_of(policy, at) == window_of(policy, *first);
                let inside = history.iter().filter(|(at, _)| same(*at)).map(|(_, cost)| cost);
                prop_assert!(inside.sum::<u64>() <= policy.quota());
            }
            Ok(())
        }
        Policy::SlidingLog(it) => {
            holds_in_every_window(history, it.rate().count(), it.rate().period_us())
        }
        // By the level, which is what it promises, of what these numbers have admitted.
        Policy::SlidingWindow(_) => {
            let mut model = Model::new(policy);
            for (at, cost) in history {
                prop_assert_eq!(model.refusal(*at, *cost), None);
                model.charge(*at, *cost);
            }
            Ok(())
        }
        Policy::Concurrency(_) => Ok(()),
    }
}

/// Requests one after another, each by one of several sets of numbers on one bucket: none admits more
/// than it promises, and a refusal writes nothing.
pub(crate) fn each_keeps_its_promise<D: Kept>(
    decider: &mut D,
    set: &[Policy],
    start: Micros,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let (mut now, mut promised) = (start, None);
    let mut admitted = vec![Vec::new(); set.len()];
    for step in steps {
        let which = step.which % set.len();
        let policy = &set[which];
        now = match promised {
            Some(at) if step.promised => now.max(at),
            _ => Micros(now.0 + share(step.gap, span(&set[step.pace % set.len()]))),
        };
        if now > LATEST {
            break;
        }
        let ask = Ask { policy, key: 0, cost: share(step.cost, policy.quota()).max(1) };
        if step.charge_after {
            decider.charge_after(now, &ask);
            continue;
        }
        let before = decider.kept(&ask);
        let answer = decider.decide(now, &[ask]).answers[0];
        promised = None;
        match answer.refused {
            None => admitted[which].push((now, ask.cost)),
            Some(retry) => {
                prop_assert_eq!(decider.kept(&ask), before, "a refusal writes nothing");
                if let Retry::At(at) = retry {
                    prop_assert!(at > now);
                    promised = Some(at);
                }
            }
        }
    }
    for (policy, history) in set.iter().zip(&admitted) {
        keeps_its_promise(policy, history)?;
    }
    Ok(())
}

fn no_set_of_numbers_admits_more_than_it_promises<E: Engine>(engine: &E)
where
    for<'a> E::Decider<'a>: Kept,
{
    proptest!(cases(4 * E::CASES), |(
        set in numbers(), start in start(), steps in steps(),
    )| {
        each_keeps_its_promise(&mut engine.fresh(), &set, start, &steps)?;
    });
}

/// A cost passes at the promised instant, whichever numbers made the bucket as deep as it is.
fn a_request_at_the_promised_instant_passes<E: Engine>(engine: &E) {
    proptest!(cases(E::CASES), |(
        set in numbers(), start in start(), steps in steps(),
    )| {
        let (mut decider, mut now) = (engine.fresh(), start);
        for step in steps {
            let policy = &set[step.which % set.len()];
            now = Micros(now.0 + share(step.gap, span(&set[step.pace % set.len()])));
            if now > LATEST {
                break;
            }
            let cost = share(step.cost, policy.quota()).max(1);
            if let Some(Retry::At(at)) = decider.ask(now, policy, cost).refused {
                let early = decider.ask(Micros(at.0 - 1), policy, cost).refused;
                prop_assert_eq!(early, Some(Retry::At(at)));
                prop_assert_eq!(decider.ask(at, policy, cost).refused, None);
                now = at;
            }
        }
    });
}

on_every_engine! {
    no_set_of_numbers_admits_more_than_it_promises
    a_request_at_the_promised_instant_passes
}

#[test]
fn numbers_may_alternate_within_one_call() {
    let redis = Redis::start();
    proptest!(cases(100), |(
        set in numbers(), start in start(), steps in steps(),
    )| {
        let (mut together, mut alone) = (redis.fresh(), Embedded::new(100));
        let after = |some: &&[Step], now: Micros| {
            Micros(now.0 + share(some[0].gap, span(&set[some[0].pace % set.len()])))
        };
        for (now, some) in timed(steps.chunks(5), start, after) {
            let asks: Vec<Vec<_>> = some.iter().map(|step| {
                let policy = &set[step.which % set.len()];
                let cost = share(step.cost, policy.quota());
                vec![(Ask { policy, key: 0, cost }, CheckMode::default())]
            }).collect();
            for (ask, outcome) in asks.iter().zip(together.decide_all(now, &asks)) {
                prop_assert_eq!(outcome, alone.decide_as(now, ask));
            }
        }
    });
}
