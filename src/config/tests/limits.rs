//! Algorithms, costs, strategies and candidates of limits: what they mean.

use std::time::Duration;

use http::{HeaderName, StatusCode};

use super::{good, limit};
use crate::limit::concurrency::Concurrency;
use crate::limit::refill_bucket::RefillBucket;
use crate::limit::sliding_log::SlidingLog;
use crate::limit::token_bucket::TokenBucket;
use crate::limit::{Cost, CostSource, Limit, Mode, Outcomes, Policy, Rate, Strategy};

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

fn header(name: &'static str) -> HeaderName {
    HeaderName::from_static(name)
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
fn slots_are_counted_in_place_of_a_rate() {
    let policy = means("algorithm = \"concurrency\"\nlimit = 7").policy;
    assert_eq!(policy, Policy::Concurrency(Concurrency::new(7).expect("a limit")));
}

#[test]
fn a_leaky_bucket_is_as_deep_as_its_burst_times_the_allowance() {
    let leaky = "algorithm = \"leaky_bucket\"\nrate = \"10/second\"";
    let policy = |keys: &str| means(&format!("{leaky}\n{keys}")).policy;
    assert_eq!(policy(""), Policy::LeakyBucket(token_bucket(10, 10).into()));
    assert_eq!(policy("burst = 3"), Policy::LeakyBucket(token_bucket(10, 3).into()));
    assert_eq!(
        policy("burst = 3\nburst_allowance = 2"),
        Policy::LeakyBucket(token_bucket(10, 6).into())
    );
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
fn costs_are_numbers_or_told() {
    let cost = |written: &str| means(&format!("rate = \"10/second\"\ncost = {written}")).cost;
    assert_eq!(cost("3"), Cost::Fixed(3));
    assert_eq!(
        cost("{ from = \"header:X-Weight\" }"),
        Cost::Dynamic { from: CostSource::Header(header("x-weight")), default: 1, max: Some(10) }
    );
    assert_eq!(
        cost("{ from = \"query:n\", default = 2, max = 3 }"),
        Cost::Dynamic { from: CostSource::Query("n".to_owned()), default: 2, max: Some(3) }
    );
    assert_eq!(
        cost("{ from = \"response:x-cost\", default = 0, max = 100 }"),
        Cost::Dynamic { from: CostSource::Response(header("x-cost")), default: 0, max: Some(100) }
    );
}

#[test]
fn outcomes_are_statuses_and_classes() {
    let count = |written: &str| {
        let limit = means(&format!("rate = \"10/second\"\ncount = {written}"));
        limit.count.expect("outcomes").0
    };
    assert_eq!(count("\"4xx\""), [(400, 499)]);
    assert_eq!(count("\"100\""), [(100, 100)]);
    assert_eq!(
        count("[\"401\", \"5xx\", \"599\"]"),
        Outcomes(vec![(401, 401), (500, 599), (599, 599)]).0
    );
}

#[test]
fn what_is_charged_later_leaves_room_for_debts() {
    let debt = |keys: &str| {
        let limit = means(&format!("rate = \"10/second\"\n{keys}"));
        limit.policy.deepest() - limit.policy.quota()
    };
    assert_eq!(debt("cost = 3"), 0);
    assert_eq!(debt("cost = { from = \"header:x-cost\", max = 5 }"), 0);
    assert_eq!(debt("count = \"4xx\""), 10);
    assert_eq!(debt("cost = { from = \"response:x-cost\", max = 50 }"), 50);
    assert_eq!(debt("cost = { from = \"response:x-cost\" }"), 10);
    assert_eq!(debt("cost = { from = \"header:x-cost\", max = 5 }\ncount = \"4xx\""), 5);
}

#[test]
fn strategies_carry_what_goes_with_them() {
    let strategy = |keys: &str| means(&format!("rate = \"10/second\"\n{keys}")).strategy;
    let queue = |millis, max_queue| {
        let max_wait = Duration::from_millis(millis);
        Strategy::Queue { max_wait, max_queue }
    };
    assert_eq!(strategy(""), Strategy::Reject);
    assert_eq!(strategy("strategy = \"degrade\""), Strategy::Degrade);
    assert_eq!(strategy("strategy = \"queue\""), queue(3000, 100));
    assert_eq!(strategy("strategy = \"queue\"\nmax_wait = \"1ms\"\nmax_queue = 7"), queue(1, 7));
    let leaky = "algorithm = \"leaky_bucket\"\nstrategy = \"queue\"";
    assert_eq!(strategy(leaky), queue(3000, 100));
}

#[test]
fn limits_carry_their_mode_their_words_and_whether_they_apply() {
    let limit = means("rate = \"10/second\"");
    assert_eq!((limit.mode, limit.enabled, limit.description), (Mode::Enforce, true, None));
    assert_eq!(limit.refusal.status, StatusCode::TOO_MANY_REQUESTS);
    let limit = means(
        "rate = \"10/second\"\nmode = \"shadow\"\nenabled = false\nstatus = 503\n\
         message = \"Später.\"\ndescription = \"Zehn für alle\"",
    );
    assert_eq!((limit.mode, limit.enabled), (Mode::Shadow, false));
    assert_eq!(limit.description.as_deref(), Some("Zehn für alle"));
    assert_eq!(limit.refusal.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(limit.refusal.message.as_deref(), Some("Später."));
    let longest = "ü".repeat(500);
    let limit = means(&format!("rate = \"10/second\"\ndescription = \"{longest}\""));
    assert_eq!(limit.description, Some(longest));
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
        Policy::LeakyBucket(token_bucket(10, 10).into())
    );
    assert_eq!(
        candidate(large, "algorithm = \"sliding_log\""),
        Policy::SlidingLog(SlidingLog::new(rate(10, 1)).expect("a log"))
    );
    let refill = "refill = { every = \"10s\", amount = 20 }";
    assert_eq!(candidate(large, refill), refill_bucket(10, 20, 30));
    assert_eq!(candidate(refill, "burst = 40"), refill_bucket(10, 20, 40));
    let slots = "algorithm = \"concurrency\"\nlimit = 5";
    assert_eq!(candidate(slots, "limit = 6").quota(), 6);
    assert_eq!(candidate(slots, "algorithm = \"token_bucket\", rate = \"5/second\""), bucket(5, 5));
}

#[test]
fn a_candidate_has_as_much_room_for_debts_as_its_limit() {
    let limit = means(
        "rate = \"10/second\"\ncost = { from = \"response:x-cost\", max = 50 }\n\
         candidate = { rate = \"20/second\" }",
    );
    let candidate = limit.candidate.expect("a candidate");
    assert_eq!((limit.policy.deepest(), candidate.deepest()), (60, 70));
}
