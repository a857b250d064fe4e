//! `sliding_log`: every request of the last `W`, with its cost; at most `N` in any of them.
//!
//! The log itself is a [`Log`]; its summary, which stores hand around, is a [`State`]: `ends_at` is
//! when the last entry is `W` old, `rest` the sum of those younger than that, and `grows_at` when
//! enough of the oldest have aged out for more to be left: one, unless the log is in debt.
//!
//! Entries carry the running total, so the sum of any stretch is a difference and everything is
//! found by bisection, however long the log is. Requests of the same microsecond are one entry
//! with their sum. An entry that lies ahead of `now`, after a step back of the clock, counts as
//! made now: it stays used for `W` and no longer.

use std::collections::VecDeque;
use std::time::Duration;

use super::algorithm::{Algorithm, Report, Retry, State, Verdict};
use super::rate::Rate;
use super::wire::{COUNTS, EXACT, WireArgs, WireCheck, WireState};
use crate::clock::Micros;

/// The most a log counts. It takes 16 bytes for each, and up to as much again for room to grow.
pub const MAX_COUNT: u64 = 100_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SlidingLog {
    rate: Rate,
    /// How far beyond `N` charges after the fact may push it.
    debt: u64,
    /// Other numbers may alternate on the same log: for how long the longest of them counts an
    /// entry, and what any of them counts at most.
    kept_us: u64,
    most: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a sliding_log counts at most {MAX_COUNT}")]
pub struct CountError;

/// Oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Log {
    entries: VecDeque<Entry>,
    /// The running total before the first entry.
    base: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    at: u64,
    /// The running total with this entry.
    total: u64,
}

impl Log {
    /// The log that is sure to count as much, for as long, as a state tells: one entry.
    pub fn of(state: State, policy: &SlidingLog) -> Self {
        let at = state.ends_at.0.saturating_sub(policy.kept_us);
        Self { entries: VecDeque::from([Entry { at, total: state.rest }]), base: 0 }
    }

    /// The instants and costs, oldest first.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (Micros, u64)> {
        let mut before = self.base;
        self.entries.iter().map(move |entry| {
            let cost = entry.total - before;
            before = entry.total;
            (Micros(entry.at), cost)
        })
    }

    /// Adds an entry at the end. One at the instant of the last is part of it.
    pub fn push(&mut self, at: Micros, cost: u64) {
        let total = self.total() + cost;
        match self.entries.back_mut() {
            Some(last) if last.at >= at.0 => last.total = total,
            _ => self.entries.push_back(Entry { at: at.0, total }),
        }
    }

    /// Drops the oldest units beyond that many, also out of an entry.
    fn keep_newest(&mut self, units: u64) {
        self.base = self.base.max(self.total().saturating_sub(units));
        let dropped = self.entries.partition_point(|entry| entry.total <= self.base);
        self.entries.drain(..dropped);
    }

    fn total(&self) -> u64 {
        self.entries.back().map_or(self.base, |last| last.total)
    }

    fn last(&self) -> u64 {
        self.entries.back().map_or(0, |last| last.at)
    }

    /// How many entries are as old as that, and their running total.
    fn aged(&self, by: u64) -> (usize, u64) {
        let count = self.entries.partition_point(|entry| entry.at <= by);
        let total = count.checked_sub(1).map_or(self.base, |last| self.entries[last].total);
        (count, total)
    }
}

impl SlidingLog {
    /// # Errors
    /// If the rate's count is more than a log counts.
    pub fn new(rate: Rate) -> Result<Self, CountError> {
        if rate.count() > MAX_COUNT {
            return Err(CountError);
        }
        Ok(Self { rate, debt: 0, kept_us: rate.period_us(), most: rate.count() })
    }

    /// The same with room for so much debt.
    #[must_use]
    pub fn with_debt(self, debt: u64) -> Self {
        let debt = debt.min(MAX_COUNT);
        Self { debt, most: self.rate.count() + debt, ..self }
    }

    /// The same on a log on which other numbers alternate with these.
    #[must_use]
    pub fn beside(self, other: &Self) -> Self {
        let (kept_us, most) = (self.kept_us.max(other.kept_us), self.most.max(other.most));
        Self { kept_us, most, ..self }
    }

    pub fn rate(&self) -> Rate {
        self.rate
    }

    pub fn window_seconds(&self) -> Option<u64> {
        Some(self.rate.period_us().div_ceil(1_000_000))
    }

