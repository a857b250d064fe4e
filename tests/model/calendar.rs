//! Quotas of a day or a month in a time zone: back at local midnight and not before, also where
//! Redis decides, which knows no time zones and gets the bounds by a clock that may be off.

use chrono::{DateTime, FixedOffset};
use chrono_tz::Tz;
use proptest::prelude::*;
use weir::clock::Micros;
use weir::limit::calendar::{Calendar, Unit};
use weir::limit::fixed_window::FixedWindow;
use weir::limit::{Policy, Retry};
use weir::store::redis::adjustment::Op;

use crate::decider::{Ask, Decider, Engine, on_every_engine};
use crate::lua::Redis;
use crate::map_store::MapStore;
use crate::strategies::{calendar_window, cases, share, start};

const DAY: i64 = 86_400_000_000;

fn quota(count: u64, unit: Unit, tz: Tz) -> Policy {
    let window = FixedWindow::calendar(count, Calendar::new(unit, tz));
    Policy::FixedWindow(window.expect("a window"))
}

/// An instant in RFC 3339.
fn at(text: &str) -> Micros {
    let instant: DateTime<FixedOffset> = text.parse().expect("an instant");
    Micros(instant.timestamp_micros().unsigned_abs())
}

/// Spent at the first instant, refused until one µs before the second, whole again there.
fn is_back(engine: &impl Engine, policy: &Policy, spent: &str, back: &str) {
    let mut decider = engine.fresh();
    let (spent, back) = (at(spent), at(back));
    assert_eq!(decider.ask(spent, policy, policy.quota()).refused, None);
    for now in [spent, Micros(back.0 - 1)] {
        let answer = decider.ask(now, policy, 1);
        assert_eq!(answer.refused, Some(Retry::At(back)));
        assert_eq!((answer.report.remaining, answer.report.full_at), (0, back));
    }
    assert_eq!(decider.ask(back, policy, policy.quota()).refused, None);
}

fn a_monthly_quota_spent_on_the_last_day_is_back_at_local_midnight(engine: &impl Engine) {
    let berlin = quota(1_000, Unit::Month, Tz::Europe__Berlin);
    is_back(engine, &berlin, "2024-01-31T12:00:00+01:00", "2024-02-01T00:00:00+01:00");
    is_back(engine, &berlin, "2024-01-31T23:59:59+01:00", "2024-02-01T00:00:00+01:00");
    is_back(engine, &berlin, "2024-02-01T00:00:00+01:00", "2024-03-01T00:00:00+01:00");
    let utc = quota(1_000, Unit::Month, Tz::UTC);
    is_back(engine, &utc, "2024-01-31T12:00:00Z", "2024-02-01T00:00:00Z");
    is_back(engine, &utc, "2024-02-01T00:30:00+01:00", "2024-02-01T00:00:00Z");
}

fn a_daily_quota_is_back_at_local_midnight_when_clocks_change(engine: &impl Engine) {
    let berlin = quota(5, Unit::Day, Tz::Europe__Berlin);
    is_back(engine, &berlin, "2024-03-31T00:00:00+01:00", "2024-04-01T00:00:00+02:00");
    is_back(engine, &berlin, "2024-10-27T00:00:00+02:00", "2024-10-28T00:00:00+01:00");
    let santiago = quota(5, Unit::Day, Tz::America__Santiago);
    is_back(engine, &santiago, "2024-09-07T20:00:00-04:00", "2024-09-08T01:00:00-03:00");
}

on_every_engine! {
    a_monthly_quota_spent_on_the_last_day_is_back_at_local_midnight
    a_daily_quota_is_back_at_local_midnight_when_clocks_change
}

/// Two windows ahead is as far as the bounds go; a charge is given back in its own window only.
#[test]
fn a_caller_whose_clock_is_behind_by_less_than_two_windows_is_decided_all_the_same() {
    let redis = Redis::start();
    proptest!(cases(200), |(
        policy in calendar_window(), start in start(), behind in 0..3 * DAY / 2,
        steps in prop::collection::vec((0..DAY, 0..=1_u64 << 15, any::<bool>()), 1..20),
    )| {
        let (mut lua, mut rust, mut now) = (redis.fresh(), MapStore::new(), start);
        lua.ahead = -behind;
        for (gap, cost, refund) in steps {
            let charged_at = now;
            now = Micros(now.0.saturating_add_signed(gap));
            let ask = Ask { policy: &policy, key: 0, cost: share(cost, policy.quota()) };
            if refund {
                let op = Op::GiveBack { charged_at };
                lua.adjust(now, &ask, op);
                rust.adjust(&policy, 0, |it| policy.refund(it, now, ask.cost, charged_at));
            }
            prop_assert_eq!(lua.decide(now, &[ask]), rust.decide(now, &[ask]));
        }
    });
}

/// However far off the caller's clock is, what is spent is refused, and not for ever.
#[test]
fn a_caller_whose_clock_is_off_by_far_is_held_to_its_quota() {
    let redis = Redis::start();
    let now = at("2024-01-31T12:00:00+01:00");
    for unit in [Unit::Day, Unit::Month] {
        let policy = quota(3, unit, Tz::Europe__Berlin);
        for days in [-4_000, -400, -70, -35, -3, -1, 0, 1, 3, 35] {
            let mut lua = redis.fresh();
            lua.ahead = days * DAY;
            let ask = Ask { policy: &policy, key: 0, cost: 3 };
            let spent = lua.decide(now, &[ask]);
            assert!(spent.admitted);
            let ends = spent.answers[0].state.ends_at;
            let longest = (32 + days.max(0)).unsigned_abs() * DAY.unsigned_abs();
            assert!(ends > now && ends.0 - now.0 <= longest, "{policy:?} {days}");
            assert!(!lua.decide(now, &[Ask { cost: 1, ..ask }]).admitted);
            // Given back, it may come back, but never to another window.
            lua.adjust(now, &ask, Op::GiveBack { charged_at: Micros(now.0 - 40 * DAY as u64) });
            assert!(!lua.decide(now, &[Ask { cost: 1, ..ask }]).admitted, "{policy:?} {days}");
        }
    }
}
