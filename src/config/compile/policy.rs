//! How a limit decides: `algorithm`, and the numbers that go with it.
//!
//! A limit has these keys, and so have its candidate and its plans, which take from the limit what
//! they do not say themselves.

use std::time::Duration;

use chrono_tz::Tz;

use super::burst::{BurstMisfit, BurstSpec};
use super::calendar::{RateSpec, rate_spec, timezone_name};
use super::parsed_key::{ParsedKey, ReportTarget};
use crate::config::file::{Section, Value};
use crate::config::units::show_duration;
use crate::limit::concurrency::{Concurrency, MAX_LIMIT};
use crate::limit::refill_bucket::{MAX_EVERY, MIN_EVERY, RefillBucket};
use crate::limit::sliding_log::{self, SlidingLog};
use crate::limit::sliding_window::SlidingWindow;
use crate::limit::token_bucket::{MAX_BURST, TokenBucket};
use crate::limit::{Policy, Rate};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Algorithm {
    TokenBucket,
    SlidingWindow,
    SlidingLog,
    FixedWindow,
    LeakyBucket,
    Concurrency,
}

const ALGORITHMS: [(&str, Algorithm); 6] = [
    ("token_bucket", Algorithm::TokenBucket),
    ("sliding_window", Algorithm::SlidingWindow),
    ("sliding_log", Algorithm::SlidingLog),
    ("fixed_window", Algorithm::FixedWindow),
    ("leaky_bucket", Algorithm::LeakyBucket),
    ("concurrency", Algorithm::Concurrency),
];

/// A longer wait for a turn is warned of.
const LONG_WAIT: Duration = Duration::from_secs(60);
/// What one entry of a log takes, with its part of the room to grow.
const LOG_ENTRY_BYTES: u64 = 32;
/// Logs that may take more are warned of.
const LOG_WARNING_BYTES: u64 = 4 << 30;

#[derive(Debug, Clone, Copy)]
struct Refill {
    every: Duration,
    amount: u64,
}

/// The keys that make a policy.
pub(super) struct PolicyKeys<'a> {
    algorithm: ParsedKey<'a, Algorithm>,
    rate: ParsedKey<'a, RateSpec>,
    timezone: ParsedKey<'a, Tz>,
    burst: ParsedKey<'a, u64>,
    allowance: ParsedKey<'a, f64>,
    refill: ParsedKey<'a, Refill>,
    limit: ParsedKey<'a, u64>,
}

/// A valid limit, from which its candidate and its plans take what they do not say.
#[derive(Clone, Copy)]
pub(super) struct BaseLimit<'l, 'a> {
    pub(super) keys: &'l PolicyKeys<'a>,
    pub(super) policy: &'l Policy,
    /// How many buckets of it there may be in memory.
    pub(super) buckets: u64,
}

impl<'a> PolicyKeys<'a> {
    pub(super) fn of(section: &mut Section<'a>) -> Self {
        PolicyKeys {
            algorithm: ParsedKey::of(section.get("algorithm"), |it| it.choice(&ALGORITHMS)),
            rate: ParsedKey::of(section.get("rate"), rate_spec),
            timezone: ParsedKey::of(None, timezone_name),
            burst: ParsedKey::of(section.get("burst"), |it| it.integer(1..=MAX_BURST)),
            allowance: ParsedKey::of(section.get("burst_allowance"), Value::factor),
            refill: refill(section),
            limit: ParsedKey::of(section.get("limit"), |it| it.integer(1..=MAX_LIMIT)),
        }
    }

    /// With the time zone, which a candidate always shares with its limit.
    pub(super) fn in_timezone(self, section: &mut Section<'a>) -> Self {
        PolicyKeys { timezone: ParsedKey::of(section.get("timezone"), timezone_name), ..self }
    }

    /// The policy of a limit. `buckets` is how many of them there may be in memory.
    pub(super) fn policy(&self, section: &mut Section<'a>, buckets: u64) -> Option<Policy> {
        let algorithm = self.algorithm()?;
        self.warn_of_unused_keys(algorithm);
        if let Some(value) =
            self.refill.value.as_ref().filter(|_| algorithm != Algorithm::TokenBucket)
        {
            value.error(
                "goes with `token_bucket` only",
                "remove it, or write `algorithm = \"token_bucket\"`",
            );
            return None;
        }
        match algorithm {
            Algorithm::TokenBucket if !self.refill.is_absent() => self.refill_bucket(section),
            Algorithm::TokenBucket => self.token_bucket(self.rate(section)?, section),
            Algorithm::SlidingWindow => {
                self.rate(section).map(|it| Policy::SlidingWindow(SlidingWindow::new(it)))
            }
            Algorithm::SlidingLog => self.sliding_log(self.rate(section)?, section, buckets),
            Algorithm::FixedWindow => {
                let rate_spec = self.rate_spec(section)?;
                let target = ReportTarget::first([&self.rate.value], section);
                rate_spec.windows(&self.timezone, &target).map(Policy::FixedWindow)
            }
            Algorithm::LeakyBucket => {
                let bucket = self.bucket(self.rate(section)?, section)?;
                self.warn_of_long_wait(&bucket, section);
                Some(Policy::LeakyBucket(bucket.into()))
            }
            Algorithm::Concurrency => {
                if self.limit.is_absent() {
                    section.report_missing("limit", "limit = 10");
                }
                Concurrency::new(self.limit.it?).ok().map(Policy::Concurrency)
            }
        }
    }

