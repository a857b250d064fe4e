//! `token_bucket`: a bucket of `burst` tokens that refills continuously.
//!
//! The state is one instant, the *theoretical arrival time*: when the bucket will be full again.
//! How far it lies ahead is the bucket's *deficit*, and a cost passes if the deficit would be no
//! more than all its tokens. No division is needed to decide. `ends_at` is the instant rounded up
//! to whole microseconds, and `rest` what the rounding added.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use super::algorithm::{Algorithm, Report, Retry, State, Verdict};
use super::rate::Rate;
use super::wire::{EXACT, WireArgs, WireCheck, WireCost, WireState};
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
    /// In which time all do: the deficit of an empty bucket.
    empty: u128,
    /// The largest deficit: more than `empty` if charges after the fact may push it below zero.
    deepest: u128,
    /// The largest deficit under any of the numbers that alternate on this bucket. A state beyond
    /// it is clamped to it.
    reach: u128,
}

impl Hash for TokenBucket {
    /// Only what tells buckets apart: the other fields follow from these.
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

    /// The same on a bucket on which other numbers alternate with these.
    #[must_use]
    pub fn beside(self, other: &Self) -> Self {
        Self { reach: self.reach.max(other.reach), ..self }
    }

    pub fn rate(&self) -> Rate {
        self.rate
    }

    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// The largest deficit in whole tokens, rounded up.
    pub fn deepest(&self) -> u64 {
        if self.deepest == self.empty {
            return self.burst;
        }
        self.deepest.div_ceil(self.token) as u64
    }

    /// One node's part of this bucket while `nodes` of them cannot agree: it refills that many
    /// times more slowly and holds as much less, but a `cost` that fits into the whole fits into
    /// the part. A deficit is counted in time, so it means the same share of both. Parts for
    /// different costs share a bucket, and the largest cost takes all tokens at the slow pace. So
    /// are debts paid off.
    #[must_use]
    pub fn share(&self, nodes: u64, cost: u64) -> Self {
        let whole = if cost <= self.burst { cost } else { 0 };
        let burst = (self.burst / nodes).max(whole).max(1);
        let token = self.token * u128::from(nodes);
        let empty = token * u128::from(burst);
        let deepest = self.deepest * u128::from(nodes);
        Self { rate: self.rate, burst, token, empty, deepest, reach: self.reach.max(deepest) }
    }

    /// In which time so many tokens refill, rounded up.
    pub fn span(&self, tokens: u64) -> Duration {
        let span = u128::from(tokens.min(MAX_BURST)) * self.token;
        Duration::from_micros(after(Micros(0), span).0)
    }

    /// See [`LeakyBucket::pace`](super::leaky_bucket::LeakyBucket::pace).
    pub(super) fn pace(&self, tokens: u64) -> Duration {
        let nanos = (u128::from(tokens) * self.token * 1000) >> FRACTION_BITS;
        Duration::from_nanos(u64::try_from(nanos + 1).unwrap_or(u64::MAX))
    }

    /// See [`LeakyBucket::turn`](super::leaky_bucket::LeakyBucket::turn).
    pub(super) fn turn(&self, charged: State, now: Micros, cost: u64) -> Duration {
        let ahead = deficit(charged, now).saturating_sub(u128::from(cost) * self.token);
        Duration::from_micros(after(Micros(0), ahead).0)
    }

    /// Whole tokens that refill in a span of time.
    pub fn refilled(&self, span: Duration) -> u64 {
        let tokens = (span.as_micros() << FRACTION_BITS) / self.token;
        u64::try_from(tokens).unwrap_or(u64::MAX)
    }

    /// From the rate as written: the rounding of one token must not show as a second more.
    pub fn window_seconds(&self) -> Option<u64> {
        let period = u128::from(self.rate.period_us()) * u128::from(self.burst);
        Some(period.div_ceil(u128::from(self.rate.count()) * 1_000_000) as u64)
    }

    /// How much of the time that a queued request has been due counts, in microseconds: at most
    /// what one token takes to refill.
    ///
    /// A charge counts from an instant that lies at most this much before the one at which it is
    /// made, and the arrival time only grows. So from the first charge of an interval of length `t`
    /// to its last, the arrival time grows by no more than `empty + t` and one token: no interval
    /// holds more than `burst + rate × t + 1`, whichever callers spend and whatever stood still.
    pub fn grace(&self, waited: u64) -> u64 {
        waited.min(u64::try_from(self.token >> FRACTION_BITS).unwrap_or(u64::MAX))
    }

    /// Decides a cost that could have passed as early as `waited` microseconds ago: what has
    /// refilled since is not lost to a bucket that ran full, as far as there is
    /// [grace](Self::grace). Its state may then end before `now`, and says since when it is full.
    /// For an absent bucket that is not known, and nothing is counted.
    #[must_use]
    #[inline]
    pub fn evaluate_waited(&self, state: State, now: Micros, cost: u64, waited: u64) -> Verdict {
        if cost > self.burst {
            return Verdict::Refuse(Retry::Never);
        }
        let cost = u128::from(cost) * self.token;
        let deficit = deficit(state, now).min(self.reach) + cost;
        // A full bucket keeps the instant since when it is full.
        if deficit == 0 {
            return Verdict::Admit(state);
        }
        if waited > 0 && deficit == cost && state != State::default() {
            let grace = self.grace(waited);
            if grace > 0 {
                return Verdict::Admit(charged_with_grace(state, now, cost, grace));
            }
        }
        if deficit <= self.empty {
            Verdict::Admit(state_in_deficit(deficit, now))
        } else {
            Verdict::Refuse(Retry::At(after(now, deficit - self.empty)))
        }
    }

