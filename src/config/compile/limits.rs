//! `[limits.NAME]`.

use super::key::key;
use super::name::{self, Names};
use super::server::read;
use crate::config::file::{Section, Value};
use crate::config::suggest::{nearest, quote, shown};
use crate::config::units::{self, RateFault};
use crate::limit::fixed_window::FixedWindow;
use crate::limit::rate::MAX_COUNT;
use crate::limit::sliding_window::SlidingWindow;
use crate::limit::token_bucket::TokenBucket;
use crate::limit::{Limit, Missing, Policy, Rate};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Algorithm {
    TokenBucket,
    SlidingWindow,
    FixedWindow,
}

const ALGORITHMS: [(&str, Algorithm); 3] = [
    ("token_bucket", Algorithm::TokenBucket),
    ("sliding_window", Algorithm::SlidingWindow),
    ("fixed_window", Algorithm::FixedWindow),
];

const MISSING: [(&str, Missing); 4] = [
    ("ip", Missing::Ip),
    ("skip", Missing::Skip),
    ("deny", Missing::Deny),
    ("shared", Missing::Shared),
];

pub(super) fn limits(root: &mut Section<'_>) -> (Vec<Limit>, Names) {
    let mut limits = Vec::new();
    let mut names = Names::new("limit", &[]);
    for entry in root.named("limits") {
        let good = name::check(entry.name, entry.span.clone(), root.notes());
        let limit = limit(entry.name, entry.section).filter(|_| good);
        names.define(entry.name, entry.span, limit.is_some().then_some(limits.len()));
        limits.extend(limit);
    }
    (limits, names)
}

fn limit(name: &str, mut section: Section<'_>) -> Option<Limit> {
    let key = section.require("key", "key = \"ip\"").and_then(|value| key(&value));
    let algorithm =
        read(&mut section, "algorithm", Algorithm::TokenBucket, |it| it.choice(&ALGORITHMS));
    let rate = section.require("rate", "rate = \"100/minute\"");
    let burst = section.get("burst");
    let allowance = section.get("burst_allowance");
    let policy = policy(algorithm, rate.as_ref(), burst.as_ref(), allowance.as_ref());
    let cost = section.get("cost");
    let missing = read(&mut section, "missing", Missing::Ip, |it| it.choice(&MISSING));
    let response_headers = read(&mut section, "response_headers", true, Value::boolean);
    let cost = match cost {
        None => 1,
        Some(value) => self::cost(&value, policy.as_ref())?,
    };
    Some(Limit {
        name: name.to_owned(),
        key: key?,
        policy: policy?,
        cost,
        missing,
        response_headers,
    })
}

fn rate(value: &Value<'_>) -> Option<Rate> {
    let text = value.text("100/minute")?;
    let fault = match units::rate(text) {
        Ok(rate) => return Some(rate),
        Err(fault) => fault,
    };
    let count = shown(text.split('/').next().unwrap_or_default());
    let form = || "write a count and a period, such as `\"600/minute\"` or `\"5/10s\"`".to_owned();
    let help = match fault {
        RateFault::Form if !count.is_empty() && count.chars().all(|c| c.is_ascii_digit()) => {
            format!("add a period: `\"{count}/second\"`, `\"{count}/minute\"` or `\"{count}/10s\"`")
        }
        RateFault::Period => match meant_period(text) {
            Some(period) => format!("write `\"{count}/{period}\"`"),
            None => form(),
        },
        RateFault::Form | RateFault::Count => form(),
        RateFault::Range(range) => range.to_string(),
    };
    let what = match fault {
        RateFault::Range(_) => "is out of range",
        _ => "is not a rate",
    };
    value.wrong(&format!("{what}: {}", quote(text)), help);
    None
}

fn meant_period(text: &str) -> Option<&'static str> {
    let period = text.split_once('/')?.1.trim();
    units::period_meant(text).or_else(|| nearest(period, ["second", "minute", "hour", "day"]))
}

fn policy(
    algorithm: Algorithm,
    rate: Option<&Value<'_>>,
    burst: Option<&Value<'_>>,
    allowance: Option<&Value<'_>>,
) -> Option<Policy> {
    if algorithm != Algorithm::TokenBucket {
        for value in [burst, allowance].into_iter().flatten() {
            value.doubtful(
                "has no effect: a window admits what its rate says and no more",
                "remove it, or write `algorithm = \"token_bucket\"`",
            );
        }
    }
    let size = burst.map(|value| value.integer(1..=MAX_COUNT));
    let factor = allowance.map(Value::factor);
    let (written, rate) = rate.and_then(|value| Some((value, self::rate(value)?)))?;
    match algorithm {
        Algorithm::SlidingWindow => return Some(Policy::SlidingWindow(SlidingWindow::new(rate))),
        Algorithm::FixedWindow => return Some(Policy::FixedWindow(FixedWindow::new(rate))),
        Algorithm::TokenBucket => {}
    }
    let size = stretch(size.unwrap_or(Some(rate.count()))?, factor.unwrap_or(Some(1.0))?);
    match TokenBucket::new(rate, size) {
        Ok(bucket) => Some(Policy::TokenBucket(bucket)),
        Err(fault) => {
            let value = allowance.or(burst).unwrap_or(written);
            value.wrong(&format!("makes a burst of {size}"), fault.to_string());
            None
        }
    }
}

/// Burst times allowance, rounded down, at least one. The product is lifted by a few parts in
/// 10^16 first: 100 × 1.15 is 115, though the nearest double lies below it.
fn stretch(burst: u64, factor: f64) -> u64 {
    ((burst as f64 * factor * (1.0 + 4.0 * f64::EPSILON)).floor() as u64).max(1)
}

/// A cost that does not fit into the limit could never pass.
fn cost(value: &Value<'_>, policy: Option<&Policy>) -> Option<u64> {
    let cost = value.integer(1..=MAX_COUNT)?;
    let quota = policy.map_or(u64::MAX, Policy::quota);
    if cost > quota {
        value.wrong(
            &format!(
                "is {cost}, and the limit never holds more than {quota}: no request could pass"
            ),
            format!("write at most {quota}, or raise `burst` or `rate`"),
        );
        return None;
    }
    Some(cost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretched_bursts_round_down_as_decimals_do_and_hold_at_least_one() {
        assert_eq!(stretch(100, 1.15), 115);
        assert_eq!(stretch(100, 1.5), 150);
        assert_eq!(stretch(3, 1.5), 4);
        assert_eq!(stretch(1, 0.1), 1);
        assert_eq!(stretch(1_000_000_000, 1.0), 1_000_000_000);
    }
}