    /// The policy of a candidate. `charged_later` is whether the limit is charged when requests have
    /// ended.
    pub(super) fn candidate(
        mut self,
        mut section: Section<'a>,
        base: BaseLimit<'_, 'a>,
        charged_later: bool,
    ) -> Option<Policy> {
        if !section.is_present() {
            return None;
        }
        self.algorithm.inherit(&base.keys.algorithm);
        self.rate.inherit(&base.keys.rate);
        if self.algorithm() == base.keys.algorithm() {
            self.inherit_numbers(base.keys);
        }
        let candidate = self.policy(&mut section, base.buckets)?;
        if charged_later && matches!(candidate, Policy::Concurrency(_)) {
            section.error(
                "counts requests in flight, and its limit is charged when they have ended",
                "write another `algorithm`",
            );
        }
        if candidate == *base.policy && section.has_only_known_keys() {
            section.warning(
                "decides as its limit does, so there is nothing to compare",
                "change a number of it, or remove it",
            );
        }
        Some(candidate)
    }

    /// The policy for callers of a plan: that of the limit with other numbers.
    pub(super) fn plan(
        mut self,
        mut section: Section<'a>,
        base: BaseLimit<'_, 'a>,
    ) -> Option<Policy> {
        if !section.is_present() {
            return None;
        }
        if let Some(value) = &self.algorithm.value
            && self.algorithm()? != base.keys.algorithm()?
        {
            value.error(
                &format!(
                    "cannot be another than the limit's, which is `{}`",
                    base.policy.algorithm()
                ),
                "leave it out, or make it a limit of its own with a `when`",
            );
            return None;
        }
        if let Some(value) = &self.refill.value
            && base.keys.refill.is_absent()
        {
            value.error(
                "goes with a limit that has a `refill` itself",
                "write a `rate`, or add a `refill` to the limit",
            );
            return None;
        }
        self.algorithm.inherit(&base.keys.algorithm);
        self.rate.inherit(&base.keys.rate);
        self.inherit_numbers(base.keys);
        let plan = self.policy(&mut section, base.buckets)?;
        if plan == *base.policy && section.has_only_known_keys() {
            section.warning("decides as its limit does", "change a number of it, or remove it");
        }
        Some(plan)
    }

    /// Takes over what means something only with the same algorithm.
    fn inherit_numbers(&mut self, base: &PolicyKeys<'a>) {
        self.burst.inherit(&base.burst);
        self.allowance.inherit(&base.allowance);
        self.refill.inherit(&base.refill);
        self.limit.inherit(&base.limit);
        self.timezone.inherit(&base.timezone);
    }

    fn algorithm(&self) -> Option<Algorithm> {
        self.algorithm.or(Algorithm::TokenBucket)
    }

    fn rate_spec(&self, section: &mut Section<'a>) -> Option<RateSpec> {
        if self.rate.is_absent() {
            section.report_missing("rate", "rate = \"100/minute\"");
        }
        self.rate.it
    }

    fn rate(&self, section: &mut Section<'a>) -> Option<Rate> {
        let rate_spec = self.rate_spec(section)?;
        rate_spec.rate(&ReportTarget::first([&self.rate.value], section))
    }

