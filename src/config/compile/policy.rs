//! How a limit decides: `algorithm`, and the numbers that go with it.
//!
//! A limit has these keys, and so have its candidate and its plans, which take from the limit what
//! they do not say themselves.

use std::time::Duration;

use chrono_tz::Tz;

use super::burst::{Burst, Misfit};
use super::calendar::{Often, often, zone};
use super::told::{Place, Told};
use crate::config::file::{Section, Value};
use crate::config::units::show_duration;
use crate::limit::concurrency::{Concurrency, MAX_LIMIT};
use crate::limit::refill::{MAX_EVERY, MIN_EVERY, RefillBucket};
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

/// Nobody is to wait longer for a turn without its being said.
const LONG_WAIT: Duration = Duration::from_secs(60);
/// What one entry of a log takes, with its part of the room to grow.
const ENTRY: u64 = 32;
/// Logs that may take more are warned of.
const MUCH: u64 = 4 << 30;

#[derive(Debug, Clone, Copy)]
struct Refill {
    every: Duration,
    amount: u64,
}

/// The keys that make a policy.
pub(super) struct Terms<'a> {
    algorithm: Told<'a, Algorithm>,
    rate: Told<'a, Often>,
    timezone: Told<'a, Tz>,
    burst: Told<'a, u64>,
    allowance: Told<'a, f64>,
    refill: Told<'a, Refill>,
    limit: Told<'a, u64>,
}

impl<'a> Terms<'a> {
    pub(super) fn of(section: &mut Section<'a>) -> Self {
        Terms {
            algorithm: Told::of(section.get("algorithm"), |it| it.choice(&ALGORITHMS)),
            rate: Told::of(section.get("rate"), often),
            timezone: Told::of(None, zone),
            burst: Told::of(section.get("burst"), |it| it.integer(1..=MAX_BURST)),
            allowance: Told::of(section.get("burst_allowance"), Value::factor),
            refill: refill(section),
            limit: Told::of(section.get("limit"), |it| it.integer(1..=MAX_LIMIT)),
        }
    }

    /// With the time zone, which a candidate always shares with its limit.
    pub(super) fn in_timezone(self, section: &mut Section<'a>) -> Self {
        Terms { timezone: Told::of(section.get("timezone"), zone), ..self }
    }

    /// The policy of a limit. `buckets` is how many of them there may be in memory.
    pub(super) fn policy(&self, section: &mut Section<'a>, buckets: u64) -> Option<Policy> {
        let algorithm = self.algorithm()?;
        self.warn_of_idle(algorithm);
        if let Some(value) =
            self.refill.value.as_ref().filter(|_| algorithm != Algorithm::TokenBucket)
        {
            value.wrong(
                "goes with `token_bucket` only",
                "remove it, or write `algorithm = \"token_bucket\"`",
            );
            return None;
        }
        match algorithm {
            Algorithm::TokenBucket if !self.refill.is_absent() => self.refilled(section),
            Algorithm::TokenBucket => self.token_bucket(self.rate(section)?, section),
            Algorithm::SlidingWindow => {
                self.rate(section).map(|it| Policy::SlidingWindow(SlidingWindow::new(it)))
            }
            Algorithm::SlidingLog => self.log(self.rate(section)?, section, buckets),
            Algorithm::FixedWindow => {
                let often = self.often(section)?;
                let place = Place::first([&self.rate.value], section);
                often.windows(&self.timezone, &place).map(Policy::FixedWindow)
            }
            Algorithm::LeakyBucket => {
                let bucket = self.bucket(self.rate(section)?, section)?;
                self.warn_of_long_wait(&bucket, section);
                Some(Policy::LeakyBucket(bucket))
            }
            Algorithm::Concurrency => {
                if self.limit.is_absent() {
                    section.lacks("limit", "limit = 10");
                }
                Concurrency::new(self.limit.it?).ok().map(Policy::Concurrency)
            }
        }
    }