    /// The windows that so many units need, at the least.
    pub fn span(&self, units: u64) -> Duration {
        self.rate.span(units)
    }

    /// What may be counted at most.
    pub fn deepest(&self) -> u64 {
        self.rate.count() + self.debt
    }

    /// Moves entries that lie ahead of `now` to `now`. If that, or another period, makes a live log
    /// end at another instant than `ends_at`, what has aged out is gone for good. False if nothing
    /// has changed.
    pub fn clamp_log(&self, log: &mut Log, ends_at: Micros, now: Micros) -> bool {
        let ahead = log.last() > now.0;
        if ahead {
            let total = log.total();
            while log.entries.back().is_some_and(|last| last.at >= now.0) {
                log.entries.pop_back();
            }
            log.entries.push_back(Entry { at: now.0, total });
        }
        let clamped_end = self.gone(log.last());
        let changed = ahead || (clamped_end > now && clamped_end != ends_at);
        if changed {
            self.forget(log, now);
        }
        changed
    }

    /// What a clamped log comes to.
    pub fn sum_up(&self, log: &Log, now: Micros) -> State {
        let (out, gone) = self.uncounted(log, now);
        let ends_at = self.gone(log.last());
        match log.entries.get(out) {
            None if ends_at <= now => State::default(),
            None => State::new(ends_at, 0),
            Some(oldest) => {
                let rest = log.total() - gone;
                // In debt, nothing is left before more than that has aged out.
                let grows_at = match rest.checked_sub(self.rate.count()) {
                    Some(debt) if debt > 0 => self.aged_out(log, gone + debt + 1),
                    _ => self.out(oldest.at),
                };
                State { ends_at, rest, grows_at }
            }
        }
    }

    /// Decides one cost against a clamped log. The log stays as it is.
    #[must_use]
    pub fn evaluate_log(&self, log: &Log, now: Micros, cost: u64) -> Verdict {
        if cost > self.rate.count() {
            return Verdict::Refuse(Retry::Never);
        }
        let state = self.sum_up(log, now);
        // What has to age out before it passes.
        match (state.rest + cost).checked_sub(self.rate.count()).filter(|excess| *excess > 0) {
            None if cost == 0 => Verdict::Admit(state),
            None => Verdict::Admit(self.with_cost(state, now, cost)),
            Some(excess) => {
                let enough = log.total() - state.rest + excess;
                Verdict::Refuse(Retry::At(self.aged_out(log, enough)))
            }
        }
    }

    /// Charges a clamped log, and forgets what has aged out. Where that makes it deeper than it may
    /// be, the oldest units make room: the newest decide when a request may pass again.
    pub fn charge_log(&self, log: &mut Log, now: Micros, cost: u64) {
        let cost = cost.min(self.deepest());
        if cost == 0 {
            return;
        }
        let (_, gone) = self.uncounted(log, now);
        let overflows = log.total() - gone + cost > self.deepest();
        self.forget(log, now);
        self.trim(log);
        log.push(now, cost);
        if overflows {
            log.keep_newest(self.most);
        }
        // A log that was long once does not stay large for ever.
        if log.entries.capacity() > 4 * log.entries.len().max(4) {
            log.entries.shrink_to(2 * log.entries.len());
        }
    }

    /// Takes a cost out again that was charged at that instant, if it has not aged out.
    pub fn refund_log(&self, log: &mut Log, now: Micros, cost: u64, charged_at: Micros) {
        let (aged, _) = self.aged(log, now);
        let Ok(index) = log.entries.binary_search_by_key(&charged_at.0, |entry| entry.at) else {
            return;
        };
        if index < aged {
            return;
        }
        let before = index.checked_sub(1).map_or(log.base, |it| log.entries[it].total);
        let refund = cost.min(self.deepest() + 1).min(log.entries[index].total - before);
        if refund == 0 {
            return;
        }
        log.entries.iter_mut().skip(index).for_each(|entry| entry.total -= refund);
        if log.entries[index].total == before {
            log.entries.remove(index);
        }
        self.forget(log, now);
    }

    pub fn report(&self, state: State, now: Micros) -> Report {
        let (count, used) = (self.rate.count(), if state.ends_at <= now { 0 } else { state.rest });
        if used == 0 {
            return Report { remaining: count, grows_at: now, full_at: now };
        }
        let remaining = count.saturating_sub(used);
        let last_out = state.ends_at.0.saturating_sub(self.kept_us - self.rate.period_us());
        let full_at = Micros(last_out).max(now);
        let grows_at = if state.grows_at > now { state.grows_at } else { full_at };
        Report { remaining, grows_at, full_at }
    }

