//! Worked scores, and what days do to a record.

use super::*;
use crate::clock::Micros;

fn facts(age_days: u64, email_verified: bool, calls: (u64, u64), violations: u32) -> TrustFacts {
    let sums = TrustSums { successes: calls.0, failures: calls.1, violations };
    TrustFacts { age_days, email_verified, sums }
}

#[test]
fn scores_are_those_of_the_worked_table() {
    let weights = TrustWeights::default();
    for (facts, score) in [
        // Nobody knows anything.
        (facts(0, false, (0, 0), 0), 0),
        (facts(0, true, (0, 0), 0), 20),
        // Age: 36 days are 0.0986…, and 0.3 is the most that it counts.
        (facts(36, false, (0, 0), 0), 9),
        (facts(73, false, (0, 0), 0), 20),
        (facts(109, false, (0, 0), 0), 29),
        (facts(110, false, (0, 0), 0), 30),
        (facts(3650, false, (0, 0), 0), 30),
        // Success is a share, not a number.
        (facts(0, false, (1, 0), 0), 50),
        (facts(0, false, (1_000_000, 0), 0), 50),
        (facts(0, false, (1, 2), 0), 16),
        (facts(0, false, (0, 10), 0), 0),
        // Together.
        (facts(365, true, (3, 1), 0), 87),
        (facts(365, true, (10, 0), 0), 100),
        // Violations: 0.05 each, and 0.2 is the most that they take away.
        (facts(0, true, (0, 0), 1), 15),
        (facts(365, true, (10, 0), 3), 85),
        (facts(365, true, (10, 0), 4), 80),
        (facts(365, true, (10, 0), 1_000), 80),
        // Never below zero.
        (facts(0, false, (0, 0), 1), 0),
        (facts(0, false, (1, 9), 4), 0),
        // Parts whose sum is whole only together: 1/365 + 0.5 × 363/365 is 0.5.
        (facts(1, false, (363, 2), 0), 50),
    ] {
        assert_eq!(weights.score(&facts), Score::of_hundredths(score), "{facts:?}");
    }
}

#[test]
fn weights_and_caps_are_what_is_configured() {
    let weights =
        TrustWeights { age: 1000, email: 1000, success: 0, violation: 500, violations: 1000 };
    let score = |facts| weights.score(&facts).hundredths();
    assert_eq!(score(facts(182, false, (0, 5), 0)), 49);
    assert_eq!(score(facts(365, true, (5, 0), 0)), 100, "never above one");
    assert_eq!(score(facts(365, true, (5, 0), 1)), 100, "what is above one is clamped at the end");
    assert_eq!(score(facts(0, true, (0, 0), 1)), 50);
    assert_eq!(score(facts(0, true, (0, 0), 9)), 0);
    let nothing = TrustWeights { age: 0, email: 0, success: 0, violation: 0, violations: 0 };
    assert_eq!(nothing.score(&facts(1000, true, (9, 0), 9)), Score::ZERO);
}

#[test]
fn no_counts_are_too_large() {
    let all = facts(u64::MAX, true, (u64::MAX, u64::MAX), u32::MAX);
    assert_eq!(TrustWeights::default().score(&all).hundredths(), 55);
}

#[test]
fn scores_of_tokens_are_decimals_between_zero_and_one() {
    for (text, score) in [
        ("0", 0),
        ("1", 100),
        ("0.5", 50),
        ("0.29", 29),
        ("0.999", 99),
        ("0.005", 0),
        ("7", 100),
        ("-1", 0),
        ("1e-1", 10),
        ("1e16", 100),
        ("-1e16", 0),
        ("1e400", 100),
        ("inf", 0),
        ("infinity", 0),
        ("NaN", 0),
        ("much", 0),
        ("", 0),
    ] {
        assert_eq!(Score::parse(text), Score::of_hundredths(score), "{text}");
    }
    let all = Score::all().map(|it| f64::from(it.hundredths()) / 100.0);
    assert!(all.zip(Score::all()).all(|(it, score)| Score::parse(&it.to_string()) == score));
}

#[test]
fn age_is_read_from_seconds_and_from_dates() {
    // 2024-03-01T00:00:00Z
    let now = 1_709_251_200;
    for (text, days) in [
        ("1709164800", 1),
        ("1709164800.75", 1),
        ("1709164801", 0),
        ("2024-02-29T00:00:00Z", 1),
        ("2024-02-29T00:00:00+02:00", 1),
        ("2024-02-28T23:00:00-02:00", 0),
        ("2023-03-02T00:00:00Z", 365),
        ("2030-01-01T00:00:00Z", 0),
        // A day, and what else RFC 3339 allows.
        ("2024-02-29", 1),
        ("2023-03-02", 365),
        ("2024-02-29 00:00:00z", 1),
        ("2024-02-29T00:00:00.5Z", 1),
        ("2024-02-30", 0),
        // Milliseconds.
        ("1709164800000", 1),
        ("1709164800001", 1),
        ("1709251200001", 0),
        ("99999999999999999999", 0),
        // Many write the beginning of time for an account of which they know nothing.
        ("0", 0),
        ("0.0", 0),
        ("-5", 0),
        ("1969-07-20T00:00:00Z", 0),
        ("1970-01-01T00:00:00Z", 0),
        ("0001-01-01T00:00:00Z", 0),
        // What only begins like a number is none.
        ("1.garbage", 0),
        ("1.", 0),
        ("1..5", 0),
        ("+1", 0),
        ("1709164800 ", 0),
        ("yesterday", 0),
        ("2024-02-30T00:00:00Z", 0),
        ("", 0),
    ] {
        assert_eq!(age_days(text, now), days, "{text}");
    }
}

