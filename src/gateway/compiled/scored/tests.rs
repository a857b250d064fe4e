use std::time::Duration;

use super::*;
use crate::limit::token_bucket::TokenBucket;
use crate::limit::{Key, Rate, Source, State};

fn bucket(count: u64, burst: u64) -> Policy {
    let rate = Rate::new(count, Duration::from_secs(1)).expect("a rate");
    Policy::TokenBucket(TokenBucket::new(rate, burst).expect("a bucket"))
}

fn scored(policy: Policy, overriding: Option<adjust::Numbers>, adaptive: bool) -> ScoredNumbers {
    let limit = Limit { adaptive, ..Limit::new("a", Key(vec![Source::User]), policy) };
    ScoredNumbers::new(&limit, Recipe { policy, overriding }).expect("numbers")
}

/// A state that is as deep as can be, once these numbers have looked at it.
fn clamped(numbers: &Numbers) -> State {
    let now = crate::clock::Micros(1_000_000);
    numbers.policy.clamp(State::new(crate::clock::Micros(u64::MAX >> 12), 0), now)
}

#[test]
fn numbers_of_all_scores_reach_as_deep_as_the_deepest() {
    let numbers = scored(bucket(1, 10), None, true);
    let alone = bucket(1, 10).adaptive(Score::FULL).expect("a limit");
    let deepest = clamped(&Numbers { policy: alone, text: numbers.at(Score::ZERO).text.clone() });
    for score in Score::all() {
        assert_eq!(clamped(numbers.at(score)), deepest, "{score:?}");
    }
    assert_eq!(numbers.at(Score::ZERO).policy.quota(), 10);
    assert_eq!(numbers.at(Score::of_hundredths(55)).policy.quota(), 15);
}

#[test]
fn numbers_that_coexist_reach_as_deep_as_either() {
    let mut ours = scored(bucket(1, 10), None, true);
    let theirs = scored(bucket(1, 100), None, true);
    ours.prepare();
    ours.coexist_with(&theirs);
    assert_eq!(clamped(ours.at(Score::ZERO)), clamped(theirs.at(Score::FULL)));
    assert_eq!(ours.clone().at(Score::FULL).policy, ours.at(Score::FULL).policy);
    let mut plain = scored(bucket(1, 10), None, false);
    plain.coexist_with(&theirs);
    assert_eq!(clamped(plain.at(Score::FULL)), clamped(theirs.at(Score::ZERO)));
    assert_eq!(plain.at(Score::FULL).policy.quota(), 10, "not adaptive");
}

#[test]
fn an_override_keeps_what_it_sets_and_trust_the_rest() {
    let set = adjust::Numbers { burst: Some(3), ..adjust::Numbers::default() };
    let numbers = scored(bucket(1, 10), Some(set), true);
    assert_eq!(numbers.at(Score::FULL).policy.quota(), 3);
    let boost = adjust::Numbers { boost: Some(2.0), ..adjust::Numbers::default() };
    let numbers = scored(bucket(1, 10), Some(boost), true);
    assert_eq!(numbers.at(Score::FULL).policy.quota(), 40);
}
