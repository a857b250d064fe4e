//! Chosen days of chosen time zones, and random ones against a search that knows no dates.

use proptest::prelude::*;

use super::*;

const HOUR: u64 = 3_600_000_000;

fn calendar(unit: Unit, name: &str) -> Calendar {
    Calendar::new(unit, name.parse().expect("a time zone"))
}

fn day(zone: &str) -> Calendar {
    calendar(Unit::Day, zone)
}

fn month(zone: &str) -> Calendar {
    calendar(Unit::Month, zone)
}

/// An instant by its local hour and its offset: `2024-03-31T00Z`, `2024-03-31T00+01`,
/// `2024-03-31T00+05:45`.
fn at(text: &str) -> Micros {
    let (hour, offset) = text.split_at("2024-03-31T00".len());
    let minutes = if offset.len() == "+01".len() { ":00" } else { "" };
    let text = format!("{hour}:00:00{offset}{minutes}");
    let instant: DateTime<chrono::FixedOffset> = text.parse().expect("an instant");
    Micros(u64::try_from(instant.timestamp_micros()).expect("after the epoch"))
}

/// That two windows in a row are what a line says: start, end, end.
fn follow(calendar: Calendar, bounds: &str) {
    let bounds: Vec<Micros> = bounds.split(' ').map(at).collect();
    let [start, end, next] = bounds[..] else { panic!("{} bounds", bounds.len()) };
    for inside in [start.0, start.0 + 1, start.0.midpoint(end.0), end.0 - 1] {
        assert_eq!(calendar.bounds(Micros(inside))[..3], bounds, "{calendar}");
    }
    assert_eq!(calendar.end(Micros(start.0 - 1)), start, "{calendar}");
    assert_eq!(calendar.end(end), next, "{calendar}");
}

#[test]
fn a_day_begins_at_local_midnight_however_long_it_is() {
    let hours = |start: &str| {
        let start = at(start);
        (day("Europe/Berlin").end(start).0 - start.0) / HOUR
    };
    follow(day("Europe/Berlin"), "2024-03-31T00+01 2024-04-01T00+02 2024-04-02T00+02");
    assert_eq!(hours("2024-03-31T00+01"), 23);
    follow(day("Europe/Berlin"), "2024-10-27T00+02 2024-10-28T00+01 2024-10-29T00+01");
    assert_eq!(hours("2024-10-27T00+02"), 25);
}

#[test]
fn a_midnight_that_is_jumped_over_is_the_instant_of_the_jump() {
    follow(day("America/Santiago"), "2024-09-07T00-04 2024-09-08T01-03 2024-09-09T00-03");
    follow(day("Asia/Beirut"), "2024-03-30T00+02 2024-03-31T01+03 2024-04-01T00+03");
    follow(day("America/Sao_Paulo"), "2018-11-03T00-03 2018-11-04T01-02 2018-11-05T00-02");
}

#[test]
fn a_midnight_that_comes_twice_begins_one_day() {
    // At one o'clock it is midnight again.
    follow(day("America/Havana"), "2024-11-03T00-04 2024-11-04T00-05 2024-11-05T00-05");
    // At a minute past midnight it is the day before once more.
    follow(day("America/St_Johns"), "2010-11-06T00-02:30 2010-11-07T00-02:30 2010-11-08T00-03:30");
    // Midnight itself is not reached before the clocks go back.
    follow(day("America/Sao_Paulo"), "2019-02-16T00-02 2019-02-17T00-03 2019-02-18T00-03");
}

#[test]
fn a_day_that_was_left_out_is_no_window() {
    follow(day("Pacific/Apia"), "2011-12-29T00-10 2011-12-31T00+14 2012-01-01T00+14");
}

#[test]
fn a_month_is_as_long_as_its_days() {
    let utc = month("UTC");
    follow(utc, "2024-02-01T00Z 2024-03-01T00Z 2024-04-01T00Z");
    follow(utc, "2025-02-01T00Z 2025-03-01T00Z 2025-04-01T00Z");
    follow(utc, "2100-02-01T00Z 2100-03-01T00Z 2100-04-01T00Z");
    follow(utc, "2024-12-01T00Z 2025-01-01T00Z 2025-02-01T00Z");
    let days = |start: &str| (utc.end(at(start)).0 - at(start).0) / (24 * HOUR);
    assert_eq!(days("2024-02-01T00Z"), 29);
    assert_eq!(days("2025-02-01T00Z"), 28);
    assert_eq!(days("2100-02-01T00Z"), 28);
}

