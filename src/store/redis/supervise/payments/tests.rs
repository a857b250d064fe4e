//! What payments that are late say of Redis.

use std::thread;

use tokio::task::yield_now;
use tokio::time::sleep;

use super::*;
use crate::clock::Micros;
use crate::limit::token_bucket::TokenBucket;
use crate::limit::{Policy, Rate};
use crate::store::redis::tests::shared;

/// How long a payment may take without being late, at the least.
const IN_TIME: Duration = Duration::from_millis(20);

/// The supervisor of a gateway with one worker, for which Redis decides.
fn supervisor() -> Supervisor {
    let shared = shared(&format!("timeout = \"{}ms\"", IN_TIME.as_millis()));
    assert!(shared.breaker.half_close(0) && shared.breaker.close(0));
    Supervisor::new(shared)
}

/// One debt is paid by what takes so long.
async fn pay(supervisor: &mut Supervisor, reply: impl Future<Output = ()>) {
    let payment = Payment {
        number: 1,
        begun: Instant::now(),
        slot: 0,
        fence: b"fence".to_vec(),
        debts: vec![(BucketId(7), debt())],
        uncertain: false,
    };
    let made = async {
        reply.await;
        vec![Ok(())]
    };
    assert_eq!(supervisor.watch_time(&[payment], made).await.len(), 1);
}

fn debt() -> Debt {
    let rate = Rate::new(1, Duration::from_secs(1)).expect("a rate");
    let policy = Policy::TokenBucket(TokenBucket::new(rate, 1).expect("a bucket"));
    let (until, since) = (Micros(1), Micros(0));
    Debt { name: b"bucket".to_vec(), policy, cost: 1, until, since }
}

/// The only thread stands still until a payment would be late, as in a stop.
fn stall() {
    thread::sleep(2 * IN_TIME);
}

#[tokio::test]
async fn stalls_of_the_gateway_are_no_late_payments() {
    let mut supervisor = supervisor();
    for _ in 0..LATE_PAYMENTS {
        pay(&mut supervisor, async { stall() }).await;
        // The socket may be looked at after the timer.
        let heard_later = async {
            stall();
            yield_now().await;
        };
        pay(&mut supervisor, heard_later).await;
        // What was not sent before takes its time after.
        let sent_later = async {
            stall();
            sleep(IN_TIME / 2).await;
        };
        pay(&mut supervisor, sent_later).await;
        assert!(!supervisor.shared.breaker.is_silent());
    }
    assert!(!supervisor.shared.breaker.is_open());
}

#[tokio::test]
async fn late_payments_that_are_few_in_a_row_open_nothing() {
    let mut supervisor = supervisor();
    for _ in 0..4 {
        for _ in 1..LATE_PAYMENTS {
            pay(&mut supervisor, sleep(IN_TIME * 3 / 2)).await;
        }
        pay(&mut supervisor, async {}).await;
        assert!(!supervisor.shared.breaker.is_open());
    }
}

#[tokio::test]
async fn payments_late_in_a_row_open_the_breaker_and_so_does_a_single_one() {
    let mut several = supervisor();
    // On a busy machine this process may stand still, and then it was not Redis that was late.
    while !several.shared.breaker.is_open() {
        assert!(several.payments.late < LATE_PAYMENTS);
        pay(&mut several, sleep(IN_TIME * 3 / 2)).await;
    }
    assert_eq!(several.payments.late, 0);
    let mut single = supervisor();
    let mut trips = single.shared.breaker.trips();
    let until_open = async {
        trips.changed().await.expect("a breaker");
    };
    pay(&mut single, until_open).await;
    assert!(single.shared.breaker.is_open());
}
