//! `rate`: a count and a period, and what was probably meant where it is neither.

use std::time::Duration;

use crate::config::file::Value;
use crate::config::suggest::{nearest, quote, shown};
use crate::config::units::{self, LONGEST, RateParseError};
use crate::limit::Rate;

/// How people write units of time, how a rate names one of it, and its length in milliseconds.
const SPELLINGS: [(&[&str], &str, f64); 8] = [
    (&["ms", "msec", "milli", "millisecond"], "1ms", 1.0),
    (&["s", "sec", "second"], "second", 1e3),
    (&["m", "min", "minute"], "minute", 60e3),
    (&["h", "hr", "hour"], "hour", 3600e3),
    (&["d", "dy", "day"], "day", 86_400e3),
    (&["w", "wk", "week"], "7d", 7.0 * 86_400e3),
    (&["mo", "mon", "month"], "30d", 30.0 * 86_400e3),
    (&["y", "yr", "year"], "365d", 365.0 * 86_400e3),
];

/// No rate that anybody means is longer.
const LONGEST_RATE: usize = 40;

/// The rate that the text of a value is.
pub(super) fn rate(value: &Value<'_>, text: &str) -> Option<Rate> {
    let fault = match units::rate(text) {
        Ok(rate) => return Some(rate),
        Err(RateParseError::Range(range)) => {
            value.error(&format!("is out of range: {}", quote(text)), range.to_string());
            return None;
        }
        Err(fault) => fault,
    };
    let count = shown(text.split('/').next().unwrap_or_default().trim());
    let help = if let Some(meant) = meant(text) {
        format!("write `\"{meant}\"`")
    } else if fault == RateParseError::Form && is_count(&count) {
        format!("add a period: `\"{count}/second\"`, `\"{count}/minute\"` or `\"{count}/10s\"`")
    } else {
        "write a count and a period, such as `\"600/minute\"` or `\"5/10s\"`".to_owned()
    };
    value.error(&format!("is not a rate: {}", quote(text)), help);
    None
}

/// The rate that a text such as `5 / min`, `5 per minute` or `5/1.5s` stands for. It is a good one.
fn meant(text: &str) -> Option<String> {
    if text.len() > LONGEST_RATE {
        return None;
    }
    let plain = text.to_lowercase().replace(" per ", "/");
    let plain: String = plain.split_whitespace().collect();
    let (count, period) = plain.split_once('/')?;
    // As nginx writes it: `10r/s`.
    let count = count.strip_suffix("req").or(count.strip_suffix('r')).unwrap_or(count);
    let period = period_meant(period)?;
    let rate = match count.parse::<f64>() {
        Ok(part) if count.contains('.') => whole(part, &period)?,
        _ => format!("{count}/{period}"),
    };
    units::rate(&rate).is_ok().then_some(rate)
}

/// `0.5/second` as a whole count of a longer period: `1/2s`.
fn whole(count: f64, period: &str) -> Option<String> {
    let one = units::rate(&format!("1/{period}")).ok()?;
    // Few parts are meant that are not tenths, quarters or thirds of something.
    let scale = (1..=1000_u32).find(|scale| {
        let scaled = count * f64::from(*scale);
        scaled >= 1.0 && (scaled - scaled.round()).abs() < 1e-9
    })?;
    let period = Duration::from_micros(one.period_us()).checked_mul(scale)?;
    let count = (count * f64::from(scale)).round() as u64;
    Rate::new(count, period).ok().map(units::show_rate)
}

fn period_meant(period: &str) -> Option<String> {
    if units::duration(period).is_some() {
        return Some(period.to_owned());
    }
    let length = period.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(period.len());
    let (number, unit) = period.split_at(length);
    let (_, one, scale) = unit_meant(unit)?;
    if number.is_empty() {
        return Some((*one).to_owned());
    }
    let millis = number.parse::<f64>().ok()? * scale;
    let whole = millis.round();
    if (millis - whole).abs() > 1e-6 || whole > LONGEST.as_millis() as f64 {
        return None;
    }
    let whole = whole as u64;
    if whole.is_multiple_of(1000) {
        Some(units::show_duration(Duration::from_millis(whole)))
    } else {
        Some(format!("{whole}ms"))
    }
}

fn unit_meant(unit: &str) -> Option<&'static (&'static [&'static str], &'static str, f64)> {
    let spelled = |word: &str| SPELLINGS.iter().find(|(words, ..)| words.contains(&word));
    spelled(unit)
        .or_else(|| spelled(unit.strip_suffix('s')?))
        .or_else(|| spelled(nearest(unit, ["second", "minute", "hour", "day", "week"])?))
}

fn is_count(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests;
