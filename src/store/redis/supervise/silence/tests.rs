//! What is found out while the supervisor waits.

use std::future::{pending, ready};
use std::sync::Arc;

use tokio::time::sleep;

use super::*;
use crate::clock::Micros;
use crate::limit::token_bucket::TokenBucket;
use crate::limit::{Policy, Rate};
use crate::store::BucketId;
use crate::store::redis::supervise::ledger::Debt;
use crate::store::redis::tests::shared;

/// How long a payment may take without being late, at the least.
const IN_TIME: Duration = Duration::from_millis(20);
/// Long enough for a silence to be found out.
const ENOUGH: Duration = IN_TIME.saturating_mul(3 * LATE_PAYMENTS);

/// What a gateway with one worker shares, for which Redis decides.
fn in_use() -> Arc<RedisShared> {
    let shared = shared(&format!("timeout = \"{}ms\"", IN_TIME.as_millis()));
    assert!(shared.breaker.half_close(0) && shared.breaker.close(0));
    shared
}

fn owe(shared: &RedisShared) {
    let rate = Rate::new(1, Duration::from_secs(1)).expect("a rate");
    let policy = Policy::TokenBucket(TokenBucket::new(rate, 1).expect("a bucket"));
    let (until, since) = (Micros(1), Micros(0));
    let debt = Debt { name: b"bucket".to_vec(), policy, cost: 1, until, since };
    shared.ledger.lock().add(BucketId(7), debt, None, Micros(0));
}

/// Whether the breaker opens while a step takes so long, and Redis answers nothing beside it.
async fn opens_during(shared: &RedisShared, time: Duration) -> bool {
    watch(shared, || pending().boxed(), sleep(time).boxed()).await;
    shared.breaker.is_open()
}

#[tokio::test]
async fn a_slow_step_opens_nothing_while_nobody_waits_for_a_payment() {
    let shared = in_use();
    assert!(!opens_during(&shared, ENOUGH).await, "a slow heartbeat is no strike");
    shared.breaker.begin_silence();
    assert!(!opens_during(&shared, ENOUGH).await, "requests find out by their calls");
    shared.breaker.end_silence();
    owe(&shared);
    assert!(!opens_during(&shared, ENOUGH).await, "it has answered");
}

#[tokio::test]
async fn redis_that_is_silent_while_something_is_owed_is_found_out_whatever_is_waited_for() {
    let shared = in_use();
    owe(&shared);
    // On a machine that is busy for longer than a silence may last, it begins anew.
    while !opens_during(&shared, ENOUGH).await {
        shared.breaker.end_silence();
        shared.breaker.begin_silence();
    }
}

#[tokio::test]
async fn redis_that_answers_is_not_given_up_though_a_payment_has_to_wait() {
    let shared = in_use();
    owe(&shared);
    shared.breaker.begin_silence();
    watch(&shared, || ready(Ok(())).boxed(), sleep(ENOUGH).boxed()).await;
    assert!(!shared.breaker.is_open() && !shared.breaker.is_silent());
}