#[test]
fn a_month_begins_where_the_time_zone_says() {
    follow(month("Europe/Berlin"), "2024-03-01T00+01 2024-04-01T00+02 2024-05-01T00+02");
    follow(month("Pacific/Kiritimati"), "2024-01-01T00+14 2024-02-01T00+14 2024-03-01T00+14");
    follow(month("Asia/Kathmandu"), "2024-01-01T00+05:45 2024-02-01T00+05:45 2024-03-01T00+05:45");
}

#[test]
fn the_first_window_begins_with_the_epoch() {
    for name in ["UTC", "Europe/Berlin", "America/New_York", "Pacific/Kiritimati"] {
        for unit in [Unit::Day, Unit::Month] {
            let calendar = calendar(unit, name);
            assert_eq!(calendar.bounds(Micros(0))[0], Micros(0), "{calendar}");
            assert!(calendar.end(Micros(0)) > Micros(0), "{calendar}");
        }
    }
    let new_york = month("America/New_York");
    assert_eq!(new_york.end(Micros(0)), at("1970-01-01T00-05"));
}

#[test]
fn there_is_an_end_however_far_ahead() {
    for tz in chrono_tz::TZ_VARIANTS {
        for unit in [Unit::Day, Unit::Month] {
            let calendar = Calendar::new(unit, tz);
            for now in [1 << 53, LATEST - 1, LATEST - 400 * 24 * HOUR] {
                let bounds = calendar.bounds(Micros(now));
                assert!(bounds[0].0 <= now && now < bounds[1].0, "{calendar}");
                assert!(bounds.is_sorted_by(|one, other| one < other), "{calendar}");
            }
            // Nobody asks this; it is only not to panic.
            let _ = calendar.end(Micros(u64::MAX));
        }
    }
}

#[test]
fn calendars_do_not_answer_for_each_other_however_many_there_are() {
    let now = at("2024-01-31T12Z");
    let all: Vec<Calendar> = chrono_tz::TZ_VARIANTS
        .iter()
        .take(3 * REMEMBERED)
        .flat_map(|tz| [Unit::Day, Unit::Month].map(|unit| Calendar::new(unit, *tz)))
        .collect();
    for _ in 0..2 {
        for calendar in &all {
            assert_eq!(calendar.bounds(now), calendar.find(now), "{calendar}");
        }
    }
}

#[test]
fn a_calendar_is_shown_as_it_is_written() {
    assert_eq!(month("Europe/Berlin").to_string(), "month Europe/Berlin");
    assert_eq!(day("UTC").to_string(), "day UTC");
}

/// The local date as one number that grows, of which only the month counts for months.
fn date(calendar: Calendar, seconds: u64) -> i64 {
    let utc = DateTime::from_timestamp(seconds.cast_signed(), 0).expect("an instant");
    let date = utc.with_timezone(&calendar.tz).date_naive();
    match calendar.unit {
        Unit::Day => date.num_days_from_ce().into(),
        Unit::Month => i64::from(date.year()) * 12 + i64::from(date.month0()),
    }
}

/// The first second with a later date than any before, a quarter of an hour at a time and then one
/// by one.
fn searched(calendar: Calendar, now: Micros) -> Micros {
    let mut second = now.0 / 1_000_000;
    // Clocks may have gone back since the window began.
    let latest = (0..30).map(|back| date(calendar, second.saturating_sub(back * 300)));
    let latest = latest.max().expect("a date");
    while date(calendar, second + 900) <= latest {
        second += 900;
    }
    while date(calendar, second) <= latest {
        second += 1;
    }
    Micros(second * 1_000_000)
}

fn any_calendar() -> impl Strategy<Value = Calendar> {
    (any::<bool>(), 0..chrono_tz::TZ_VARIANTS.len()).prop_map(|(day, zone)| {
        Calendar::new(if day { Unit::Day } else { Unit::Month }, chrono_tz::TZ_VARIANTS[zone])
    })
}

proptest! {
    #[test]
    fn windows_end_where_a_search_by_seconds_finds_it(
        calendar in any_calendar(), now in 0..4_200_000_000_000_000_u64,
    ) {
        prop_assert_eq!(calendar.end(Micros(now)), searched(calendar, Micros(now)));
    }

    #[test]
    fn an_end_is_the_same_up_to_itself_and_later_from_there(
        calendar in any_calendar(), now in 0..LATEST, later in 0..100 * 24 * HOUR,
    ) {
        let [start, end, next, last] = calendar.bounds(Micros(now));
        prop_assert!(start.0 <= now && now < end.0 && end < next && next < last);
        prop_assert_eq!(calendar.end(start), end);
        prop_assert_eq!(calendar.end(Micros(end.0 - 1)), end);
        prop_assert!(calendar.bounds(end).starts_with(&[end, next, last]));
        prop_assert!(calendar.end(Micros(now + later)) >= end);
        prop_assert_eq!(calendar.end(Micros(now)), end);
    }
}
