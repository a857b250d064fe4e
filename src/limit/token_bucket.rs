//! `token_bucket`: a bucket of `burst` tokens that refills continuously.
//!
//! The state is one instant, the *theoretical arrival time*: when the bucket will be full again.
//! How far it lies ahead is what the bucket owes, and a cost passes if the bucket would owe no
//! more than all its tokens. No division is needed to decide.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use super::policy::{Report, Retry, State, Verdict};
use super::rate::Rate;
use crate::clock::Micros;

pub const MAX_BURST: u64 = 1_000_000_000;
/// No bucket takes longer to be full again.
pub(super) const CENTURY: Duration = Duration::from_secs(36_525 * 86_400);

/// Spans of time are counted in 2^-32 µs. The time of one token is rounded up to this unit, so
/// even at 10^9 a second, a thousandth of a microsecond each, the rounding loses less than a
/// millionth of the rate; and an instant splits into whole microseconds and a fraction that are
/// both exact in a double, which is all that Lua has.
const FRACTION_BITS: u32 = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBucket {
    rate: Rate,
    burst: u64,
    /// In which time one token refills.
    token: u128,
    /// In which time all do: what an empty bucket owes.
    empty: u128,
    /// What it may owe at most: more than that if charges after the fact may push it below zero.
    deepest: u128,
    /// The most that any of the numbers lets it owe that hold for the bucket by turns: what lies
    /// beyond is of no use to anybody, and is clamped to this.
    reach: u128,
}

impl Hash for TokenBucket {
    /// What tells buckets apart, and not all that follows from it.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.token as u64);
        state.write_u64(self.burst);
        state.write_u64(self.reach as u64);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BurstError {
    #[error("the burst must be between 1 and {MAX_BURST}")]
    OutOfRange,
    #[error("the burst would take more than 100 years to refill")]
    TooSlow,
}

impl TokenBucket {
    /// # Errors
    /// If the burst is out of range, or would take more than a century to refill.
    pub fn new(rate: Rate, burst: u64) -> Result<Self, BurstError> {
        if !(1..=MAX_BURST).contains(&burst) {
            return Err(BurstError::OutOfRange);
        }
        let period = u128::from(rate.period_us()) << FRACTION_BITS;
        let token = period.div_ceil(u128::from(rate.count()));
        let empty = token * u128::from(burst);
        if empty > CENTURY.as_micros() << FRACTION_BITS {
            return Err(BurstError::TooSlow);
        }
        Ok(Self { rate, burst, token, empty, deepest: empty, reach: empty })
    }

    /// The same with room for so much debt, or for as much as a century pays off.
    #[must_use]
    pub fn with_debt(self, debt: u64) -> Self {
        let deepest = self.empty + u128::from(debt.min(MAX_BURST)) * self.token;
        let deepest = deepest.min(CENTURY.as_micros() << FRACTION_BITS);
        Self { deepest, reach: deepest, ..self }
    }

    /// The same on a bucket that other numbers hold for by turns.
    #[must_use]
    pub fn beside(self, other: &Self) -> Self {
        Self { reach: self.reach.max(other.reach), ..self }
    }

    #[must_use]
    pub fn rate(&self) -> Rate {
        self.rate
    }

    #[must_use]
    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// What may be owed at most, in whole tokens, rounded up.
    #[must_use]
    pub fn deepest(&self) -> u64 {
        if self.deepest == self.empty {
            return self.burst;
        }
        self.deepest.div_ceil(self.token) as u64
    }

    /// One node's part of this bucket while `nodes` of them cannot agree: it refills that many
    /// times more slowly and holds as much less, but a `cost` that fits into the whole fits into
    /// the part. What a state owes is counted in time, so it means the same share of both. Parts
    /// for different costs share a bucket, and the largest cost takes all tokens at the slow pace.
    #[must_use]
    pub fn share(&self, nodes: u64, cost: u64) -> Self {
        let whole = if cost <= self.burst { cost } else { 0 };
        let burst = (self.burst / nodes).max(whole).max(1);
        let token = self.token * u128::from(nodes);
        let empty = token * u128::from(burst);
        let (deepest, reach) = (self.deepest.max(empty), token * u128::from(self.burst));
        Self { rate: self.rate, burst, token, empty, deepest, reach: self.reach.max(reach) }
    }