    /// In which time so many tokens refill, as the first two numbers of [`Algorithm::wire_args`].
    pub(super) fn wire_cost(&self, units: u64) -> WireCost {
        let span = state_in_deficit(u128::from(units) * self.token, Micros(0));
        WireCost { cost: span.ends_at.0, rest: span.rest }
    }

    /// Full no sooner than `amount` microseconds after an instant: see [`lease`](super::lease).
    pub(super) fn cap_refill(&self, state: State, at: Micros, amount: u64) -> State {
        let full = Micros(at.0 + amount);
        if state.ends_at < full || state.ends_at == full && state.rest > 0 {
            State::new(full, 0)
        } else {
            state
        }
    }

    pub fn report(&self, state: State, now: Micros) -> Report {
        let deficit = deficit(state, now).min(self.reach);
        if deficit == 0 {
            return Report { remaining: self.burst, grows_at: now, full_at: now };
        }
        let remaining = quotient(self.empty.saturating_sub(deficit), self.token);
        let next = u128::from(remaining + 1) * self.token;
        Report {
            remaining,
            grows_at: after(now, deficit + next - self.empty),
            full_at: after(now, deficit),
        }
    }
}

impl Algorithm for TokenBucket {
    const WIRE_ID: u64 = 1;
    const REPLY_NUMBERS: usize = 2;

    fn clamp(&self, state: State, now: Micros) -> State {
        if deficit(state, now) > self.reach { state_in_deficit(self.reach, now) } else { state }
    }

    fn evaluate(&self, state: State, now: Micros, cost: u64) -> Verdict {
        self.evaluate_waited(state, now, cost, 0)
    }

    fn charge_after(&self, state: State, now: Micros, cost: u64) -> State {
        let before = deficit(state, now);
        let after = (before + u128::from(cost) * self.token).min(self.deepest).max(before);
        state_in_deficit(after, now)
    }

    /// What has refilled since would have refilled without the charge too, if the bucket was full
    /// or became so: giving it back could leave more than there would have been.
    fn refund(&self, state: State, now: Micros, cost: u64, charged_at: Micros) -> State {
        let refilled = u128::from(now.0 - charged_at.0) << FRACTION_BITS;
        let refund = (u128::from(cost) * self.token).saturating_sub(refilled);
        match deficit(state, now).saturating_sub(refund) {
            0 => State::default(),
            deficit => state_in_deficit(deficit, now),
        }
    }

    /// Spans of time, each as whole microseconds and the rest that rounding up to them added: cost,
    /// cost_rest, empty, empty_rest, deepest, deepest_rest; then grace; and reach, reach_rest if
    /// they are not those of deepest, which most buckets have.
    fn wire_args(&self, check: &WireCheck) -> WireArgs {
        let wire = |span| state_in_deficit(span, Micros(0));
        let (cost, empty) = (self.wire_cost(check.cost), wire(self.empty));
        let (deepest, reach) = (wire(self.deepest), wire(self.reach));
        let args = [
            cost.cost,
            cost.rest,
            empty.ends_at.0,
            empty.rest,
            deepest.ends_at.0,
            deepest.rest,
            check.grace,
        ];
        if reach == deepest {
            return WireArgs::new(args);
        }
        let [a, b, c, d, e, f, g] = args;
        WireArgs::new([a, b, c, d, e, f, g, reach.ends_at.0, reach.rest])
    }

    /// ends_at, rest
    fn wire_state(&self, next: &mut impl FnMut(u64) -> Option<u64>) -> Option<WireState> {
        let (ends_at, rest) = (Micros(next(EXACT)?), next(1 << FRACTION_BITS)?);
        Some(State::new(ends_at, rest).into())
    }
}

/// How far ahead of `now` the theoretical arrival time `ends_at - rest` lies.
fn deficit(state: State, now: Micros) -> u128 {
    match state.ends_at.0.checked_sub(now.0) {
        None | Some(0) => 0,
        Some(ahead) => (u128::from(ahead) << FRACTION_BITS).saturating_sub(u128::from(state.rest)),
    }
}

/// A full bucket once a cost is charged, full since `grace` microseconds ago at the most.
fn charged_with_grace(state: State, now: Micros, cost: u128, grace: u64) -> State {
    let earliest = Micros(now.0.saturating_sub(grace));
    if state.ends_at <= earliest {
        return state_in_deficit(cost, earliest);
    }
    // One microsecond back, so that the part that is taken off leaves something.
    let part = (1 << FRACTION_BITS) - u128::from(state.rest);
    state_in_deficit(cost + part, Micros(state.ends_at.0 - 1))
}

/// `ends_at` is rounded up and `rest` is what that added, so that a bucket is live exactly while it
/// has a deficit.
fn state_in_deficit(deficit: u128, now: Micros) -> State {
    let ends_at = after(now, deficit);
    let ahead = u128::from(ends_at.0 - now.0) << FRACTION_BITS;
    State::new(ends_at, (ahead - deficit) as u64)
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
