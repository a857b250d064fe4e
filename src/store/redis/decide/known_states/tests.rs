//! What workers hear of one bucket, in every order: never is less charged to the known state than has
//! passed, and in the end it is exactly that.

use std::collections::HashMap;
use std::time::Duration;

use super::*;
use crate::clock::Micros;
use crate::config::settings::StoreKind;
use crate::config::{self, settings};
use crate::limit::sliding_log::SlidingLog;
use crate::limit::sliding_window::SlidingWindow;
use crate::limit::token_bucket::TokenBucket;
use crate::limit::{Rate, Verdict};
use crate::store::redis::StoreShape;
use crate::store::redis::decide::call_outcomes::RequestOutcome;
use crate::store::redis::supervise::fallback::{self, ChargeNote};
use crate::store::redis::supervise::ledger::{Debts, UncertainCharge};
use crate::store::redis::tests as redis_tests;
use crate::store::redis::wire::pair_choices::PairChoices;
use crate::store::{BucketKeys, Check, CheckOutcome, CheckSet, StoreContext};
use crate::telemetry::{AuditLog, Metrics};
use Event::*;

const BUCKET: BucketId = BucketId(7);
const HOUR: u64 = 3_600_000_000;

/// What happens to the call of a worker, each of which has one, or to the debts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Send(usize),
    /// Redis decides it.
    Run(usize),
    /// Its reply is heard in time.
    Hear(usize),
    /// Its time is over: the request passes here.
    GiveUp(usize),
    HearLate(usize),
    /// It becomes known that Redis never runs it.
    HearNotRun(usize),
    /// Debts are taken out to be paid, with Redis in use or not.
    Take {
        in_use: bool,
    },
    Pay,
    ConfirmPayment,
}

/// One gateway with several workers, and a Redis.
struct Model {
    shared: RedisShared,
    policy: Policy,
    /// The bucket in Redis, and the instant of its clock.
    there: State,
    at: Micros,
    sent: HashMap<usize, Instant>,
    /// What Redis has said to each call, and when.
    replies: HashMap<usize, (State, Micros)>,
    debts: Debts,
    passed: u64,
}

impl Model {
    fn new(settings: &settings::Store, context: StoreContext<'_>) -> Self {
        let StoreKind::Redis(redis) = &settings.kind else { panic!("a store in Redis") };
        let worker_store = Box::new(|_: &_| unreachable!("no worker is started"));
        let shape = StoreShape { kind: "redis", worker_store };
        let shared = RedisShared::new(shape, redis, settings, context);
        let rate = Rate::new(1, Duration::from_secs(3600)).expect("a rate");
        let policy = Policy::TokenBucket(TokenBucket::new(rate, 100).expect("a bucket"));
        let (at, debts) = (shared.clock.now(), Debts::new());
        let (there, sent, replies) = (State::default(), HashMap::new(), HashMap::new());
        Model { shared, policy, there, at, sent, replies, debts, passed: 0 }
    }

    fn happens(&mut self, event: Event) {
        self.at.0 += 1;
        match event {
            Send(worker) => {
                self.sent.insert(worker, clock::now());
            }
            Run(worker) => {
                let Verdict::Admit(state) = self.policy.evaluate(self.there, self.at, 1) else {
                    panic!("there is enough for all");
                };
                self.there = state;
                self.replies.insert(worker, (state, self.at));
            }
            Hear(worker) => {
                let (state, at) = self.replies[&worker];
                let times = ReplyTimes { sent: self.sent[&worker], at };
                let (bucket, policy) = (BUCKET, &self.policy);
                self.shared.note_state(&ToldState { bucket, policy, state, cost: 1, times });
                self.passed += 1;
            }
            GiveUp(worker) => {
                let check = Check::new(&self.policy, 0, BUCKET, 1);
                let keys = BucketKeys::default();
                let asked = CheckSet { checks: &[check], keys: keys.view() };
                let charge =
                    UncertainCharge { worker, call: worker as u64, request: 0, pair: None };
                let notes = [ChargeNote::Uncertain(charge)];
                let mut outcomes = [CheckOutcome::default()];
                let decided =
                    fallback::decide_after_all(&self.shared, asked, &mut outcomes, &notes);
                assert!(decided.expect("a decision").admitted);
                self.passed += 1;
            }
            HearLate(worker) => {
                let (at, pairs) = (Some(self.replies[&worker].1), PairChoices::default());
                self.resolve(worker, RequestOutcome::Admitted { at, pairs });
            }
            HearNotRun(worker) => self.resolve(worker, RequestOutcome::NotRun),
            Take { in_use } => self.debts = self.shared.ledger.lock().take(in_use),
            Pay => {
                for debt in self.debts.values() {
                    self.there = self.policy.charge_after(self.there, self.at, debt.cost);
                }
            }
            ConfirmPayment => {
                let mut ledger = self.shared.ledger.lock();
                ledger.paid(self.debts.len());
                ledger.end_payment(std::iter::empty());
            }
        }
    }

    fn resolve(&self, worker: usize, outcome: RequestOutcome) {
        let now = self.shared.clock.now();
        let known = |call, _| (call == worker as u64).then_some(outcome);
        self.shared.ledger.lock().resolve(worker, |_| now, known);
    }

    /// What is charged to the bucket, by what is known here.
    fn charged(&self) -> u64 {
        let known = self.shared.local.state(BUCKET).unwrap_or_default();
        let micros = known.ends_at.since(self.at).as_micros() as u64;
        (micros + HOUR / 2) / HOUR
    }
}

