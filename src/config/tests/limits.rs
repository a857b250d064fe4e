//! Algorithms and candidates of limits: what they mean.

use std::time::Duration;

use super::{good, limit};
use crate::limit::concurrency::Concurrency;
use crate::limit::refill::RefillBucket;
use crate::limit::sliding_log::SlidingLog;
use crate::limit::token_bucket::TokenBucket;
use crate::limit::{Limit, Policy, Rate};

/// A limit by address with more keys, without a warning.
fn means(keys: &str) -> Limit {
    let loaded = good(&limit(&format!("key = \"ip\"\n{keys}")));
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    loaded.settings.limits[0].clone()
}

fn rate(count: u64, seconds: u64) -> Rate {
    Rate::new(count, Duration::from_secs(seconds)).expect("a rate")
}

fn token_bucket(count: u64, burst: u64) -> TokenBucket {
    TokenBucket::new(rate(count, 1), burst).expect("a bucket")
}

fn refill_bucket(every: u64, amount: u64, burst: u64) -> Policy {
    let every = Duration::from_secs(every);
    Policy::RefillBucket(RefillBucket::new(every, amount, burst).expect("a bucket"))
}

#[test]
fn every_algorithm_is_known_by_its_name() {
    for (keys, name) in [
        ("", "token_bucket"),
        ("algorithm = \"token_bucket\"", "token_bucket"),
        ("algorithm = \"sliding_window\"", "sliding_window"),
        ("algorithm = \"sliding_log\"", "sliding_log"),
        ("algorithm = \"fixed_window\"", "fixed_window"),
        ("algorithm = \"leaky_bucket\"", "leaky_bucket"),
    ] {
        let policy = means(&format!("rate = \"10/second\"\n{keys}")).policy;
        assert_eq!((policy.algorithm(), policy.quota()), (name, 10));
    }
}

#[test]
fn places_are_counted_in_place_of_a_rate() {
    let policy = means("algorithm = \"concurrency\"\nlimit = 7").policy;
    assert_eq!(policy, Policy::Concurrency(Concurrency::new(7).expect("a limit")));
}

#[test]
fn a_leaky_bucket_is_as_deep_as_its_burst_times_the_allowance() {
    let leaky = "algorithm = \"leaky_bucket\"\nrate = \"10/second\"";
    let policy = |keys: &str| means(&format!("{leaky}\n{keys}")).policy;
    assert_eq!(policy(""), Policy::LeakyBucket(token_bucket(10, 10)));
    assert_eq!(policy("burst = 3"), Policy::LeakyBucket(token_bucket(10, 3)));
    assert_eq!(policy("burst = 3\nburst_allowance = 2"), Policy::LeakyBucket(token_bucket(10, 6)));
}

#[test]
fn refills_stand_in_for_a_rate_or_beside_it() {
    let refill = "refill = { every = \"10s\", amount = 20 }\n";
    let policy = |keys: &str| means(&format!("{refill}{keys}")).policy;
    assert_eq!(policy(""), refill_bucket(10, 20, 20));
    assert_eq!(policy("burst = 50"), refill_bucket(10, 20, 50));
    assert_eq!(policy("burst_allowance = 1.5"), refill_bucket(10, 20, 30));
    assert_eq!(policy("rate = \"120/minute\""), refill_bucket(10, 20, 120));
    assert_eq!(policy("rate = \"120/minute\"\nburst = 30"), refill_bucket(10, 20, 30));
}

#[test]
fn a_candidate_takes_from_its_limit_what_it_does_not_say() {
    let candidate = |limit: &str, keys: &str| {
        means(&format!("{limit}\ncandidate = {{ {keys} }}")).candidate.expect("a candidate")
    };
    let bucket = |count, burst| Policy::TokenBucket(token_bucket(count, burst));
    let plain = "rate = \"10/second\"";
    assert_eq!(candidate(plain, "rate = \"5/second\""), bucket(5, 5));
    assert_eq!(candidate(plain, "burst = 20"), bucket(10, 20));
    assert_eq!(candidate(plain, "burst_allowance = 2"), bucket(10, 20));
    let large = "rate = \"10/second\"\nburst = 30";
    assert_eq!(candidate(large, "rate = \"5/second\""), bucket(5, 30));
    assert_eq!(
        candidate(large, "algorithm = \"token_bucket\", rate = \"5/second\""),
        bucket(5, 30)
    );
    // Of another algorithm it takes nothing but the rate.
    assert_eq!(
        candidate(large, "algorithm = \"leaky_bucket\""),
        Policy::LeakyBucket(token_bucket(10, 10))
    );
    assert_eq!(
        candidate(large, "algorithm = \"sliding_log\""),
        Policy::SlidingLog(SlidingLog::new(rate(10, 1)).expect("a log"))
    );
    let refill = "refill = { every = \"10s\", amount = 20 }";
    assert_eq!(candidate(large, refill), refill_bucket(10, 20, 30));
    assert_eq!(candidate(refill, "burst = 40"), refill_bucket(10, 20, 40));
    let places = "algorithm = \"concurrency\"\nlimit = 5";
    assert_eq!(candidate(places, "limit = 6").quota(), 6);
    assert_eq!(
        candidate(places, "algorithm = \"token_bucket\", rate = \"5/second\""),
        bucket(5, 5)
    );
}
