//! Runs `vectors.toml` against something that decides.

use std::time::Duration;

use serde::Deserialize;
use weir::clock::Micros;
use weir::limit::fixed_window::FixedWindow;
use weir::limit::sliding_window::SlidingWindow;
use weir::limit::token_bucket::TokenBucket;
use weir::limit::{Policy, Rate, Retry};

use crate::decider::{Decider, Engine, on_every_engine};

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
    start: u64,
    steps: Vec<Step>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Numbers {
    count: u64,
    period: u64,
    burst: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    at: u64,
    #[serde(default = "one")]
    cost: u64,
    expect: Expect,
    left: Option<u64>,
    retry: Option<u64>,
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

fn one() -> u64 {
    1
}

impl Vector {
    fn policy(&self, numbers: Numbers) -> Policy {
        let period = Duration::from_micros(numbers.period);
        let rate = Rate::new(numbers.count, period).expect("a rate");
        match self.algorithm.as_str() {
            "token_bucket" => {
                let burst = numbers.burst.unwrap_or(numbers.count);
                Policy::TokenBucket(TokenBucket::new(rate, burst).expect("a bucket"))
            }
            "sliding_window" => Policy::SlidingWindow(SlidingWindow::new(rate)),
            "fixed_window" => Policy::FixedWindow(FixedWindow::new(rate)),
            other => panic!("no algorithm {other}"),
        }
    }

    fn run(&self, decider: &mut impl Decider) {
        let mut policy = self.policy(self.limit);
        for (number, step) in self.steps.iter().enumerate() {
            let place = format!("{}, step {}", self.name, number + 1);
            if let Some(numbers) = step.limit {
                policy = self.policy(numbers);
            }
            let answer = decider.ask(Micros(self.start + step.at), &policy, step.cost);
            let (seen, retry) = match answer.refused {
                None => (Expect::Pass, None),
                Some(Retry::At(at)) => (Expect::Wait, Some(at.0 - self.start)),
                Some(Retry::Never) => (Expect::Never, None),
            };
            assert_eq!(seen, step.expect, "{place}");
            assert_eq!(retry, step.retry, "{place}");
            if let Some(left) = step.left {
                assert_eq!(answer.report.remaining, left, "{place}");
            }
        }
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