    fn burst<'t>(&'t self, section: &'t Section<'a>) -> BurstSpec<'t, 'a> {
        let PolicyKeys { burst, allowance, refill, rate, .. } = self;
        let keys = [&allowance.value, &burst.value, &refill.value, &rate.value];
        BurstSpec { size: burst, allowance, target: ReportTarget::first(keys, section) }
    }

    fn bucket(&self, rate: Rate, section: &Section<'a>) -> Option<TokenBucket> {
        let build = |burst| TokenBucket::new(rate, burst).map_err(BurstMisfit::from);
        self.burst(section).fit(rate.count(), build)
    }

    fn token_bucket(&self, rate: Rate, section: &Section<'a>) -> Option<Policy> {
        let bucket = self.bucket(rate, section)?;
        let second = u128::from(rate.count()) * 1_000_000;
        let second = second.div_ceil(u128::from(rate.period_us())) as u64;
        self.burst(section).warn_if_below(bucket.burst(), second, "one second of its rate");
        Some(Policy::TokenBucket(bucket))
    }

    /// The last request of a full leaky bucket waits for all others, longer than most clients wait.
    fn warn_of_long_wait(&self, bucket: &TokenBucket, section: &Section<'a>) {
        let wait = bucket.span(bucket.burst() - 1);
        if wait > LONG_WAIT {
            let wait = show_duration(Duration::from_secs(wait.as_secs()));
            let target = ReportTarget::first([&self.burst.value, &self.rate.value], section);
            target.warning(
                &format!("has requests wait for their turn for up to {wait}"),
                "write a smaller `burst`",
            );
        }
    }

    /// A bucket that refills at whole periods, whatever its rate says.
    fn refill_bucket(&self, section: &Section<'a>) -> Option<Policy> {
        let Refill { every, amount } = self.refill.it?;
        let rate = match self.rate.it {
            Some(rate_spec) => {
                Some(rate_spec.rate(&ReportTarget::first([&self.rate.value], section))?)
            }
            None if self.rate.is_invalid() => return None,
            None => None,
        };
        let count = rate.map_or(amount, Rate::count);
        let build = |burst| RefillBucket::new(every, amount, burst).map_err(BurstMisfit::from);
        let burst = self.burst(section);
        let bucket = burst.fit(count, build)?;
        if let Some((value, rate)) = self.rate.value.as_ref().zip(rate)
            && u128::from(rate.count()) * u128::from(bucket.every_us())
                != u128::from(amount) * u128::from(rate.period_us())
        {
            value.warning(
                "says another rate than `refill`, and `refill` decides",
                "remove it, or write the same rate in both",
            );
        }
        let second = bucket.refilled(Duration::from_secs(1));
        if second > amount {
            let second = second.min(MAX_BURST);
            burst.warn_if_below(bucket.burst(), second, "one second of its rate");
        } else {
            burst.warn_if_below(bucket.burst(), amount, "one refill");
        }
        Some(Policy::RefillBucket(bucket))
    }

    fn sliding_log(&self, rate: Rate, section: &Section<'a>, buckets: u64) -> Option<Policy> {
        let target = ReportTarget::first([&self.rate.value], section);
        let Ok(log) = SlidingLog::new(rate) else {
            let most = sliding_log::MAX_COUNT;
            target.error(
                &format!("is too much for a `sliding_log`, which counts at most {most}"),
                "write a lower count, or `algorithm = \"sliding_window\"`",
            );
            return None;
        };
        let bytes = rate.count() * LOG_ENTRY_BYTES * buckets;
        if bytes > LOG_WARNING_BYTES {
            let gigabytes = bytes.div_ceil(1 << 30);
            target.warning(
                &format!(
                    "may take {gigabytes}GiB of memory: {LOG_ENTRY_BYTES} bytes for each request of \
                     {buckets} keys"
                ),
                "lower `max_keys` in `[store]`, or write `algorithm = \"sliding_window\"`",
            );
        }
        Some(Policy::SlidingLog(log))
    }

    /// Warns of numbers that the algorithm does not have.
    fn warn_of_unused_keys(&self, algorithm: Algorithm) {
        if algorithm != Algorithm::FixedWindow {
            self.timezone.warn_without_effect(
                "only the windows of a `fixed_window` begin at midnight",
                "remove it, or write `algorithm = \"fixed_window\"`",
            );
        }
        if algorithm == Algorithm::Concurrency {
            let why = "`concurrency` counts requests in flight, up to its `limit`";
            let help = "remove it, or write another `algorithm`";
            self.rate.warn_without_effect(why, help);
            self.burst.warn_without_effect(why, help);
            self.allowance.warn_without_effect(why, help);
            return;
        }
        self.limit.warn_without_effect(
            "only `concurrency` counts requests in flight",
            "remove it, or write `algorithm = \"concurrency\"`",
        );
        if !matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket) {
            let why = "a window admits what its rate says and no more";
            let help = "remove it, or write `algorithm = \"token_bucket\"`";
            self.burst.warn_without_effect(why, help);
            self.allowance.warn_without_effect(why, help);
        }
    }
}

fn refill<'a>(section: &mut Section<'a>) -> ParsedKey<'a, Refill> {
    let (value, mut inner) = section.value_or_section("refill");
    let every = inner.require("every", "every = \"1s\"");
    let every = every.and_then(|it| it.duration(MIN_EVERY..=MAX_EVERY));
    let amount = inner.require("amount", "amount = 10");
    let amount = amount.and_then(|it| it.integer(1..=MAX_BURST));
    ParsedKey::of(value, |value| {
        value.table()?;
        every.zip(amount).map(|(every, amount)| Refill { every, amount })
    })
}
