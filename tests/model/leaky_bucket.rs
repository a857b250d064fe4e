//! When requests leave a leaky bucket: in the order in which they came, and no faster than its
//! rate.

use std::task::Waker;
use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;
use weir::clock::Micros;
use weir::gateway::pacing::{Departure, PacedCheck, PacedQueues, PacingTicket};
use weir::limit::leaky_bucket::LeakyBucket;
use weir::limit::{Policy, Rate};
use weir::store::BucketId;

use crate::decider::{Answer, Decider, Embedded, Engine, on_every_engine};
use crate::histories::answers;
use crate::reference_model::{Model, rate_of};
use crate::strategies::{Step, bucket, cases, even_bucket, start, steps};

fn leaky(bucket: impl Strategy<Value = Policy>) -> impl Strategy<Value = Policy> {
    bucket.prop_map(|policy| match policy {
        Policy::TokenBucket(it) => Policy::LeakyBucket(it.into()),
        other => other,
    })
}

/// What was admitted when, at which cost, and when it left.
fn departures(
    decider: &mut impl Decider,
    policy: &Policy,
    start: Micros,
    steps: &[Step],
) -> Vec<(Micros, u64, Micros)> {
    let answers = answers(decider, policy, start, steps).into_iter();
    let admitted = answers.filter(|(.., answer)| answer.refused.is_none());
    let departure = |(now, cost, answer): (Micros, u64, Answer)| {
        let wait = policy.turn(answer.state, now, cost).as_micros() as u64;
        (now, cost, Micros(now.0 + wait))
    };
    admitted.map(departure).collect()
}

fn requests_leave_when_all_before_them_have<E: Engine>(engine: &E) {
    proptest!(cases(E::CASES), |(
        policy in leaky(even_bucket()), start in start(), steps in steps(),
    )| {
        let mut model = Model::new(&policy);
        for (now, cost, left) in departures(&mut engine.fresh(), &policy, start, &steps) {
            prop_assert_eq!(left, model.leaves(now));
            model.charge(now, cost);
        }
    });
}

/// Whole microseconds are rounded up, so two instants may be one closer than they would be.
fn requests_leave_in_order_and_no_faster_than_the_rate<E: Engine>(engine: &E) {
    proptest!(cases(E::CASES), |(
        policy in leaky(bucket()), start in start(), steps in steps(),
    )| {
        let departures = departures(&mut engine.fresh(), &policy, start, &steps);
        let (count, period) = (rate_of(&policy).count(), rate_of(&policy).period_us());
        for pair in departures.windows(2) {
            let [(_, cost, left), (came, _, next)] = *pair else { panic!("no pair") };
            prop_assert!(next >= left && next >= came);
            let apart = u128::from(next.0 - left.0 + 1) * u128::from(count);
            prop_assert!(apart >= u128::from(cost) * u128::from(period));
        }
        // An admitted request leaves before an empty bucket would be full.
        let empty = u128::from(policy.quota()) * u128::from(period);
        for (came, cost, left) in departures {
            let waited = u128::from((left.0 - came.0).saturating_sub(1)) * u128::from(count);
            let own = u128::from(cost) * u128::from(period);
            prop_assert!(waited * 999_999 <= (empty - own) * 1_000_000);
        }
    });
}

/// A process in which requests wait their turn, and which stands still now and then.
struct Process<'a> {
    turns: &'a PacedQueues,
    waiting: Vec<PacingTicket<'a>>,
    left: Vec<Instant>,
}

impl Process<'_> {
    /// Has all who wait ask, in any order, as often as it takes until nobody may leave.
    fn wake(&mut self, now: Instant, backwards: bool) {
        loop {
            let before = self.left.len();
            let mut still = Vec::new();
            if backwards {
                self.waiting.reverse();
            }
            for mut request in self.waiting.drain(..) {
                match request.try_leave(now, Waker::noop()) {
                    Departure::Now => self.left.push(now),
                    Departure::At(_) | Departure::Behind => still.push(request),
                }
            }
            self.waiting = still;
            if self.left.len() == before {
                return;
            }
        }
    }
}

/// What leaves is held to a bucket of one and one on top, by what is in the process alone, for all
/// limits that a timer can keep up with. Faster ones let more go at once, and no more than `B`.
#[test]
fn no_interval_sees_more_leave_than_promised_however_long_a_stall() {
    let stall = prop_oneof![6 => 0..2_000_u64, 3 => 0..200_000_u64, 1 => 0..5_000_000_u64];
    let rounds = prop::collection::vec((0..6_usize, stall, any::<bool>()), 1..60);
    proptest!(cases(256), |(
        count in prop_oneof![1..200_u64, 200..20_000_u64], burst in 1..50_u64, rounds in rounds,
    )| {
        let rate = Rate::new(count, Duration::from_secs(1)).expect("a rate");
        let bucket = LeakyBucket::new(rate, burst).expect("a bucket");
        let policy = Policy::LeakyBucket(bucket);
        let (turns, begin, mut decider) = (PacedQueues::default(), Instant::now(), Embedded::new(10));
        let mut process = Process { turns: &turns, waiting: Vec::new(), left: Vec::new() };
        let mut micros = 0;
        for (requests, stall, backwards) in rounds {
            micros += stall;
            let now = begin + Duration::from_micros(micros);
            // Sockets and timers come in any order.
            if backwards {
                process.wake(now, backwards);
            }
            for _ in 0..requests {
                let paced = PacedCheck { bucket: BucketId(1), policy: bucket, cost: 1 };
                let Ok(_room) = process.turns.reserve(&paced, now) else { continue };
                let at = Micros(1_700_000_000_000_000 + micros);
                let answer = decider.ask(at, &policy, 1);
                if answer.refused.is_some() {
                    continue;
                }
                let turn = policy.turn(answer.state, at, 1);
                if turn.is_zero() && !process.turns.has([BucketId(1)], now) {
                    process.left.push(now);
                } else {
                    process.waiting.push(process.turns.join(now + turn, [paced].into()));
                }
            }
            prop_assert!(process.waiting.len() as u64 <= burst + 1 + count / 200);
            process.wake(now, backwards);
        }
        let at_once = if count <= 200 { 1.0 } else { burst as f64 };
        for (first, from) in process.left.iter().enumerate() {
            for (more, to) in process.left[first..].iter().enumerate() {
                let refilled = (*to - *from).as_secs_f64() * count as f64;
                prop_assert!((more + 1) as f64 <= at_once + refilled + 1.0 + 1e-3);
            }
        }
        while !process.waiting.is_empty() {
            micros += 1_000_000;
            process.wake(begin + Duration::from_micros(micros), false);
        }
        let now = begin + Duration::from_micros(micros + 60_000_000);
        prop_assert!(!process.turns.has([BucketId(1)], now), "nothing is left behind");
    });
}

on_every_engine! {
    requests_leave_when_all_before_them_have
    requests_leave_in_order_and_no_faster_than_the_rate
}