#[test]
fn numbers_grow_with_the_score_and_are_rounded_down() {
    let score = Score::of_hundredths;
    assert_eq!(score(0).more(7), 7);
    assert_eq!(score(50).more(7), 10);
    assert_eq!(score(100).more(7), 14);
    assert_eq!(score(99).more(1), 1);
    assert_eq!(score(50).more_refill(10), 12);
    let rate = Rate::new(60, std::time::Duration::from_secs(60)).expect("a rate");
    let faster = score(50).faster(rate);
    assert_eq!((faster.count(), faster.period_us()), (1, 800_000));
    assert_eq!(score(0).faster(rate), rate);
}

const DAY: u32 = 20_000;

fn calls(day: u32, successes: u32, failures: u32, violations: u16) -> DayCounts {
    DayCounts { day, successes, failures, violations }
}

#[test]
fn calls_count_for_seven_days_and_violations_for_thirty() {
    let mut record = TrustRecord::default();
    record.add(&calls(DAY, 5, 2, 1));
    record.add(&calls(DAY + 3, 1, 0, 1));
    let sums = |day| {
        let TrustSums { successes, failures, violations } = record.sums(day);
        (successes, failures, violations)
    };
    assert_eq!(sums(DAY + 3), (6, 2, 2));
    assert_eq!(sums(DAY + 6), (6, 2, 2));
    assert_eq!(sums(DAY + 7), (1, 0, 2));
    assert_eq!(sums(DAY + 10), (0, 0, 2));
    assert_eq!(sums(DAY + 29), (0, 0, 2));
    assert_eq!(sums(DAY + 30), (0, 0, 1));
    assert_eq!(sums(DAY + 33), (0, 0, 0));
    assert_eq!(sums(u32::MAX), (0, 0, 0));
    for day in [DAY + 3, DAY + 7, DAY + 30, DAY + 40] {
        let mut later = record;
        later.advance(day);
        assert_eq!(later.sums(day), record.sums(day), "{day}");
    }
}

#[test]
fn counts_of_a_day_before_are_added_to_that_day() {
    let (mut late, mut timely) = (TrustRecord::default(), TrustRecord::default());
    late.add(&calls(DAY + 2, 1, 0, 0));
    late.add(&calls(DAY, 4, 1, 2));
    timely.add(&calls(DAY, 4, 1, 2));
    timely.add(&calls(DAY + 2, 1, 0, 0));
    assert_eq!(late, timely);
    late.add(&calls(DAY - 40, 9, 9, 9));
    assert_eq!(late, timely, "too old");
}

#[test]
fn counts_stay_at_the_most_they_can_be() {
    let mut record = TrustRecord::default();
    for _ in 0..2 {
        record.add(&calls(DAY, u32::MAX, u32::MAX - 1, u16::MAX));
    }
    let most = TrustSums {
        successes: u32::MAX.into(),
        failures: u32::MAX.into(),
        violations: u16::MAX.into(),
    };
    assert_eq!(record.sums(DAY), most);
}

#[test]
fn a_record_is_the_same_after_its_text() {
    let mut record = TrustRecord::default();
    for (age, successes) in [(0, 3), (1, 70_000), (6, 1), (20, 0), (29, 0)] {
        record.add(&calls(DAY - age, successes, age, age as u16 + 1));
    }
    record.advance(DAY);
    let text = record.to_text();
    assert_eq!(text, "20000 3 0 1;19999 70000 1 2;19994 1 6 7;19980 0 0 21;19971 0 0 30");
    assert_eq!(TrustRecord::parse(&text, DAY), record);
    assert_eq!(TrustRecord::parse("", DAY), TrustRecord::default());
    for junk in ["x", "1 2 3", "1 2 3 4 5;;-1 0 0 0", "20000 1 1 99999999999", ";"] {
        let _ = TrustRecord::parse(junk, DAY);
    }
    let of_junk = TrustRecord::parse("junk;20000 1 0 70000;30000 9 9 9", DAY);
    let sums = TrustSums { successes: 1, failures: 0, violations: 65_535 };
    assert_eq!(of_junk.sums(DAY), sums, "a day that is yet to come is none");
    assert!(TrustRecord::default().to_text().is_empty());
}

#[test]
fn days_are_those_of_utc() {
    assert_eq!(day_of(Micros(0)), 0);
    assert_eq!(day_of(Micros(86_399_999_999)), 0);
    assert_eq!(day_of(Micros(86_400_000_000)), 1);
}
