//! Numbered calls and their fence on a real Redis: however replies get lost, each request that
//! passes is charged once.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;
use weir::clock::Micros;
use weir::limit::fixed_window::FixedWindow;
use weir::limit::{Policy, Rate};
use weir::store::Choice;
use weir::store::redis::adjustment::Op;
use weir::store::redis::batch::Fence;
use weir::store::redis::script::{FENCE, Form};

use crate::decider::{Ask, CheckMode, Engine};
use crate::lua::{Lua, Redis};
use crate::strategies::cases;

const AT: Micros = Micros(1_700_000_000_000_000);
const NAME: &[u8] = b"fence";
/// As long as `lua/state.lua` says, in ms.
const LIFETIME: i64 = 600_000;

/// So many a year, counted one by one.
fn policy(count: u64) -> Policy {
    let year = Duration::from_secs(366 * 86_400);
    Policy::FixedWindow(FixedWindow::new(Rate::new(count, year).expect("a rate")))
}

/// One who sends numbered calls on one bucket.
struct Caller<'a> {
    lua: Lua<'a>,
    policy: Policy,
}

/// A call was turned away at the fence.
#[derive(Debug, PartialEq, Eq)]
struct Fenced;

impl<'a> Caller<'a> {
    fn new(redis: &'a Redis, policy: Policy) -> Self {
        Self { lua: redis.fresh(), policy }
    }

    /// Has Redis run a call with a request for each cost: which of them pass.
    fn call(&mut self, number: u64, costs: &[u64]) -> Result<Vec<bool>, Fenced> {
        let ask = |cost: &u64| {
            vec![(Ask { policy: &self.policy, key: 0, cost: *cost }, CheckMode::default())]
        };
        let requests: Vec<Vec<_>> = costs.iter().map(ask).collect();
        let fence = Some(Fence { name: NAME, call: number });
        match self.lua.try_decide_all(AT, &requests, fence) {
            Ok(outcomes) => Ok(outcomes.iter().map(|it| it.admitted).collect()),
            Err(error) => {
                assert_eq!(error.code(), Some("FENCED"), "{error}");
                Err(Fenced)
            }
        }
    }

    /// Gives up all calls up to this one: the last that has charged.
    fn raise(&self, last: u64) -> u64 {
        let mut command = FENCE.call(Form::Text, 0, 0);
        let text: String = self.lua.redis.ask(command.arg(1).arg(NAME).arg(last));
        let entry = text.split(' ').nth(1).and_then(|entry| entry.split_once(':'));
        entry.map_or(0, |(number, _)| number.parse().expect("a number"))
    }

    fn charge_after(&self, cost: u64) {
        self.lua.adjust(AT, &Ask { policy: &self.policy, key: 0, cost }, Op::ChargeAfter);
    }

    /// What the bucket was charged with.
    fn charged(&self) -> u64 {
        let name = self.lua.name(&Ask { policy: &self.policy, key: 0, cost: 0 });
        let text: Option<String> = self.lua.redis.ask(redis::cmd("GET").arg(&name));
        text.map_or(0, |text| {
            let (_, count) = text.split_once(' ').expect("an end and a count");
            count.parse().expect("a count")
        })
    }

    fn fence(&self) -> Option<String> {
        self.lua.redis.ask(redis::cmd("GET").arg(NAME))
    }
}

#[test]
fn a_call_that_was_given_up_is_turned_away_and_charges_nothing() {
    let redis = Redis::start();
    let mut caller = Caller::new(&redis, policy(100));
    assert_eq!(caller.call(1, &[1]), Ok(vec![true]));
    assert_eq!(caller.raise(3), 1);
    for late in [1, 2, 3] {
        assert_eq!(caller.call(late, &[10]), Err(Fenced), "call {late}");
    }
    assert_eq!(caller.charged(), 1);
    assert_eq!(caller.call(4, &[10]), Ok(vec![true]));
    assert_eq!(caller.charged(), 11);
}

#[test]
fn a_call_runs_once_however_often_it_arrives() {
    let redis = Redis::start();
    let mut caller = Caller::new(&redis, policy(100));
    assert_eq!(caller.call(7, &[2]), Ok(vec![true]));
    assert_eq!(caller.call(7, &[2]), Err(Fenced));
    assert_eq!(caller.charged(), 2);
}

