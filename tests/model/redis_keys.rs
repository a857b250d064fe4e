//! What is under a key in Redis: readable text that expires, written when something changed and
//! only then, and put right when it is anything else.

use std::time::Duration;

use proptest::prelude::*;
use weir::clock::{Clock, Micros};
use weir::limit::fixed_window::FixedWindow;
use weir::limit::leaky_bucket::LeakyBucket;
use weir::limit::refill_bucket::RefillBucket;
use weir::limit::sliding_log::SlidingLog;
use weir::limit::sliding_window::SlidingWindow;
use weir::limit::token_bucket::TokenBucket;
use weir::limit::{Policy, Rate};
use weir::store::BucketId;
use weir::store::redis::adjustment::{self, Adjustment, Op};
use weir::store::redis::batch::{Batch, Charge};
use weir::store::redis::check_args::CallContext;
use weir::store::redis::reply::Reply;
use weir::store::redis::script::{self, Form};

use crate::decider::{Ask, CheckMode, Decider, Engine};
use crate::lua::{Redis, call_context};
use crate::map_store::MapStore;
use crate::strategies::{cases, in_debt, policy, share};

/// Twenty seconds into a minute.
const NOW: Micros = Micros(1_700_000_000_000_000);

/// Five a minute, by each algorithm; of one, three a minute and five at once.
fn policies() -> [Policy; 6] {
    let rate = Rate::new(5, Duration::from_secs(60)).expect("a rate");
    let refill = RefillBucket::new(Duration::from_secs(60), 3, 5).expect("a bucket");
    [
        Policy::TokenBucket(TokenBucket::new(rate, 5).expect("a bucket")),
        Policy::SlidingWindow(SlidingWindow::new(rate)),
        Policy::FixedWindow(FixedWindow::new(rate)),
        Policy::LeakyBucket(LeakyBucket::new(rate, 5).expect("a bucket")),
        Policy::RefillBucket(refill),
        Policy::SlidingLog(SlidingLog::new(rate).expect("a log")),
    ]
}

/// About what Redis's own clock shows.
fn today() -> CallContext {
    CallContext { around: Clock::system().now(), ..call_context(1) }
}

/// How often a command ran since the last `CONFIG RESETSTAT`.
fn calls(redis: &Redis, command: &str) -> u64 {
    let stats: String = redis.ask(redis::cmd("INFO").arg("commandstats"));
    let line = format!("cmdstat_{command}:calls=");
    let Some(at) = stats.find(&line) else { return 0 };
    let digits = stats[at + line.len()..].split(',').next();
    digits.and_then(|digits| digits.parse().ok()).expect("a number of calls")
}

fn reset_calls(redis: &Redis) {
    redis.ask::<()>(redis::cmd("CONFIG").arg("RESETSTAT"));
}

/// The scripts as they are, on Redis's own clock.
#[test]
fn a_key_expires_after_its_bucket_is_full_and_not_much_later() {
    let redis = Redis::start();
    proptest!(cases(200), |(
        (policy, debt) in in_debt(policy()), part in 0..=1_u64 << 16, charge_after in any::<bool>(),
    )| {
        redis.ask::<()>(&redis::cmd("FLUSHDB"));
        let most = policy.quota() + if charge_after { debt } else { 0 };
        let (name, cost) = (b"key", share(part, most).max(1));
        if charge_after {
            let charge_after = Adjustment { op: Op::ChargeAfter, name, policy: &policy, cost };
            redis.ask::<u64>(&adjustment::call(&[charge_after], &script::ADJUST, Form::Hash, None, today()));
        }
        let cost = if charge_after { 0 } else { cost };
        let mut batch = Batch::new();
        batch.push([Charge::new(BucketId(0), name, &policy, cost)].into_iter());
        let bytes: Vec<u8> = redis.ask(&batch.call(&script::DECIDE, Form::Hash, None, today()));
        let reply = Reply::parse(&bytes, &batch).expect("a reply");
        prop_assert!(reply.admitted(0) || cost == 0);
        let ends_at = reply.check_replies(0).next().expect("a state").state.ends_at;

        let mut both = redis::pipe();
        let both = both.atomic().cmd("TIME").cmd("PTTL").arg(name);
        let ((seconds, micros), left): ((u64, u64), i64) = redis.ask_all(both);
        let now = Micros(seconds * 1_000_000 + micros);
        // A bucket that is full again by now need not be there.
        if ends_at > now {
            let left = Duration::from_millis(u64::try_from(left).expect("an expiry"));
            prop_assert!(left >= ends_at.since(now));
            prop_assert!(left <= ends_at.since(now) + Duration::from_secs(2));
        }
    });
}