    /// In which time so many tokens refill, rounded up.
    #[must_use]
    pub fn span(&self, tokens: u64) -> Duration {
        let span = u128::from(tokens.min(MAX_BURST)) * self.token;
        Duration::from_micros(after(Micros(0), span).0)
    }

    /// How far apart requests of this cost leave a queue that lets `rate` of them go, rounded up:
    /// to nanoseconds, so that it does not slow down fast limits.
    #[must_use]
    pub fn pace(&self, tokens: u64) -> Duration {
        let nanos = (u128::from(tokens) * self.token * 1000) >> FRACTION_BITS;
        Duration::from_nanos(u64::try_from(nanos + 1).unwrap_or(u64::MAX))
    }

    /// How long a request waits its turn in a queue that lets `rate` of them go, and stands as the
    /// state says once this one has joined it.
    #[must_use]
    pub fn turn(&self, joined: State, now: Micros, cost: u64) -> Duration {
        let ahead = owed(joined, now).saturating_sub(u128::from(cost) * self.token);
        Duration::from_micros(after(Micros(0), ahead).0)
    }

    /// Whole tokens that refill in a span of time.
    #[must_use]
    pub fn refilled(&self, span: Duration) -> u64 {
        let tokens = (span.as_micros() << FRACTION_BITS) / self.token;
        u64::try_from(tokens).unwrap_or(u64::MAX)
    }

    /// From the rate as written: the rounding of one token must not show as a second more.
    #[must_use]
    pub fn refill_seconds(&self) -> u64 {
        let period = u128::from(self.rate.period_us()) * u128::from(self.burst);
        period.div_ceil(u128::from(self.rate.count()) * 1_000_000) as u64
    }

    #[must_use]
    pub fn settle(&self, state: State, now: Micros) -> State {
        if owed(state, now) > self.reach { owing(self.reach, now) } else { state }
    }

    #[must_use]
    pub fn evaluate(&self, state: State, now: Micros, cost: u64) -> Verdict {
        self.evaluate_late(state, now, cost, 0)
    }

    /// How much of a caller's lateness counts, in microseconds: at most what one token takes to
    /// refill, however long it says it has waited.
    ///
    /// A charge counts from an instant that lies at most this much before the one at which it is
    /// made, and the arrival time only grows. So from the first charge of an interval of length `t`
    /// to its last, the arrival time grows by no more than `empty + t` and one token: no interval
    /// holds more than `burst + rate × t + 1`, whoever asks and whatever stood still.
    #[must_use]
    pub fn grace(&self, late: u64) -> u64 {
        late.min(u64::try_from(self.token >> FRACTION_BITS).unwrap_or(u64::MAX))
    }

    /// Decides a cost that could have passed as early as `late` microseconds ago, had it been asked
    /// for then: what has refilled since is not lost to a bucket that ran full, as far as there is
    /// [grace](Self::grace). Its state may then end before `now`, and says since when it is full. Of
    /// a bucket that is absent nobody knows that: nothing is counted for it.
    #[must_use]
    #[inline]
    pub fn evaluate_late(&self, state: State, now: Micros, cost: u64, late: u64) -> Verdict {
        if cost > self.burst {
            return Verdict::Refuse(Retry::Never);
        }
        let cost = u128::from(cost) * self.token;
        let owed = owed(state, now).min(self.reach) + cost;
        // A full bucket is not to forget since when it is.
        if owed == 0 {
            return Verdict::Admit(state);
        }
        if late > 0 && owed == cost && state != State::default() {
            let grace = self.grace(late);
            if grace > 0 {
                return Verdict::Admit(charged_late(state, now, cost, grace));
            }
        }
        if owed <= self.empty {
            Verdict::Admit(owing(owed, now))
        } else {
            Verdict::Refuse(Retry::At(after(now, owed - self.empty)))
        }
    }