/// All orders of events in which those of each list keep theirs, and each may be the next.
fn each_order(
    lists: &[&[Event]],
    may_be_next: &impl Fn(&[Event], Event) -> bool,
    so_far: &mut Vec<Event>,
    see: &mut impl FnMut(&[Event]),
) {
    if lists.iter().all(|list| list.is_empty()) {
        return see(so_far);
    }
    for (index, list) in lists.iter().enumerate() {
        let Some((next, rest)) = list.split_first() else { continue };
        if may_be_next(so_far, *next) {
            let mut lists = lists.to_vec();
            lists[index] = rest;
            so_far.push(*next);
            each_order(&lists, may_be_next, so_far, see);
            so_far.pop();
        }
    }
}

/// Holds every order against the promise, and says how many there are.
fn hold(lists: &[&[Event]], may_be_next: impl Fn(&[Event], Event) -> bool) -> usize {
    let store = "[store]\nkind = \"redis\"\ntimeout = \"10s\"\nmax_keys = 10\n";
    let text = [include_str!("../../../../../config/config.toml"), store].concat();
    let settings = config::parse("test", &text).expect("a configuration").settings.store;
    let (metrics, mut count) = (Metrics::new(), 0);
    let audit = AuditLog::nowhere(&metrics);
    each_order(lists, &may_be_next, &mut Vec::new(), &mut |order| {
        count += 1;
        let context = StoreContext { workers: 2, node: "weir-1", metrics: &metrics, audit: &audit };
        let mut model = Model::new(&settings, context);
        for (index, event) in order.iter().enumerate() {
            model.happens(*event);
            let (charged, passed) = (model.charged(), model.passed);
            let so_far = &order[..=index];
            assert!(charged >= passed, "{charged} are charged of {passed} after {so_far:?}");
        }
        [Send(9), Run(9), Hear(9)].into_iter().for_each(|it| model.happens(it));
        assert_eq!(model.charged(), model.passed, "with a reply that knows all, after {order:?}");
        assert_eq!(model.charged(), (model.there.ends_at.0 - model.at.0).div_ceil(HOUR));
    });
    count
}

fn any(_: &[Event], _: Event) -> bool {
    true
}

#[test]
fn a_late_reply_and_those_in_time_of_other_workers_are_heard_in_any_order() {
    let in_time = |worker| [Send(worker), Run(worker), Hear(worker)];
    // Redis may run a call before its time is over, and be heard after.
    for late in
        [[Send(0), GiveUp(0), Run(0), HearLate(0)], [Send(0), Run(0), GiveUp(0), HearLate(0)]]
    {
        assert_eq!(hold(&[&late, &in_time(1)], any), 35);
        assert_eq!(hold(&[&late, &in_time(1), &in_time(2)], any), 4_200);
    }
}

#[test]
fn two_late_replies_and_one_in_time_are_heard_in_any_order() {
    let late = |worker| [GiveUp(worker), Run(worker), HearLate(worker)];
    assert_eq!(hold(&[&late(0), &late(1), &[Send(2), Run(2), Hear(2)]], any), 1_680);
}

#[test]
fn a_payment_and_replies_are_heard_in_any_order() {
    let in_time = [Send(1), Run(1), Hear(1)];
    let paid = |in_use| {
        let take = Take { in_use };
        [GiveUp(0), HearNotRun(0), take, Pay, ConfirmPayment]
    };
    assert_eq!(hold(&[&paid(true), &in_time], any), 56);
    let late = [GiveUp(2), Run(2), HearLate(2)];
    assert_eq!(hold(&[&paid(true), &in_time, &late], any), 9_240);
    // While Redis is not in use, nothing is sent before all is paid.
    let sent_in_use = |so_far: &[Event], next: Event| {
        let is_in_use = !so_far.contains(&Take { in_use: false });
        is_in_use || next != Send(1) || so_far.contains(&ConfirmPayment)
    };
    assert!(hold(&[&paid(false), &in_time], sent_in_use) > 40);
}

/// How many requests of one bucket pass here in an outage that four gateways share, if the reply to a call
/// from before it comes after the first ten of them.
fn pass_around_a_reply(policy: &Policy) -> u64 {
    let shared = redis_tests::shared("timeout = \"3s\"");
    shared.set_nodes(4);
    let (keys, mut passed) = (BucketKeys::default(), 0);
    let check = Check::new(policy, 0, BUCKET, 1);
    let asked = CheckSet { checks: &[check], keys: keys.view() };
    let mut decide = |most: u64| {
        for _ in 0..most {
            let mut outcomes = [CheckOutcome::default()];
            let decided = fallback::decide_after_all(&shared, asked, &mut outcomes, &[]);
            passed += u64::from(decided.expect("a decision").admitted);
        }
        passed
    };
    let (sent, at) = (clock::now(), shared.clock.now());
    assert_eq!(decide(10), 10);
    let Verdict::Admit(state) = policy.evaluate(State::default(), at, 1) else {
        panic!("the bucket is full");
    };
    let times = ReplyTimes { sent, at };
    shared.note_state(&ToldState { bucket: BUCKET, policy, state, cost: 1, times });
    decide(200)
}

#[test]
fn a_reply_that_comes_in_an_outage_leaves_what_has_passed_at_the_price_of_a_share() {
    let rate = Rate::new(100, Duration::from_secs(86_400)).expect("a rate");
    let policies = [
        Policy::TokenBucket(TokenBucket::new(rate, 100).expect("a bucket")),
        Policy::SlidingLog(SlidingLog::new(rate).expect("a count")),
        Policy::SlidingWindow(SlidingWindow::new(rate)),
    ];
    for policy in policies {
        // A share of four, and Redis has charged one of it.
        assert_eq!(pass_around_a_reply(&policy), 24, "{policy:?}");
    }
}