#[test]
fn a_refusal_and_a_peek_write_nothing() {
    let redis = Redis::start();
    for policy in &policies() {
        let mut lua = redis.fresh();
        assert_eq!(lua.ask(NOW, policy, 3).refused, None);
        let asks = [Ask { policy, key: 1, cost: 1 }, Ask { policy, key: 0, cost: 3 }];
        reset_calls(&redis);
        assert!(lua.ask(NOW, policy, 3).refused.is_some());
        assert!(lua.ask(NOW, policy, u64::MAX).refused.is_some());
        assert!(!lua.decide(NOW, &asks).admitted);
        assert_eq!(lua.ask(NOW, policy, 0).refused, None);
        let peek = CheckMode { spends: false, ..CheckMode::default() };
        assert!(lua.decide_as(NOW, &[(Ask { policy, key: 0, cost: 2 }, peek)]).admitted);
        let watch = CheckMode { enforced: false, ..CheckMode::default() };
        assert!(lua.decide_as(NOW, &[(Ask { policy, key: 0, cost: 3 }, watch)]).admitted);
        assert_eq!(lua.ask(Micros(NOW.0 + 600_000_000), policy, 0).refused, None);
        assert_eq!(calls(&redis, "set"), 0, "{policy:?}");
        assert_eq!(lua.ask(NOW, policy, 2).refused, None);
        assert_eq!(calls(&redis, "set"), 1, "{policy:?}");
    }
}

#[test]
fn a_call_reads_all_its_buckets_at_once_and_writes_each_once() {
    let redis = Redis::start();
    let policies = policies();
    let asks: Vec<_> = policies
        .iter()
        .map(|policy| (Ask { policy, key: 0, cost: 1 }, CheckMode::default()))
        .collect();
    let mut lua = redis.fresh();
    reset_calls(&redis);
    let outcomes = lua.decide_all(NOW, &vec![asks; 8]);
    assert_eq!(outcomes.iter().filter(|outcome| outcome.admitted).count(), 5);
    let seen = ["evalsha", "mget", "get", "set"].map(|command| calls(&redis, command));
    assert_eq!(seen, [1, 1, 0, 6]);
}

#[test]
fn a_bucket_is_readable_text() {
    let redis = Redis::start();
    let mut lua = redis.fresh();
    let [bucket, sliding, fixed, leaky, refill, log] = &policies();
    let mark = SlidingWindow::new(Rate::new(5, Duration::from_secs(60)).expect("a rate")).mark();
    let texts = [
        (bucket, "1700000024000000 0".to_owned()),
        (sliding, format!("1700000100000000 0 2 {mark}")),
        (fixed, "1700000040000000 2".to_owned()),
        (leaky, "1700000024000000 0".to_owned()),
        (refill, "1700000060000000 1".to_owned()),
        (log, "1700000060000000 2 1700000000000000:2".to_owned()),
    ];
    for (policy, text) in texts {
        lua.ask(NOW, policy, 2);
        let name = lua.name(&Ask { policy, key: 0, cost: 0 });
        assert_eq!(redis.ask::<String>(redis::cmd("GET").arg(&name)), text);
    }
}

#[test]
fn a_key_of_another_type_is_put_right_by_the_next_charge() {
    let redis = Redis::start();
    let others: [(&str, &[&str]); 4] =
        [("LPUSH", &["x"]), ("SADD", &["x"]), ("HSET", &["x", "y"]), ("ZADD", &["1", "x"])];
    for policy in &policies() {
        for (command, rest) in others {
            let mut lua = redis.fresh();
            let ask = Ask { policy, key: 0, cost: 3 };
            redis.ask::<()>(redis::cmd(command).arg(&lua.name(&ask)).arg(rest));
            starts_afresh(&mut lua, &ask);
        }
    }
}