    fn known(&self, state: State, now: Micros) -> Log {
        if state.ends_at <= now { Log::default() } else { Log::of(state, self) }
    }

    fn with_cost(&self, state: State, now: Micros, cost: u64) -> State {
        let grows_at = if state.rest == 0 { self.out(now.0) } else { state.grows_at };
        State { ends_at: self.gone(now.0), rest: state.rest + cost, grows_at }
    }

    /// What has aged out counts no more, whatever the period becomes.
    fn forget(&self, log: &mut Log, now: Micros) {
        let (aged, gone) = self.aged(log, now);
        log.entries.drain(..aged);
        log.base = gone;
    }

    /// Of entries that only numbers of a longer window count, the newest are enough to have them
    /// refuse: without this, a log would grow by all that a short window lets through.
    fn trim(&self, log: &mut Log) {
        if self.kept_us == self.rate.period_us() {
            return;
        }
        let total = log.total();
        let spare = log.entries.partition_point(|entry| total - entry.total >= self.most);
        if let Some(last) = spare.checked_sub(1) {
            log.base = log.entries[last].total;
            log.entries.drain(..spare);
        }
    }

    /// What no numbers count any more.
    fn aged(&self, log: &Log, now: Micros) -> (usize, u64) {
        self.older_than(log, now, self.kept_us)
    }

    /// What these numbers do not count any more.
    fn uncounted(&self, log: &Log, now: Micros) -> (usize, u64) {
        self.older_than(log, now, self.rate.period_us())
    }

    fn older_than(&self, log: &Log, now: Micros, span_us: u64) -> (usize, u64) {
        match now.0.checked_sub(span_us) {
            Some(by) => log.aged(by),
            None => (0, log.base),
        }
    }

    /// When the entries up to that running total have aged out.
    fn aged_out(&self, log: &Log, total: u64) -> Micros {
        let last = log.entries.partition_point(|entry| entry.total < total);
        self.out(log.entries[last].at)
    }

    /// When an entry of that instant ages out.
    fn out(&self, at: u64) -> Micros {
        Micros(at + self.rate.period_us())
    }

    /// When no numbers count it any more.
    fn gone(&self, at: u64) -> Micros {
        Micros(at + self.kept_us)
    }
}

impl Algorithm for SlidingLog {
    const WIRE_ID: u64 = 5;
    const REPLY_NUMBERS: usize = 4;

    /// From a state alone: by the log that is sure to count as much.
    fn evaluate(&self, state: State, now: Micros, cost: u64) -> Verdict {
        self.evaluate_log(&self.known(state, now), now, cost)
    }

    fn clamp(&self, state: State, now: Micros) -> State {
        if state.ends_at.0 <= now.0 + self.kept_us {
            return state;
        }
        let grows_at = state.grows_at.min(self.out(now.0));
        State { ends_at: self.gone(now.0), grows_at, ..state }
    }

    fn charge_after(&self, state: State, now: Micros, cost: u64) -> State {
        let state = if state.ends_at <= now { State::default() } else { state };
        let cost = cost.min(self.deepest());
        if cost == 0 {
            return state;
        }
        let charged = self.with_cost(state, now, cost);
        State { rest: charged.rest.min(self.most), ..charged }
    }

    /// As far as a state alone can tell: see [`SlidingLog::refund_log`].
    fn refund(&self, state: State, _now: Micros, cost: u64, _charged_at: Micros) -> State {
        match state.rest.saturating_sub(cost) {
            0 => State::default(),
            rest => State { rest, ..state },
        }
    }

    /// cost, count, deepest, period_us, kept_us, most
    fn wire_args(&self, check: &WireCheck) -> WireArgs {
        let (count, period_us) = (self.rate.count(), self.rate.period_us());
        WireArgs::new([check.cost, count, self.deepest(), period_us, self.kept_us, self.most])
    }

    /// ends_at, rest, grows_at, passes_at
    fn wire_state(&self, next: &mut impl FnMut(u64) -> Option<u64>) -> Option<WireState> {
        let (ends_at, rest) = (Micros(next(EXACT)?), next(COUNTS)?);
        let (grows_at, passes_at) = (Micros(next(EXACT)?), Micros(next(EXACT)?));
        let state = State { ends_at, rest, grows_at };
        Some(WireState { state, passes_at: Some(passes_at).filter(|at| at.0 > 0) })
    }
}

#[cfg(test)]
mod tests;