#[test]
fn the_fence_names_the_last_call_that_charged_as_often_as_it_is_asked() {
    let redis = Redis::start();
    let mut caller = Caller::new(&redis, policy(100));
    assert_eq!([caller.raise(2), caller.raise(2)], [0, 0], "nothing was ever run");
    assert_eq!(caller.call(3, &[1]), Ok(vec![true]));
    assert_eq!(caller.call(4, &[1]), Ok(vec![true]));
    assert_eq!([caller.raise(6), caller.raise(6), caller.raise(6)], [4, 4, 4]);
    // Later calls were sent in vain as well.
    assert_eq!([caller.raise(9), caller.raise(9)], [4, 4]);
    // One who asks about less lowers nothing.
    assert_eq!(caller.raise(5), 4);
    assert_eq!(caller.call(9, &[1]), Err(Fenced));
    assert_eq!(caller.call(10, &[1]), Ok(vec![true]));
    assert_eq!(caller.raise(10), 10);
}

#[test]
fn a_call_that_charged_nothing_leaves_no_fence() {
    let redis = Redis::start();
    let mut caller = Caller::new(&redis, policy(3));
    assert_eq!(caller.call(1, &[4, 5]), Ok(vec![false, false]));
    assert_eq!(caller.fence(), None);
    assert_eq!(caller.call(2, &[4, 3]), Ok(vec![false, true]));
    assert_eq!(caller.fence(), Some(format!("2 2:01:{}", AT.0)));
    assert_eq!(caller.call(3, &[1]), Ok(vec![false]));
    assert_eq!(caller.fence(), Some(format!("2 2:01:{}", AT.0)));
    assert_eq!(caller.raise(3), 2);
}

#[test]
fn whatever_lies_under_its_name_the_fence_heals() {
    let redis = Redis::start();
    for garbage in ["", "x", "x 7", "-1 -1", "1.5 2", "99999999999999999999 9:1"] {
        let mut caller = Caller::new(&redis, policy(100));
        let put = || redis.ask::<()>(redis::cmd("SET").arg(NAME).arg(garbage));
        put();
        assert_eq!(caller.call(1, &[1]), Ok(vec![true]), "{garbage:?}");
        assert_eq!(caller.fence(), Some(format!("1 1:1:{}", AT.0)), "{garbage:?}");
        put();
        assert_eq!(caller.raise(2), 0, "{garbage:?}");
        assert_eq!(caller.call(2, &[1]), Err(Fenced), "{garbage:?}");
    }
    let mut caller = Caller::new(&redis, policy(100));
    let put = || {
        redis.ask::<()>(redis::cmd("DEL").arg(NAME));
        redis.ask::<()>(redis::cmd("RPUSH").arg(NAME).arg("1 1"));
    };
    put();
    assert_eq!(caller.call(1, &[1]), Ok(vec![true]));
    put();
    assert_eq!(caller.raise(2), 0);
    assert_eq!(caller.call(2, &[1]), Err(Fenced));
}

#[test]
fn the_fence_keeps_the_verdicts_of_the_last_four_calls_that_charged() {
    let redis = Redis::start();
    let mut caller = Caller::new(&redis, policy(10));
    assert_eq!(caller.call(1, &[1, 20, 1]), Ok(vec![true, false, true]));
    assert_eq!(caller.call(2, &[20]), Ok(vec![false]));
    for number in 3..=5 {
        assert_eq!(caller.call(number, &[1]), Ok(vec![true]));
    }
    let at = AT.0;
    assert_eq!(caller.fence(), Some(format!("5 5:1:{at} 4:1:{at} 3:1:{at} 1:101:{at}")));
    assert_eq!(caller.call(6, &[20, 1]), Ok(vec![false, true]));
    assert_eq!(caller.raise(9), 6);
    assert_eq!(caller.fence(), Some(format!("9 6:01:{at} 5:1:{at} 4:1:{at} 3:1:{at}")));
}

