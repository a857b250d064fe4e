//! Slots that workers of many gateways hold in Redis: each has its own count, which lapses unless
//! its holder is heard of again.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use weir::clock::Micros;
use weir::limit::concurrency::Concurrency;
use weir::limit::concurrency::LEASE;
use weir::limit::{Policy, Retry};
use weir::store::BucketId;
use weir::store::redis::adjustment::{self, Adjustment, Op};
use weir::store::redis::batch::{Batch, Charge};
use weir::store::redis::reply::Reply;
use weir::store::redis::script::{self, Form};

use crate::decider::{Ask, Decider, Engine};
use crate::lua::{Lua, Redis, call_context};
use crate::strategies::cases;

const NOW: Micros = Micros(1_700_000_000_000_000);
const LEASE_US: u64 = LEASE.as_micros() as u64;

fn slots(limit: u64) -> Policy {
    Policy::Concurrency(Concurrency::new(limit).expect("a limit"))
}

fn after(micros: u64) -> Micros {
    Micros(NOW.0 + micros)
}

/// How many slots are taken, whichever worker asks.
fn in_flight(lua: &mut Lua<'_>, at: Micros, policy: &Policy) -> u64 {
    let answer = lua.ask(at, policy, 0);
    answer.state.rest
}

#[derive(Debug, Clone, Copy)]
enum Act {
    Take,
    GiveBack,
    Hold,
}

#[derive(Debug, Clone, Copy)]
struct Event {
    gap: u64,
    holder: u64,
    act: Act,
    cost: u64,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let gap = prop_oneof![
        3 => Just(0),
        3 => 0..LEASE_US / 3,
        1 => Just(LEASE_US),
        1 => Just(LEASE_US - 1),
        1 => 0..2 * LEASE_US,
    ];
    let act = prop_oneof![3 => Just(Act::Take), 2 => Just(Act::GiveBack), 1 => Just(Act::Hold)];
    let event = (gap, 0..4_u64, act, 0..6_u64).prop_map(|(gap, holder, act, cost)| Event {
        gap,
        // Any number below 2^53.
        holder: if holder == 3 { (1 << 53) - 1 } else { holder },
        act,
        cost,
    });
    prop::collection::vec(event, 1..60)
}

/// For each holder its count, and when that lapses.
#[derive(Debug, Default)]
struct Counts(HashMap<u64, (u64, Micros)>);

impl Counts {
    fn sum(&mut self, now: Micros) -> u64 {
        self.0.retain(|_, (count, lapses)| *count > 0 && *lapses > now);
        self.0.values().map(|(count, _)| count).sum()
    }

    fn of(&self, holder: u64) -> u64 {
        self.0.get(&holder).map_or(0, |(count, _)| *count)
    }

    fn set(&mut self, holder: u64, count: u64, now: Micros) {
        self.0.insert(holder, (count, Micros(now.0 + LEASE_US)));
    }
}

#[test]
fn every_holder_has_its_own_count_and_all_share_the_limit() {
    let redis = Redis::start();
    proptest!(cases(Redis::CASES), |(
        limit in 1..10_u64, events in events(),
    )| {
        let (policy, mut lua, mut now) = (slots(limit), redis.fresh(), NOW);
        let mut counts = Counts::default();
        for Event { gap, holder, act, cost } in events {
            now = Micros(now.0 + gap);
            lua.holder = holder;
            let (sum, own) = (counts.sum(now), counts.of(holder));
            let ask = Ask { policy: &policy, key: 0, cost };
            match act {
                Act::Take => {
                    let expected = match sum + cost {
                        _ if cost > limit => Some(Retry::Never),
                        all if all > limit => Some(Retry::At(Micros(now.0 + 1_000_000))),
                        _ => None,
                    };
                    prop_assert_eq!(lua.decide(now, &[ask]).answers[0].refused, expected);
                    if expected.is_none() && cost > 0 {
                        counts.set(holder, own + cost, now);
                    }
                }
                Act::GiveBack => {
                    lua.refund(now, &ask, now);
                    if own > 0 {
                        // One above the limit is as good as any more.
                        counts.set(holder, own.saturating_sub(cost.min(limit + 1)), now);
                    }
                }
                Act::Hold => {
                    lua.adjust(now, &ask, Op::Hold);
                    counts.set(holder, cost.min(limit + 1), now);
                }
            }
            let sum = counts.sum(now);
            prop_assert_eq!(in_flight(&mut lua, now, &policy), sum);
        }
    });
}

#[test]
fn what_a_silent_holder_has_comes_back_after_its_lease() {
    let redis = Redis::start();
    let (policy, mut lua) = (slots(5), redis.fresh());
    assert_eq!(lua.ask(NOW, &policy, 3).refused, None);
    lua.holder = 2;
    assert_eq!(lua.ask(after(1), &policy, 2).refused, None);
    assert!(lua.ask(after(LEASE_US - 1), &policy, 1).refused.is_some());
    // The first has lapsed, the second says that it is still there.
    lua.adjust(after(LEASE_US), &Ask { policy: &policy, key: 0, cost: 2 }, Op::Hold);
    assert_eq!(in_flight(&mut lua, after(LEASE_US), &policy), 2);
    assert_eq!(in_flight(&mut lua, after(2 * LEASE_US - 1), &policy), 2);
    assert_eq!(lua.ask(after(2 * LEASE_US), &policy, 5).refused, None);
}