    /// The policy of a candidate for a limit whose own is good. `later` is whether the limit is
    /// charged when requests have ended.
    pub(super) fn candidate(
        mut self,
        mut section: Section<'a>,
        (terms, policy): (&Terms<'a>, &Policy),
        (buckets, later): (u64, bool),
    ) -> Option<Policy> {
        if !section.is_there() {
            return None;
        }
        self.algorithm.inherit(&terms.algorithm);
        self.rate.inherit(&terms.rate);
        if self.algorithm() == terms.algorithm() {
            self.burst.inherit(&terms.burst);
            self.allowance.inherit(&terms.allowance);
            self.refill.inherit(&terms.refill);
            self.limit.inherit(&terms.limit);
            self.timezone.inherit(&terms.timezone);
        }
        let candidate = self.policy(&mut section, buckets)?;
        if later && matches!(candidate, Policy::Concurrency(_)) {
            section.wrong(
                "counts requests in flight, and its limit is charged when they have ended",
                "write another `algorithm`",
            );
        }
        if candidate == *policy && section.is_known() {
            section.doubtful(
                "decides as its limit does, so there is nothing to compare",
                "change a number of it, or remove it",
            );
        }
        Some(candidate)
    }

    /// The policy for callers of a plan, of a limit whose own is good: the same with other numbers.
    pub(super) fn plan(
        mut self,
        mut section: Section<'a>,
        (terms, policy): (&Terms<'a>, &Policy),
        buckets: u64,
    ) -> Option<Policy> {
        if !section.is_there() {
            return None;
        }
        if let Some(value) = &self.algorithm.value
            && self.algorithm()? != terms.algorithm()?
        {
            value.wrong(
                &format!("cannot be another than the limit's, which is `{}`", policy.algorithm()),
                "leave it out, or make it a limit of its own with a `when`",
            );
            return None;
        }
        if let Some(value) = &self.refill.value
            && terms.refill.is_absent()
        {
            value.wrong(
                "goes with a limit that has a `refill` itself",
                "write a `rate`, or add a `refill` to the limit",
            );
            return None;
        }
        self.algorithm.inherit(&terms.algorithm);
        self.rate.inherit(&terms.rate);
        self.burst.inherit(&terms.burst);
        self.allowance.inherit(&terms.allowance);
        self.refill.inherit(&terms.refill);
        self.limit.inherit(&terms.limit);
        self.timezone.inherit(&terms.timezone);
        let plan = self.policy(&mut section, buckets)?;
        if plan == *policy && section.is_known() {
            section.doubtful("decides as its limit does", "change a number of it, or remove it");
        }
        Some(plan)
    }

    fn algorithm(&self) -> Option<Algorithm> {
        self.algorithm.or(Algorithm::TokenBucket)
    }

    fn often(&self, section: &mut Section<'a>) -> Option<Often> {
        if self.rate.is_absent() {
            section.lacks("rate", "rate = \"100/minute\"");
        }
        self.rate.it
    }

    fn rate(&self, section: &mut Section<'a>) -> Option<Rate> {
        let often = self.often(section)?;
        often.rate(&Place::first([&self.rate.value], section))
    }

    fn burst<'t>(&'t self, section: &'t Section<'a>) -> Burst<'t, 'a> {
        let Terms { burst, allowance, refill, rate, .. } = self;
        let keys = [&allowance.value, &burst.value, &refill.value, &rate.value];
        Burst { size: burst, allowance, place: Place::first(keys, section) }
    }

    fn bucket(&self, rate: Rate, section: &Section<'a>) -> Option<TokenBucket> {
        let build = |burst| TokenBucket::new(rate, burst).map_err(Misfit::from);
        self.burst(section).fit(rate.count(), build)
    }

    fn token_bucket(&self, rate: Rate, section: &Section<'a>) -> Option<Policy> {
        let bucket = self.bucket(rate, section)?;
        let second = u128::from(rate.count()) * 1_000_000;
        let second = second.div_ceil(u128::from(rate.period_us())) as u64;
        self.burst(section).warn_if_below(bucket.burst(), second, "one second of its rate");
        Some(Policy::TokenBucket(bucket))
    }

    /// Whoever comes last into a leaky bucket waits for all the others, and most clients do not wait
    /// for so long.
    fn warn_of_long_wait(&self, bucket: &TokenBucket, section: &Section<'a>) {
        let wait = bucket.span(bucket.burst() - 1);
        if wait > LONG_WAIT {
            let wait = show_duration(Duration::from_secs(wait.as_secs()));
            let place = Place::first([&self.burst.value, &self.rate.value], section);
            place.doubtful(
                &format!("has requests wait for their turn for up to {wait}"),
                "write a smaller `burst`",
            );
        }
    }

    /// A bucket that refills at whole periods, whatever its rate says.
    fn refilled(&self, section: &Section<'a>) -> Option<Policy> {
        let Refill { every, amount } = self.refill.it?;
        let rate = match self.rate.it {
            Some(often) => Some(often.rate(&Place::first([&self.rate.value], section))?),
            None if self.rate.is_faulty() => return None,
            None => None,
        };
        let count = rate.map_or(amount, Rate::count);
        let build = |burst| RefillBucket::new(every, amount, burst).map_err(Misfit::from);
        let burst = self.burst(section);
        let bucket = burst.fit(count, build)?;
        if let Some((value, rate)) = self.rate.value.as_ref().zip(rate)
            && u128::from(rate.count()) * u128::from(bucket.every_us())
                != u128::from(amount) * u128::from(rate.period_us())
        {
            value.doubtful(
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

    fn log(&self, rate: Rate, section: &Section<'a>, buckets: u64) -> Option<Policy> {
        let place = Place::first([&self.rate.value], section);
        let Ok(log) = SlidingLog::new(rate) else {
            let most = sliding_log::MAX_COUNT;
            place.wrong(
                &format!("is too much for a `sliding_log`, which counts at most {most}"),
                "write a lower count, or `algorithm = \"sliding_window\"`",
            );
            return None;
        };
        let bytes = rate.count() * ENTRY * buckets;
        if bytes > MUCH {
            let gigabytes = bytes.div_ceil(1 << 30);
            place.doubtful(
                &format!(
                    "may take {gigabytes}GiB of memory: {ENTRY} bytes for each request of \
                     {buckets} keys"
                ),
                "lower `max_keys` in `[store]`, or write `algorithm = \"sliding_window\"`",
            );
        }
        Some(Policy::SlidingLog(log))
    }

    /// Warns of numbers that the algorithm does not have.
    fn warn_of_idle(&self, algorithm: Algorithm) {
        if algorithm != Algorithm::FixedWindow {
            self.timezone.without_effect(
                "only the windows of a `fixed_window` begin at midnight",
                "remove it, or write `algorithm = \"fixed_window\"`",
            );
        }
        if algorithm == Algorithm::Concurrency {
            let why = "`concurrency` counts requests in flight, up to its `limit`";
            let help = "remove it, or write another `algorithm`";
            self.rate.without_effect(why, help);
            self.burst.without_effect(why, help);
            self.allowance.without_effect(why, help);
            return;
        }
        self.limit.without_effect(
            "only `concurrency` counts requests in flight",
            "remove it, or write `algorithm = \"concurrency\"`",
        );
        if !matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket) {
            let why = "a window admits what its rate says and no more";
            let help = "remove it, or write `algorithm = \"token_bucket\"`";
            self.burst.without_effect(why, help);
            self.allowance.without_effect(why, help);
        }
    }
}

fn refill<'a>(section: &mut Section<'a>) -> Told<'a, Refill> {
    let (value, mut inner) = section.either("refill");
    let every = inner.require("every", "every = \"1s\"");
    let every = every.and_then(|it| it.duration(MIN_EVERY..=MAX_EVERY));
    let amount = inner.require("amount", "amount = 10");
    let amount = amount.and_then(|it| it.integer(1..=MAX_BURST));
    Told::of(value, |value| {
        value.table()?;
        every.zip(amount).map(|(every, amount)| Refill { every, amount })
    })
}
