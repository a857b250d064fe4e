//! Runs `vectors.toml` against something that decides.

use std::time::Duration;

use serde::Deserialize;
use weir::clock::Micros;
use weir::limit::fixed_window::FixedWindow;
use weir::limit::refill_bucket::RefillBucket;
use weir::limit::sliding_log::SlidingLog;
use weir::limit::sliding_window::SlidingWindow;
use weir::limit::token_bucket::TokenBucket;
use weir::limit::{Policy, Rate, Retry};
use weir::store::Choice;

use crate::decider::{Answer, Ask, CheckMode, Decider, Engine, on_every_engine};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Vectors {
    vector: Vec<Vector>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    name: String,
    algorithm: String,
    limit: Numbers,
    /// The second bucket of a pair.
    second: Option<Second>,
    start: u64,
    steps: Vec<Step>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Second {
    algorithm: String,
    limit: Numbers,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Numbers {
    #[serde(default)]
    count: u64,
    #[serde(default)]
    period: u64,
    burst: Option<u64>,
    refill: Option<Refill>,
    #[serde(default)]
    debt: u64,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Refill {
    every: u64,
    amount: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    at: u64,
    #[serde(default = "one")]
    cost: u64,
    /// For so long it says that it could have passed.
    #[serde(default)]
    waited: u64,
    /// Nothing is asked: so much is charged in any case.
    owe: Option<u64>,
    expect: Option<Expect>,
    left: Option<u64>,
    /// What is left of the second bucket.
    left_second: Option<u64>,
    /// Which of the pair is charged.
    takes: Option<Takes>,
    /// Only the second bucket is asked, by another.
    #[serde(default)]
    second_alone: bool,
    retry: Option<u64>,
    turn: Option<u64>,
    /// The limit has these numbers from this step on.
    limit: Option<Numbers>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Expect {
    Pass,
    Wait,
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Takes {
    First,
    Second,
}

fn one() -> u64 {
    1
}

impl Numbers {
    fn policy(self, algorithm: &str) -> Policy {
        let numbers = self;
        let period = Duration::from_micros(numbers.period);
        let rate = || Rate::new(numbers.count, period).expect("a rate");
        let burst = numbers.burst.unwrap_or(numbers.count);
        let bucket = || TokenBucket::new(rate(), burst).expect("a bucket");
        let policy = match (algorithm, numbers.refill) {
            ("token_bucket", Some(Refill { every, amount })) => {
                let every = Duration::from_micros(every);
                Policy::RefillBucket(RefillBucket::new(every, amount, burst).expect("a bucket"))
            }
            ("token_bucket", None) => Policy::TokenBucket(bucket()),
            ("leaky_bucket", None) => Policy::LeakyBucket(bucket().into()),
            ("sliding_window", None) => Policy::SlidingWindow(SlidingWindow::new(rate())),
            ("sliding_log", None) => Policy::SlidingLog(SlidingLog::new(rate()).expect("a log")),
            ("fixed_window", None) => Policy::FixedWindow(FixedWindow::new(rate())),
            (other, _) => panic!("no algorithm {other}"),
        };
        policy.with_debt(numbers.debt)
    }
}

impl Vector {
    fn run(&self, decider: &mut impl Decider) {
        let mut policy = self.limit.policy(&self.algorithm);
        let second = self.second.as_ref().map(|it| it.limit.policy(&it.algorithm));
        for (number, step) in self.steps.iter().enumerate() {
            let place = format!("{}, step {}", self.name, number + 1);
            if let Some(numbers) = step.limit {
                policy = numbers.policy(&self.algorithm);
            }
            let now = Micros(self.start + step.at);
            if let Some(cost) = step.owe {
                decider.charge_after(now, &Ask { policy: &policy, key: 0, cost });
                let left = decider.ask(now, &policy, 0).report.remaining;
                assert_eq!((None, Some(left)), (step.expect, step.left), "{place}");
                continue;
            }
            let ask = Ask { policy: &policy, key: 0, cost: step.cost };
            let mode = CheckMode { waited: step.waited, ..CheckMode::default() };
            let answer = match &second {
                None => decider.decide_as(now, &[(ask, mode)]).answers[0],
                Some(second) => {
                    let other = Ask { policy: second, key: 1, cost: step.cost };
                    step.ask_pair(decider, now, [ask, other], &place)
                }
            };
            let (seen, retry) = match answer.refused {
                None => (Expect::Pass, None),
                Some(Retry::At(at)) => (Expect::Wait, Some(at.0 - self.start)),
                Some(Retry::Never) => (Expect::Never, None),
            };
            assert_eq!(Some(seen), step.expect, "{place}");
            assert_eq!(retry, step.retry, "{place}");
            if let Some(left) = step.left {
                assert_eq!(answer.report.remaining, left, "{place}");
            }
            if let Some(turn) = step.turn {
                let seen = policy.turn(answer.state, now, step.cost);
                assert_eq!(seen, Duration::from_micros(turn), "{place}");
            }
        }
    }
}

impl Step {
    /// The answer of the second, which says what came of the pair.
    fn ask_pair(
        &self,
        decider: &mut impl Decider,
        now: Micros,
        [first, second]: [Ask<'_>; 2],
        place: &str,
    ) -> Answer {
        let mode = |choice| CheckMode { choice, ..CheckMode::default() };
        if self.second_alone {
            return decider.decide(now, &[second]).answers[0];
        }
        let asks = [(first, mode(Choice::First)), (second, mode(Choice::Second))];
        let outcome = decider.decide_as(now, &asks);
        let [own, other] = [outcome.answers[0], outcome.answers[1]];
        let takes = match (own.refused, other.refused) {
            (None, _) => Some(Takes::First),
            (Some(_), None) => Some(Takes::Second),
            (Some(_), Some(_)) => None,
        };
        assert_eq!(takes, self.takes, "{place}");
        assert_eq!(other.skipped, takes == Some(Takes::First), "{place}");
        assert_eq!(outcome.admitted, takes.is_some(), "{place}");
        if let Some(left) = self.left_second {
            assert_eq!(other.report.remaining, left, "{place}");
        }
        Answer { report: own.report, ..other }
    }
}

/// Every vector starts from an empty store.
fn every_vector_comes_out_as_written(engine: &impl Engine) {
    let vectors: Vectors = toml::from_str(include_str!("vectors.toml")).expect("valid vectors");
    for vector in &vectors.vector {
        vector.run(&mut engine.fresh());
    }
}

on_every_engine! { every_vector_comes_out_as_written }
