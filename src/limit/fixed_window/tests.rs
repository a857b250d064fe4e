//! The fixed window at chosen instants; random ones are in `tests/model`.

use std::time::Duration;

use super::*;
use crate::limit::calendar::Unit;

/// Twenty seconds into a minute.
const NOW: Micros = Micros(1_700_000_000_000_000);

fn window(count: u64, seconds: u64) -> FixedWindow {
    FixedWindow::new(Rate::new(count, Duration::from_secs(seconds)).expect("a rate"))
}

#[test]
fn a_window_ends_at_a_multiple_of_its_period() {
    let end = Micros(NOW.0 + 40_000_000);
    let once = window(1, 60);
    let used = State::new(end, 1);
    assert_eq!(once.evaluate(State::default(), NOW, 1), Verdict::Admit(used));
    assert_eq!(once.evaluate(used, NOW, 1), Verdict::Refuse(Retry::At(end)));
    assert!(matches!(once.evaluate(used, end, 1), Verdict::Admit(_)));
    assert_eq!(once.report(used, NOW), Report { remaining: 0, grows_at: end, full_at: end });
    assert_eq!(once.report(used, end), Report { remaining: 1, grows_at: end, full_at: end });
}

#[test]
fn more_than_the_count_never_passes() {
    assert_eq!(window(5, 60).evaluate(State::default(), NOW, 6), Verdict::Refuse(Retry::Never));
}

#[test]
fn a_live_count_stays_used_in_this_window_whatever_wrote_it() {
    let minute_end = Micros(NOW.0 + 40_000_000);
    for ends_at in [NOW.0 + 1, NOW.0 + 3_600_000_000] {
        let foreign = State::new(Micros(ends_at), 5);
        let clamped = window(5, 60).clamp(foreign, NOW);
        assert_eq!(clamped, State::new(minute_end, 5));
        let refused = Verdict::Refuse(Retry::At(minute_end));
        assert_eq!(window(5, 60).evaluate(foreign, NOW, 1), refused);
    }
}

#[test]
fn a_lowered_count_leaves_nothing_and_no_debt() {
    let used = State::new(Micros(NOW.0 + 40_000_000), 50);
    assert_eq!(window(10, 60).report(used, NOW).remaining, 0);
    assert_eq!(window(10, 60).evaluate(used, NOW, 0), Verdict::Admit(used));
}

#[test]
fn a_window_gives_back_what_was_charged_in_it_and_no_more() {
    let minute = window(10, 60);
    let end = Micros(NOW.0 + 40_000_000);
    let used = State::new(end, 5);
    assert_eq!(minute.refund(used, NOW, 2, NOW), State::new(end, 3));
    assert_eq!(minute.refund(used, NOW, 6, NOW), State::default());
    let minute_before = Micros(NOW.0 - 60_000_000);
    assert_eq!(minute.refund(used, NOW, 2, minute_before), used);
}

#[test]
fn a_window_owes_at_most_its_count() {
    let end = Micros(NOW.0 + 40_000_000);
    let owed = window(10, 60).charge_after(State::new(end, 8), NOW, 5);
    assert_eq!(owed, State::new(end, 10));
}

/// Noon of 31 January 2024 in Berlin, and the midnight after it.
const LAST_NOON: Micros = Micros(1_706_698_800_000_000);
const FEBRUARY: Micros = Micros(1_706_742_000_000_000);

fn monthly(count: u64) -> FixedWindow {
    let calendar = Calendar::new(Unit::Month, chrono_tz::Europe::Berlin);
    FixedWindow::calendar(count, calendar).expect("a window")
}

#[test]
fn a_monthly_count_is_refused_until_the_month_ends() {
    let spent = State::new(FEBRUARY, 5);
    assert_eq!(monthly(5).evaluate(State::default(), LAST_NOON, 5), Verdict::Admit(spent));
    for now in [LAST_NOON, Micros(FEBRUARY.0 - 1)] {
        assert_eq!(monthly(5).evaluate(spent, now, 1), Verdict::Refuse(Retry::At(FEBRUARY)));
        let report = Report { remaining: 0, grows_at: FEBRUARY, full_at: FEBRUARY };
        assert_eq!(monthly(5).report(spent, now), report);
    }
    let march = Micros(FEBRUARY.0 + 29 * 86_400_000_000);
    let afresh = State::new(march, 1);
    assert_eq!(monthly(5).evaluate(spent, FEBRUARY, 1), Verdict::Admit(afresh));
}

#[test]
fn a_month_gives_back_what_was_charged_in_it_and_no_more() {
    let used = monthly(10).charge_after(State::default(), FEBRUARY, 5);
    let week = Micros(FEBRUARY.0 + 7 * 86_400_000_000);
    assert_eq!(monthly(10).refund(used, week, 2, week).rest, 3);
    assert_eq!(monthly(10).refund(used, week, 2, FEBRUARY).rest, 3);
    assert_eq!(monthly(10).refund(used, week, 2, Micros(FEBRUARY.0 - 1)), used);
}

#[test]
fn what_was_used_stays_used_when_a_day_becomes_a_month() {
    let day = window(5, 86_400);
    let Verdict::Admit(used) = day.evaluate(State::default(), LAST_NOON, 4) else {
        panic!("a fresh bucket")
    };
    assert_eq!(monthly(5).clamp(used, LAST_NOON), State::new(FEBRUARY, 4));
}

#[test]
fn a_calendar_window_needs_a_count_and_tells_its_length() {
    let calendar = |unit| Calendar::new(unit, chrono_tz::UTC);
    for count in [0, MAX_COUNT + 1] {
        assert_eq!(FixedWindow::calendar(count, calendar(Unit::Day)), Err(RateError::Count));
    }
    let seconds = |unit| FixedWindow::calendar(MAX_COUNT, calendar(unit)).map(|it| it.seconds());
    assert_eq!(seconds(Unit::Day), Ok(86_400));
    assert_eq!(seconds(Unit::Month), Ok(2_678_400));
}
