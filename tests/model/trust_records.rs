//! Records of users: what `lua/trust.lua` adds up is what `TrustRecord` does.

use proptest::prelude::*;
use weir::clock::Micros;
use weir::limit::trust::{DayCounts, TrustRecord, day_of};
use weir::store::redis::script::{self, Form};

use crate::lua::Redis;
use crate::strategies::cases;

const KEY: &str = "weir:@trust:user";

fn today(redis: &Redis) -> u32 {
    let (seconds, micros): (u64, u64) = redis.ask(&redis::cmd("TIME"));
    day_of(Micros(seconds * 1_000_000 + micros))
}

/// Reports counts, and says what is known then.
fn report(redis: &Redis, counts: &[DayCounts]) -> String {
    let mut argument = Vec::new();
    rmp::encode::write_array_len(&mut argument, 1).expect("a vector");
    rmp::encode::write_array_len(&mut argument, counts.len() as u32).expect("a vector");
    for it in counts {
        rmp::encode::write_array_len(&mut argument, 4).expect("a vector");
        for number in [it.day, it.successes, it.failures, it.violations.into()] {
            rmp::encode::write_uint(&mut argument, number.into()).expect("a vector");
        }
    }
    let mut call = script::TRUST.call(Form::Text, 3, argument.len());
    let texts: Vec<String> = redis.ask(call.arg(1).arg(KEY).arg(argument));
    texts[0].clone()
}

fn counts() -> impl Strategy<Value = Vec<(u32, u32, u32, u16)>> {
    let calls = || prop_oneof![3 => 0..5_u32, 1 => any::<u32>()];
    let day = (0..40_u32, calls(), calls(), prop_oneof![3 => 0..3_u16, 1 => any::<u16>()]);
    prop::collection::vec(day, 0..8)
}

#[test]
fn redis_adds_up_what_rust_does() {
    let redis = Redis::start();
    proptest!(cases(200), |(reports in prop::collection::vec(counts(), 1..6))| {
        redis.ask::<()>(&redis::cmd("FLUSHDB"));
        let today = today(&redis);
        let mut record = TrustRecord::default();
        record.advance(today);
        for counts in reports {
            let counts: Vec<DayCounts> = counts
                .into_iter()
                .map(|(age, successes, failures, violations)| {
                    let day = today - age;
                    DayCounts { day, successes, failures, violations }
                })
                .collect();
            counts.iter().for_each(|it| record.add(it));
            let text = report(&redis, &counts);
            prop_assert_eq!(&text, &record.to_text());
            prop_assert_eq!(TrustRecord::parse(&text, today).sums(today), record.sums(today));
        }
        let ttl: i64 = redis.ask(redis::cmd("TTL").arg(KEY));
        // One that was only asked about is not written.
        prop_assert!(ttl == -2 || ttl > 30 * 86_400, "{}", ttl);
    });
}

#[test]
fn what_is_no_record_is_none_and_days_to_come_are_dropped() {
    let redis = Redis::start();
    let today = today(&redis);
    redis.ask::<()>(
        redis::cmd("SET").arg(KEY).arg(format!("junk;{} 9 9 9;{today} 1 2 3", today + 9)),
    );
    assert_eq!(report(&redis, &[]), format!("{today} 1 2 3"));
    redis.ask::<()>(redis::cmd("DEL").arg(KEY));
    redis.ask::<i64>(redis::cmd("LPUSH").arg(KEY).arg("another type"));
    let one = DayCounts { day: today, successes: 1, failures: 0, violations: 0 };
    assert_eq!(report(&redis, &[one]), format!("{today} 1 0 0"));
    assert_eq!(report(&redis, &[]), format!("{today} 1 0 0"));
}
