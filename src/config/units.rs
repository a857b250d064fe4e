//! Durations, sizes and rates: how they are written, and how they are shown.

mod meant;

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::limit::Rate;
use crate::limit::rate::RateError;

pub(super) use meant::{meant_duration, meant_size};

/// No duration of a configuration is longer.
pub(super) const LONGEST: Duration = crate::limit::rate::MAX_PERIOD;
/// A time within which something must happen: none at all would refuse everything.
pub(super) const SOME_TIME: RangeInclusive<Duration> = Duration::from_millis(1)..=LONGEST;

const MILLIS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
const SIZES: [(&str, u64); 5] =
    [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];
const PERIODS: [(&str, u64); 4] = [("second", 1), ("minute", 60), ("hour", 3600), ("day", 86_400)];

/// `250ms`, `10s`, `5m`, `1h`, `1d`, or several as in `1m30s`; `None` if it is none of these.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut millis: u64 = 0;
    while !rest.is_empty() {
        let (count, after) = leading_count(rest)?;
        let length = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, next) = after.split_at(length);
        let (_, scale) = MILLIS.iter().find(|(name, _)| *name == unit)?;
        millis = millis.checked_add(count.checked_mul(*scale)?)?;
        rest = next;
    }
    if text.is_empty() { None } else { Some(Duration::from_millis(millis)) }
}

/// `512B`, `64KiB`, `10MiB`; `None` if it is not written so.
pub(super) fn size(text: &str) -> Option<u64> {
    let (count, unit) = leading_count(text)?;
    let (_, scale) = SIZES.iter().find(|(name, _)| *name == unit)?;
    count.checked_mul(*scale)
}

/// Why a rate is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum RateParseError {
    #[error("it is not written as a count, a `/` and a period")]
    Form,
    #[error("the part before the `/` is not a count")]
    Count,
    #[error("the part after the `/` is not a period")]
    Period,
    #[error(transparent)]
    Range(RateError),
}

/// `N/second`, `N/minute`, `N/hour`, `N/day`, or `N/<duration>` such as `5/10s`.
pub(super) fn rate(text: &str) -> Result<Rate, RateParseError> {
    let (count, period) = text.split_once('/').ok_or(RateParseError::Form)?;
    let count = match leading_count(count) {
        Some((count, "")) => count,
        _ => return Err(RateParseError::Count),
    };
    let named = PERIODS.iter().find(|(name, _)| *name == period);
    let period = match named {
        Some((_, seconds)) => Duration::from_secs(*seconds),
        None => duration(period).ok_or(RateParseError::Period)?,
    };
    Rate::new(count, period).map_err(RateParseError::Range)
}

/// The count of `N/month`, which is no rate: months differ in length. `None` if it is not written
/// so.
pub(super) fn monthly_count(text: &str) -> Option<u64> {
    match leading_count(text)? {
        (count, "/month") => Some(count),
        _ => None,
    }
}

/// The digits a text begins with, as a number, and what follows. Underscores may part them.
fn leading_count(text: &str) -> Option<(u64, &str)> {
    let length = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (digits, rest) = text.split_at(length);
    if digits.starts_with('_') || digits.ends_with('_') {
        return None;
    }
    Some((digits.replace('_', "").parse().ok()?, rest))
}

/// A rate as it would be written: `600/minute`, `5/10s`.
pub(super) fn show_rate(rate: Rate) -> String {
    let micros = rate.period_us();
    match PERIODS.iter().find(|(_, seconds)| seconds * 1_000_000 == micros) {
        Some((name, _)) => format!("{}/{name}", rate.count()),
        None => format!("{}/{}", rate.count(), show_duration(Duration::from_micros(micros))),
    }
}

/// A duration as it would be written: `1m30s`.
pub(super) fn show_duration(duration: Duration) -> String {
    let mut millis = duration.as_millis() as u64;
    if millis == 0 {
        return "0s".to_owned();
    }
    let mut shown = String::new();
    for (name, scale) in MILLIS.iter().rev() {
        if millis >= *scale {
            shown.push_str(&format!("{}{name}", millis / scale));
            millis %= scale;
        }
    }
    shown
}

/// A size as it would be written: the largest unit that leaves no rest.
pub(super) fn show_size(bytes: u64) -> String {
    let unit =
        SIZES.iter().rev().find(|(_, scale)| bytes >= *scale && bytes.is_multiple_of(*scale));
    let (name, scale) = unit.unwrap_or(&SIZES[0]);
    format!("{}{name}", bytes / scale)
}

#[cfg(test)]
mod tests;