/// Which of a pair was charged, also by an entry that a later call leaves standing.
#[test]
fn the_fence_tells_which_bucket_of_each_pair_was_charged() {
    let redis = Redis::start();
    let mut lua = redis.fresh();
    let (one, two) = (policy(1), policy(2));
    let (all, watched) =
        (CheckMode::default(), CheckMode { enforced: false, ..CheckMode::default() });
    let pair = |keys: [u64; 2], mode: CheckMode| {
        let ask = |key, policy| Ask { policy, key, cost: 1 };
        [
            (ask(keys[0], &one), CheckMode { choice: Choice::First, ..mode }),
            (ask(keys[1], &two), CheckMode { choice: Choice::Second, ..mode }),
        ]
    };
    let alone = (Ask { policy: &two, key: 9, cost: 1 }, all);
    let mut call = |number: u64, requests: &[Vec<(Ask<'_>, CheckMode)>]| {
        let fence = Some(Fence { name: NAME, call: number });
        let outcomes = lua.try_decide_all(AT, requests, fence).expect("an answer");
        outcomes.iter().map(|it| it.admitted).collect::<Vec<_>>()
    };
    let both = [pair([0, 1], all), pair([2, 3], watched)].concat();
    let before = vec![alone];
    assert_eq!(call(1, &[both.clone(), before, both.clone()]), [true; 3]);
    assert_eq!(call(2, &[both.clone(), both.clone(), vec![alone]]), [true, false, true]);
    let at = AT.0;
    let expected = format!("2 2:1ss01:{at} 1:1ff11ss:{at}");
    let fence = || redis.ask::<Option<String>>(redis::cmd("GET").arg(NAME));
    assert_eq!(fence(), Some(expected.clone()));
    // Neither of the watched pair is left, and another enforced one admits.
    let last = [pair([2, 3], watched), pair([4, 5], all)].concat();
    assert_eq!(call(3, &[last]), [true]);
    assert_eq!(fence(), Some(format!("3 3:1nf:{at} {}", &expected[2..])));
}

#[test]
fn the_fence_expires() {
    let redis = Redis::start();
    let mut caller = Caller::new(&redis, policy(100));
    let left = || redis.ask::<i64>(redis::cmd("PTTL").arg(NAME));
    assert_eq!(caller.call(1, &[1]), Ok(vec![true]));
    assert!((LIFETIME / 2..=LIFETIME).contains(&left()), "{}", left());
    redis.ask::<()>(redis::cmd("PEXPIRE").arg(NAME).arg(LIFETIME / 4));
    caller.raise(2);
    assert!((LIFETIME / 2..=LIFETIME).contains(&left()), "{}", left());
}

/// What becomes of a call each time it is sent.
#[derive(Debug, Clone, Copy)]
enum Delivery {
    Answered,
    /// The connection breaks. Redis has run the call before, or it may still arrive.
    Cut {
        run: bool,
    },
    /// No answer in time, on a connection that stays.
    Silence {
        run: bool,
    },
}

#[derive(Debug, Clone)]
enum Event {
    /// Requests that share a call, and what becomes of it each time it is sent; in the end it is
    /// answered.
    Call { costs: Vec<u64>, deliveries: Vec<Delivery> },
    /// What was sent on a broken connection arrives after all.
    Late { connection: usize },
    /// The connection is made anew, and the reply of the fence is lost so often.
    Reconnect { lost: usize },
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let delivery = prop_oneof![
        3 => Just(Delivery::Answered),
        3 => any::<bool>().prop_map(|run| Delivery::Cut { run }),
        2 => any::<bool>().prop_map(|run| Delivery::Silence { run }),
    ];
    // One in four never passes: it is more than the limit holds.
    let cost = prop_oneof![3 => 1..10_u64, 1 => Just(MOST + 1)];
    let (costs, deliveries) =
        (prop::collection::vec(cost, 1..4), prop::collection::vec(delivery, 0..4));
    let event = prop_oneof![
        4 => (costs, deliveries).prop_map(|(costs, deliveries)| Event::Call { costs, deliveries }),
        2 => any::<usize>().prop_map(|connection| Event::Late { connection }),
        1 => (0..3_usize).prop_map(|lost| Event::Reconnect { lost }),
    ];
    prop::collection::vec(event, 1..30)
}

/// More than all requests of a history together.
const MOST: u64 = 1_000_000;

#[derive(Debug, Clone)]
struct Sent {
    number: u64,
    costs: Vec<u64>,
}

/// What a lane does, and the net it does it on.
struct World<'a> {
    caller: Caller<'a>,
    calls: u64,
    /// Sent on the connection there is, and not yet run.
    queued: VecDeque<Sent>,
    /// The same of connections that broke.
    broken: Vec<VecDeque<Sent>>,
    /// Calls whose requests passed without an answer.
    uncertain: Vec<Sent>,
    /// The costs of all that passed.
    passed: u64,
}