#[test]
fn garbage_under_a_key_is_put_right_by_the_next_charge() {
    let redis = Redis::start();
    let ends_at = 1_700_000_030_000_000_u64;
    let mut garbage: Vec<String> =
        ["", " ", "0", "x", "x y", "1 2 3", "1 2 3 4 5", "-1 5", "nan 0", "inf 0", "0x10 0"]
            .map(str::to_owned)
            .into();
    let forms = ["{} 1", "{} 0 1 0", "{} 1 1699999970000000:1"]
        .map(|form| form.replace("{}", &ends_at.to_string()));
    garbage.extend(forms.iter().flat_map(|form| {
        [format!(" {form}"), format!("{form} "), format!("{form}\n"), format!("{form}\0")]
    }));
    garbage.extend([
        format!("{ends_at}.5 0"),
        format!("{ends_at} 1.5"),
        format!("1e15 {ends_at}"),
        "9007199254740992 0".to_owned(),
        format!("{} 0", "9".repeat(400)),
        format!("{ends_at} 4294967296"),
        format!("{ends_at} 0 1073741824 0"),
        format!("{ends_at} 1073741824 0 0"),
        format!("{ends_at} 0 1 16"),
        format!("{ends_at} 1 1699999970000000"),
        format!("{ends_at} 1 1699999970000000:"),
        format!("{ends_at} 1 :1"),
        format!("{ends_at} 1 1699999970000000:1:1"),
        format!("{ends_at} 1 1699999970000000:-1"),
        format!("{ends_at} 1073741824 1699999970000000:1"),
        format!("{ends_at} 1 1699999970000000:1073741824"),
        format!("{ends_at} 2 {}:1 1699999970000000:1", "9".repeat(400)),
        format!("{ends_at} 2 1800000000000000:1 1699999970000000:1"),
        format!("{ends_at} 1 {}:1", "9".repeat(400)),
    ]);
    for policy in &policies() {
        for text in &garbage {
            let mut lua = redis.fresh();
            let ask = Ask { policy, key: 0, cost: 3 };
            lua.put(&ask, text);
            starts_afresh(&mut lua, &ask);
        }
    }
}

/// The ask passes as if nothing were there, and what it wrote counts.
fn starts_afresh(lua: &mut crate::lua::Lua<'_>, ask: &Ask<'_>) {
    let mut plain = MapStore::new();
    for _ in 0..2 {
        assert_eq!(lua.decide(NOW, &[*ask]), plain.decide(NOW, &[*ask]));
    }
}

#[test]
fn a_bucket_that_is_all_given_back_is_gone() {
    let redis = Redis::start();
    for policy in &policies() {
        let mut lua = redis.fresh();
        let ask = Ask { policy, key: 0, cost: 3 };
        assert!(lua.decide(NOW, &[ask]).admitted);
        assert_eq!(redis.ask::<u64>(&redis::cmd("DBSIZE")), 1);
        lua.adjust(NOW, &ask, Op::GiveBack { charged_at: NOW });
        assert_eq!(redis.ask::<u64>(&redis::cmd("DBSIZE")), 0);
    }
}

#[test]
fn several_adjustments_of_one_bucket_are_made_one_after_another() {
    let redis = Redis::start();
    for policy in &policies() {
        redis.ask::<()>(&redis::cmd("FLUSHDB"));
        let charge_after = Adjustment { op: Op::ChargeAfter, name: b"key", policy, cost: 2 };
        redis.ask::<u64>(&adjustment::call(
            &[charge_after, charge_after],
            &script::ADJUST,
            Form::Hash,
            None,
            today(),
        ));
        let mut batch = Batch::new();
        let peek = Charge::new(BucketId(0), b"key", policy, 0);
        batch.push([peek].into_iter());
        let bytes: Vec<u8> = redis.ask(&batch.call(&script::DECIDE, Form::Text, None, today()));
        let reply = Reply::parse(&bytes, &batch).expect("a reply");
        let state = reply.check_replies(0).next().expect("a state").state;
        assert_eq!(policy.report(state, reply.now()).remaining, 1);
    }
}