#[test]
fn nobody_gives_back_what_another_holds() {
    let redis = Redis::start();
    let (policy, mut lua) = (slots(5), redis.fresh());
    assert_eq!(lua.ask(NOW, &policy, 3).refused, None);
    lua.holder = 2;
    lua.refund(NOW, &Ask { policy: &policy, key: 0, cost: 3 }, NOW);
    assert_eq!(in_flight(&mut lua, NOW, &policy), 3);
}

#[test]
fn what_is_held_is_held_however_often_it_is_said() {
    let redis = Redis::start();
    let (policy, lua) = (slots(5), redis.fresh());
    for (cost, all) in [(4, 4), (4, 4), (2, 2), (0, 0), (u64::MAX, 6)] {
        lua.adjust(NOW, &Ask { policy: &policy, key: 0, cost }, Op::Hold);
        let name = lua.name(&Ask { policy: &policy, key: 0, cost: 0 });
        let text: Option<String> = redis.ask(redis::cmd("GET").arg(&name));
        let ends = after(LEASE_US).0;
        assert_eq!(text, (all > 0).then(|| format!("{ends} 1:{all}:{ends}")));
    }
}

#[test]
fn a_lowered_limit_refuses_whatever_is_asked_until_enough_have_ended() {
    let redis = Redis::start();
    let (mut lua, four, two) = (redis.fresh(), slots(4), slots(2));
    assert_eq!(lua.ask(NOW, &four, 3).refused, None);
    let refused = Some(Retry::At(after(1_000_000)));
    assert_eq!([0, 1, 2].map(|cost| lua.ask(NOW, &two, cost).refused), [refused; 3]);
    lua.refund(NOW, &Ask { policy: &two, key: 0, cost: 2 }, NOW);
    assert_eq!(lua.ask(NOW, &two, 1).refused, None);
    assert_eq!(lua.ask(NOW, &two, 0).refused, None);
}

#[test]
fn garbage_and_other_types_are_put_right_by_the_next_request() {
    let redis = Redis::start();
    let policy = slots(5);
    let ask = Ask { policy: &policy, key: 0, cost: 3 };
    let ends = after(LEASE_US).0;
    let texts = [
        String::new(),
        "x".to_owned(),
        format!("{ends}"),
        format!("{ends} 1"),
        format!("{ends} 1:2"),
        format!("{ends} 1:x:{ends}"),
        format!("{ends} -1:-2:{ends}"),
        format!("{ends} 1:1073741824:{ends}"),
        format!("{ends} 9007199254740992:2:{ends}"),
        format!("{ends} 1:2:9007199254740992"),
        format!("{ends} {}:2:{ends}", "9".repeat(400)),
        format!("{ends} 1:2:{}", NOW.0),
        format!("{ends} 1:0:{ends}"),
    ];
    let others: [(&str, &[&str]); 4] =
        [("LPUSH", &["x"]), ("SADD", &["x"]), ("HSET", &["x", "y"]), ("ZADD", &["1", "x"])];
    let starts_afresh = |lua: &mut Lua<'_>| {
        assert_eq!(in_flight(lua, NOW, &policy), 0);
        assert_eq!(lua.ask(NOW, &policy, 3).refused, None);
        assert!(lua.ask(NOW, &policy, 3).refused.is_some());
        let text: String = redis.ask(redis::cmd("GET").arg(&lua.name(&ask)));
        assert_eq!(text, format!("{ends} 1:3:{ends}"));
        lua.refund(NOW, &ask, NOW);
        assert_eq!(redis.ask::<u64>(&redis::cmd("DBSIZE")), 0);
    };
    for text in texts {
        let mut lua = redis.fresh();
        lua.put(&ask, &text);
        starts_afresh(&mut lua);
    }
    for (command, rest) in others {
        let mut lua = redis.fresh();
        redis.ask::<()>(redis::cmd(command).arg(&lua.name(&ask)).arg(rest));
        starts_afresh(&mut lua);
    }
}

/// The scripts as they are, on Redis's own clock.
#[test]
fn slots_expire_with_the_last_lease_and_not_much_later() {
    let redis = Redis::start();
    let policy = slots(5);
    let left = || -> Duration {
        let left: i64 = redis.ask(redis::cmd("PTTL").arg("key"));
        Duration::from_millis(u64::try_from(left).expect("an expiry"))
    };
    let about_a_lease = |left: Duration| {
        assert!(left > LEASE - Duration::from_secs(5), "{left:?}");
        assert!(left <= LEASE + Duration::from_secs(2), "{left:?}");
    };
    for op in [Op::Hold, Op::ChargeAfter] {
        let adjustment = Adjustment { op, name: b"key", policy: &policy, cost: 2 };
        let call =
            adjustment::call(&[adjustment], &script::ADJUST, Form::Hash, None, call_context(1));
        redis.ask::<u64>(&call);
        about_a_lease(left());
    }
    redis.ask::<()>(redis::cmd("DEL").arg("key"));
    let mut batch = Batch::new();
    batch.push([Charge::new(BucketId(0), b"key", &policy, 2)].into_iter());
    let call = batch.call(&script::DECIDE, Form::Hash, None, call_context(1));
    let reply = Reply::parse(&redis.ask::<Vec<u8>>(&call), &batch).expect("a reply");
    assert!(reply.admitted(0));
    about_a_lease(left());
}
