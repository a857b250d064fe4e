//! Times as operators write them: Unix seconds, how long ago, a time of the day, a date with a time.
//!
//! What names no zone is in UTC, as all times that Weir prints are.

use chrono::{DateTime, Days, NaiveDateTime, NaiveTime};

use crate::config;

/// What can be written, for messages.
pub(super) const FORMS: &str = "how long ago (1h30m), a time of the day in UTC (14:03), a date \
                                with a time (2026-11-17T14:03:00Z), or Unix seconds";

/// From when to when a written time is, in Unix seconds: `14:03:05` is a whole second, of which
/// tables show no part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct WrittenTime {
    pub(super) start: f64,
    pub(super) end: f64,
}

impl WrittenTime {
    pub(super) fn parse(text: &str, now: f64) -> Option<Self> {
        let instant = |at: f64| WrittenTime { start: at, end: at };
        let seconds = text.parse::<f64>().ok().filter(|it| it.is_finite() && *it >= 0.0);
        let ago = || config::parse_duration(text).map(|ago| now - ago.as_secs_f64());
        seconds.or_else(ago).map(instant).or_else(|| {
            let time = text.replacen(' ', "T", 1);
            let fraction = text.contains('.');
            let start = date_and_time(&time).or_else(|| time_of_day(&time, now))?;
            Some(WrittenTime { start, end: start + if fraction { 0.0 } else { 0.999 } })
        })
    }
}

/// A time as the tables of Weir show it.
pub(super) fn shown(seconds: f64) -> String {
    let time = DateTime::from_timestamp(seconds as i64, 0).map(|time| time.naive_utc());
    time.map_or_else(|| seconds.to_string(), |time| format!("{}T{}Z", time.date(), time.time()))
}

fn date_and_time(text: &str) -> Option<f64> {
    let zoned = DateTime::parse_from_rfc3339(text)
        .or_else(|_| DateTime::parse_from_str(text, "%Y-%m-%dT%H:%M%#z"))
        .map(|time| time.naive_utc());
    let utc = text.trim_end_matches(['Z', 'z']);
    let time = zoned
        .or_else(|_| NaiveDateTime::parse_from_str(utc, "%Y-%m-%dT%H:%M:%S%.f"))
        .or_else(|_| NaiveDateTime::parse_from_str(utc, "%Y-%m-%dT%H:%M"));
    time.ok().map(unix_seconds).filter(|it| *it >= 0.0)
}

/// The last time that it was so late: what is later than now was yesterday.
fn time_of_day(text: &str, now: f64) -> Option<f64> {
    let text = text.trim_end_matches(['Z', 'z']);
    let time = NaiveTime::parse_from_str(text, "%H:%M:%S%.f")
        .or_else(|_| NaiveTime::parse_from_str(text, "%H:%M"))
        .ok()?;
    let today = DateTime::from_timestamp(now as i64, 0)?.date_naive();
    let at = unix_seconds(today.and_time(time));
    let yesterday =
        || today.checked_sub_days(Days::new(1)).map(|it| unix_seconds(it.and_time(time)));
    if at <= now { Some(at) } else { yesterday() }
}

fn unix_seconds(time: NaiveDateTime) -> f64 {
    time.and_utc().timestamp_millis() as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-17T12:40:00Z.
    const NOW: f64 = 1_794_919_200.0;

    fn start(text: &str) -> Option<f64> {
        WrittenTime::parse(text, NOW).map(|it| it.start)
    }

    #[test]
    fn times_are_read_in_every_form_that_is_named() {
        let at = 1_794_918_995.0;
        for text in [
            "2026-11-17T12:36:35Z",
            "2026-11-17t12:36:35z",
            "2026-11-17 12:36:35Z",
            "2026-11-17 12:36:35",
            "2026-11-17T13:36:35+01:00",
            "2026-11-17 07:06:35-05:30",
            "12:36:35",
            "12:36:35Z",
            "1794918995",
            "3m25s",
        ] {
            assert_eq!(start(text), Some(at), "{text}");
        }
        let minute = at - 35.0;
        for text in ["2026-11-17T12:36Z", "2026-11-17 12:36", "2026-11-17T14:36+02:00", "12:36"] {
            assert_eq!(start(text), Some(minute), "{text}");
        }
        assert_eq!(start("2026-11-17T12:36:35.25Z"), Some(at + 0.25));
    }

    #[test]
    fn a_time_of_the_day_that_is_yet_to_come_was_yesterday() {
        assert_eq!(start("12:40"), Some(NOW));
        assert_eq!(start("12:40:01"), Some(NOW + 1.0 - 86_400.0));
        assert_eq!(start("23:59"), Some(NOW - 41.0 * 60.0 - 12.0 * 3_600.0));
    }

    #[test]
    fn a_second_as_tables_show_it_ends_with_all_of_its_parts() {
        let ends = |text| WrittenTime::parse(text, NOW).map(|it| it.end - it.start);
        assert!(ends("12:36:35").is_some_and(|it| (0.99..1.0).contains(&it)));
        assert_eq!(ends("12:36:35.5"), Some(0.0));
        assert_eq!(ends("1h"), Some(0.0));
        assert_eq!(shown(1_794_918_995.9), "2026-11-17T12:36:35Z");
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in ["soon", "-1", "25:00", "14h03", "12:60", "2026-13-17T12:36Z", "nan", ""] {
            assert_eq!(start(text), None, "{text}");
        }
    }
}