/// What of these may pass: a limit that holds plenty refuses only what it never holds.
fn passing(costs: &[u64]) -> u64 {
    costs.iter().filter(|cost| **cost <= MOST).sum()
}

impl World<'_> {
    /// Redis runs what is queued, in the order in which it was sent.
    fn run_queued(&mut self) {
        while let Some(Sent { number, costs }) = self.queued.pop_front() {
            let run = self.caller.call(number, &costs);
            assert!(run.is_ok(), "a call was turned away on the connection there is");
        }
    }

    fn arrives_late(&mut self, connection: usize) {
        let which = connection.checked_rem(self.broken.len());
        let sent = which.and_then(|which| self.broken[which].pop_front());
        if let Some(Sent { number, costs }) = sent {
            let _ = self.caller.call(number, &costs);
        }
    }

    /// What broke the connection is over: the fence tells what became of it.
    fn reconnect(&mut self, lost: usize) -> u64 {
        let left = std::mem::take(&mut self.queued);
        self.broken.push(left);
        for _ in 0..lost {
            self.caller.raise(self.calls);
        }
        let run = self.caller.raise(self.calls);
        for Sent { costs, .. } in self.uncertain.drain(..).filter(|it| it.number > run) {
            match passing(&costs) {
                0 => {}
                due => self.caller.charge_after(due),
            }
        }
        run
    }

    fn send(&mut self, costs: &[u64], deliveries: &[Delivery]) {
        for delivery in deliveries.iter().chain([&Delivery::Answered]) {
            self.calls += 1;
            let sent = Sent { number: self.calls, costs: costs.to_vec() };
            self.queued.push_back(sent.clone());
            match *delivery {
                Delivery::Answered => {
                    self.queued.pop_back();
                    self.run_queued();
                    let admitted = self.caller.call(sent.number, costs).expect("it is the next");
                    let admitted = costs.iter().zip(admitted).filter(|(_, admitted)| *admitted);
                    self.passed += admitted.map(|(cost, _)| cost).sum::<u64>();
                    // What was sent before it was run before it.
                    self.uncertain.clear();
                    return;
                }
                Delivery::Cut { run } => {
                    if run {
                        self.run_queued();
                    }
                    if sent.number <= self.reconnect(0) {
                        self.passed += passing(costs);
                        return;
                    }
                }
                Delivery::Silence { run } => {
                    if run {
                        self.run_queued();
                    }
                    self.passed += passing(costs);
                    self.uncertain.push(sent);
                    return;
                }
            }
        }
    }
}

#[test]
fn every_request_that_passes_is_charged_once_whatever_gets_lost() {
    let redis = Redis::start();
    proptest!(cases(Redis::CASES), |(events in events())| {
        let mut world = World {
            caller: Caller::new(&redis, policy(MOST)),
            calls: 0,
            queued: VecDeque::new(),
            broken: Vec::new(),
            uncertain: Vec::new(),
            passed: 0,
        };
        for event in events {
            match event {
                Event::Call { costs, deliveries } => world.send(&costs, &deliveries),
                Event::Late { connection } => world.arrives_late(connection),
                Event::Reconnect { lost } => {
                    world.reconnect(lost);
                    prop_assert_eq!(world.caller.charged(), world.passed);
                }
            }
        }
        world.reconnect(0);
        for connection in 0..world.broken.len() {
            while !world.broken[connection].is_empty() {
                world.arrives_late(connection);
            }
        }
        prop_assert_eq!(world.caller.charged(), world.passed);
    });
}
