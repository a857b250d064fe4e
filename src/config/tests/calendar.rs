//! Days and months of a time zone: what they mean, their faults, and how they are shown.

use chrono_tz::Tz;

use super::faults::each_refused;
use super::{good, limit};
use crate::config::summary;
use crate::limit::Policy;
use crate::limit::calendar::{Calendar, Unit};
use crate::limit::fixed_window::Windows;

#[test]
fn a_month_or_a_time_zone_makes_windows_of_a_calendar() {
    let windows = |keys: &str| {
        let text = limit(&format!("key = \"ip\"\nalgorithm = \"fixed_window\"\n{keys}"));
        match good(&text).settings.limits[0].policy {
            Policy::FixedWindow(window) => (window.count(), window.windows()),
            other => panic!("{other:?}"),
        }
    };
    let calendar = |unit, tz| Windows::Calendar(Calendar::new(unit, tz));
    let utc = calendar(Unit::Month, Tz::UTC);
    assert_eq!(windows("rate = \"1_000/month\""), (1000, utc));
    let berlin = "timezone = \"Europe/Berlin\"";
    let month = calendar(Unit::Month, Tz::Europe__Berlin);
    assert_eq!(windows(&format!("rate = \"5/month\"\n{berlin}")), (5, month));
    let day = calendar(Unit::Day, Tz::Europe__Berlin);
    assert_eq!(windows(&format!("rate = \"5/day\"\n{berlin}")), (5, day));
    assert_eq!(windows(&format!("rate = \"5/24h\"\n{berlin}")), (5, day));
    assert!(matches!(windows("rate = \"5/day\""), (5, Windows::Every(_))));
}

#[test]
fn faults_of_calendar_windows_say_what_to_write() {
    let fixed = |keys: &str| limit(&format!("key = \"ip\"\nalgorithm = \"fixed_window\"\n{keys}"));
    let zone = |zone: &str| fixed(&format!("rate = \"5/month\"\ntimezone = {zone}"));
    each_refused(&[
        (
            limit("key = \"ip\"\nrate = \"5/month\""),
            "8:8: `rate` cannot be `5/month`: a month has no fixed length; write `algorithm = \
             \"fixed_window\"`, or `\"5/30d\"`",
        ),
        (fixed("rate = \"0/month\""), "is out of range: `0/month`; the count must be between 1"),
        (fixed("rate = \"x/month\""), "is not a rate: `x/month`; write a count and a period"),
        (zone("\"Europe/Berlin \""), "did you mean `Europe/Berlin`?"),
        (zone("\"europe/berlin\""), "did you mean `Europe/Berlin`?"),
        (zone("\"Mars/Olympus_Mons\""), "is not a time zone: `Mars/Olympus_Mons`; write a name"),
        (limit("key = \"ip\"\nrate = \"1/day\"\ntimezone = \"utcc\""), "did you mean `UTC`?"),
        (zone("\"+01:00\""), "is not a time zone: `+01:00`"),
        (zone("1"), "must be a string, not an integer; write it in quotes, such as `\"Europe/"),
        (
            fixed("rate = \"5/hour\"\ntimezone = \"UTC\""),
            "10:12: `timezone` goes with a day or a month, not with `5/hour`; remove it, or write \
             `rate = \"5/day\"` or `\"5/month\"`",
        ),
    ]);
}

#[test]
fn a_time_zone_without_a_fixed_window_is_warned_of() {
    for algorithm in ["token_bucket", "sliding_window"] {
        let keys = "key = \"ip\"\nrate = \"1/day\"\ntimezone = \"UTC\"";
        let lines = good(&limit(&format!("{keys}\nalgorithm = \"{algorithm}\""))).warnings.lines();
        let expected = "config.toml:9:12: warning: `timezone` has no effect: only the windows of";
        assert!(lines.len() == 1 && lines[0].starts_with(expected), "{lines:#?}");
    }
}

#[test]
fn summary_shows_the_time_zone() {
    let shown = |keys: &str| {
        summary(&good(&limit(&format!("key = \"ip\"\nalgorithm = \"fixed_window\"\n{keys}"))))
    };
    let month = shown("rate = \"1_000/month\"\ntimezone = \"Europe/Berlin\"");
    assert!(month.contains("  fixed_window  1000/month Europe/Berlin  cost 1\n"), "{month}");
    let day = shown("rate = \"5/day\"\ntimezone = \"Asia/Tokyo\"");
    assert!(day.contains("  5/day Asia/Tokyo  "), "{day}");
    assert!(shown("rate = \"5/month\"").contains("  5/month UTC  "));
    assert!(shown("rate = \"5/day\"").contains("  5/day  "));
}

#[test]
fn the_example_of_a_time_zone_goes_with_a_fixed_window() {
    let text = include_str!("../../../config/reference.toml")
        .replace("algorithm = \"token_bucket\"", "algorithm = \"fixed_window\"")
        .replace("rate = \"100/second\"", "rate = \"100/month\"")
        .replace("\nburst = 100\n", "\n")
        .replace("\nburst_allowance = 1.0\n", "\n")
        .replace("#timezone", "timezone");
    let loaded = good(&text);
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    assert_eq!(loaded.settings.limits[0].policy.window_seconds(), Some(31 * 86_400));
}