    #[must_use]
    pub fn report(&self, state: State, now: Micros) -> Report {
        let owed = owed(state, now).min(self.reach);
        if owed == 0 {
            return Report { remaining: self.burst, grows_at: now, full_at: now };
        }
        let remaining = quotient(self.empty.saturating_sub(owed), self.token);
        let next = u128::from(remaining + 1) * self.token;
        Report {
            remaining,
            grows_at: after(now, owed + next - self.empty),
            full_at: after(now, owed),
        }
    }

    /// The settled state once the cost is charged, asked or not: at most as deep as may be, unless
    /// other numbers have made it deeper.
    #[must_use]
    pub(super) fn owe(&self, state: State, now: Micros, cost: u64) -> State {
        let owed = owed(state, now);
        owing((owed + u128::from(cost) * self.token).min(self.deepest).max(owed), now)
    }

    /// A live state without a cost that was charged some time ago. What has refilled since would
    /// have refilled without the charge too, if the bucket was full or became so: giving it back
    /// could leave more than there would have been.
    #[must_use]
    pub(super) fn give_back(
        &self,
        state: State,
        now: Micros,
        cost: u64,
        charged_at: Micros,
    ) -> State {
        let refilled = u128::from(now.0 - charged_at.0) << FRACTION_BITS;
        let given = (u128::from(cost) * self.token).saturating_sub(refilled);
        match owed(state, now).saturating_sub(given) {
            0 => State::default(),
            owed => owing(owed, now),
        }
    }

    /// In which times a cost, all tokens, the deepest debt of these numbers and that of any refill:
    /// spans as a state counts them, whole microseconds and what rounding up to them added.
    #[must_use]
    pub fn spans(&self, cost: u64) -> [(u64, u64); 4] {
        [u128::from(cost) * self.token, self.empty, self.deepest, self.reach].map(|span| {
            let State { until, rest, .. } = owing(span, Micros(0));
            (until.0, rest)
        })
    }
}

/// How far ahead of `now` the theoretical arrival time `until - rest` lies.
fn owed(state: State, now: Micros) -> u128 {
    match state.until.0.checked_sub(now.0) {
        None | Some(0) => 0,
        Some(ahead) => (u128::from(ahead) << FRACTION_BITS).saturating_sub(u128::from(state.rest)),
    }
}

/// A full bucket once a cost is charged, full since `grace` microseconds ago at the most.
fn charged_late(state: State, now: Micros, cost: u128, grace: u64) -> State {
    let earliest = Micros(now.0.saturating_sub(grace));
    if state.until <= earliest {
        return owing(cost, earliest);
    }
    // One microsecond back, so that the part that is taken off leaves something.
    let part = (1 << FRACTION_BITS) - u128::from(state.rest);
    owing(cost + part, Micros(state.until.0 - 1))
}

/// The state that owes this much: `until` is rounded up and `rest` is what that added, so that a
/// bucket is live exactly while it owes anything.
fn owing(owed: u128, now: Micros) -> State {
    let until = after(now, owed);
    let ahead = u128::from(until.0 - now.0) << FRACTION_BITS;
    State::new(until, (ahead - owed) as u64)
}

/// The first whole microsecond that lies a span after `now`.
fn after(now: Micros, span: u128) -> Micros {
    const ALMOST_ONE: u128 = (1 << FRACTION_BITS) - 1;
    Micros(now.0 + ((span + ALMOST_ONE) >> FRACTION_BITS) as u64)
}

/// Most buckets refill within the hour and fit into 64 bits, where a division is cheap.
fn quotient(span: u128, token: u128) -> u64 {
    match (u64::try_from(span), u64::try_from(token)) {
        (Ok(span), Ok(token)) => span / token,
        _ => (span / token) as u64,
    }
}

#[cfg(test)]
mod tests;
