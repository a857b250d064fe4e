//! `[limits.NAME]`.

use super::key::key;
use super::name::{self, Names};
use super::rate::rate;
use super::server::read;
use super::store::{self, Home};
use crate::config::file::{Section, Value};
use crate::limit::fixed_window::FixedWindow;
use crate::limit::rate::MAX_COUNT;
use crate::limit::sliding_window::SlidingWindow;
use crate::limit::token_bucket::{BurstError, TokenBucket};
use crate::limit::{Cost, Key, Limit, Missing, OnError, Policy, Rate, Source};

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

pub(super) fn limits(root: &mut Section<'_>, home: Home) -> (Vec<Limit>, Names) {
    let mut limits = Vec::new();
    let mut names = Names::new("limit", &[]);
    for entry in root.named("limits") {
        let good = name::check(entry.name, entry.span.clone(), root.notes());
        let limit = limit(entry.name, entry.section, home).filter(|_| good);
        names.define(entry.name, entry.span, limit.is_some().then_some(limits.len()));
        limits.extend(limit);
    }
    (limits, names)
}

fn limit(name: &str, mut section: Section<'_>, home: Home) -> Option<Limit> {
    let key = section.require("key", "key = \"ip\"").and_then(|value| key(&value));
    let algorithm =
        read(&mut section, "algorithm", Algorithm::TokenBucket, |it| it.choice(&ALGORITHMS));
    let rate = section.require("rate", "rate = \"100/minute\"");
    let burst = section.get("burst");
    let allowance = section.get("burst_allowance");
    let policy = policy(algorithm, rate.as_ref(), burst.as_ref(), allowance.as_ref());
    let cost = section.get("cost");
    let missing = section.get("missing").map(|value| missing(&value, key.as_ref()));
    let response_headers = read(&mut section, "response_headers", true, Value::boolean);
    let on_error = section.get("on_error").map(|value| on_error(&value, home));
    let cost = match cost {
        None => 1,
        Some(value) => self::cost(&value, policy.as_ref())?,
    };
    Some(Limit {
        cost: Cost::Fixed(cost),
        missing: missing.flatten().unwrap_or(Missing::Ip),
        response_headers,
        on_error: on_error.flatten().unwrap_or(home.on_error),
        ..Limit::new(name, key?, policy?)
    })
}

fn missing(value: &Value<'_>, key: Option<&Key>) -> Option<Missing> {
    let missing = value.choice(&MISSING)?;
    if key.is_some_and(always_there) {
        value.doubtful(
            "has no effect: no request is without this key",
            "remove it, or count by a `header:`, `query:` or `cookie:`",
        );
    }
    Some(missing)
}

fn on_error(value: &Value<'_>, home: Home) -> Option<OnError> {
    let on_error = store::on_error(value)?;
    if home.in_memory.is_some() {
        value.doubtful(
            "has no effect: the store is in memory, which does not fail",
            "remove it, or write `kind = \"redis\"` in `[store]`",
        );
    }
    Some(on_error)
}

/// Whether every request has all parts of a key, so that `missing` never comes into play.
pub(in crate::config) fn always_there(key: &Key) -> bool {
    key.0.iter().all(|source| matches!(source, Source::Ip | Source::Route | Source::Global))
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
    let size = size.unwrap_or(Some(rate.count()))?;
    let factor = factor.unwrap_or(Some(1.0))?;
    if let Some(value) = allowance.filter(|_| (size as f64) * factor < 1.0) {
        value.doubtful(
            &format!("leaves less than one of a burst of {size}, and a limit holds at least one"),
            "write a larger factor, or `burst = 1` alone",
        );
    }
    let stretched = stretch(size, factor);
    match TokenBucket::new(rate, stretched) {
        Ok(bucket) => Some(Policy::TokenBucket(bucket)),
        Err(fault) => {
            let value = allowance.or(burst).unwrap_or(written);
            let (message, help) = match fault {
                BurstError::OutOfRange => (String::new(), fault.to_string()),
                BurstError::TooSlow => (
                    ", which takes more than 100 years to refill at this rate".to_owned(),
                    format!("the largest burst that fits is {}", largest(rate, stretched)),
                ),
            };
            value.wrong(&format!("makes a burst of {stretched}{message}"), help);
            None
        }
    }
}

/// The largest burst below one that is too large for its rate.
fn largest(rate: Rate, too_large: u64) -> u64 {
    let (mut fits, mut beyond) = (1, too_large);
    while beyond - fits > 1 {
        let middle = fits.midpoint(beyond);
        match TokenBucket::new(rate, middle) {
            Ok(_) => fits = middle,
            Err(_) => beyond = middle,
        }
    }
    fits
}

/// Burst times allowance, rounded down, at least one. The product is lifted by a few parts in
/// 10^16 first: 100 × 1.15 is 115, though the nearest double lies below it.
fn stretch(burst: u64, factor: f64) -> u64 {
    ((burst as f64 * factor * (1.0 + 4.0 * f64::EPSILON)).floor() as u64).max(1)
}

/// A cost that does not fit into the limit never passes, which is a way to close a route, too.
fn cost(value: &Value<'_>, policy: Option<&Policy>) -> Option<u64> {
    let cost = value.integer(1..=MAX_COUNT)?;
    let quota = policy.map_or(u64::MAX, Policy::quota);
    if cost > quota {
        value.doubtful(
            &format!(
                "is {cost}, and the limit never holds more than {quota}: every request is refused"
            ),
            format!("write at most {quota}, or raise `burst` or `rate`"),
        );
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
