//! Whether Redis may be used again: how fast it answers probes, and how often it has relapsed.
//!
//! Pure: [`probe`](super::probe) sends the probes and reads the clock.

use std::time::Duration;

use tokio::time::Instant;

use super::late_budget::LateBudget;

/// So many probes in a row have to be answered in time.
pub(crate) const PROBES: u32 = 5;
/// How long after an answer in time the next probe is sent, at least.
pub(crate) const PAUSE: Duration = Duration::from_millis(10);
/// So many late answers in a row show that it is no accident. As many of them, in excess of the
/// share that may be late, start a trial over.
const TOO_SLOW: u32 = 3;

/// One connection on trial.
#[derive(Debug)]
pub(crate) struct RecoveryTrial {
    timeout: Duration,
    /// When its first answer in time came since it last had to start over.
    since: Option<Instant>,
    in_time: u32,
    late: u32,
    late_budget: LateBudget,
    /// What an answer takes, smoothed.
    typical: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TrialResult {
    Undecided,
    /// It answers as fast as decisions need it. Typically in this time.
    Passed(Duration),
    /// It does not, and typically takes so long.
    TooSlow(Duration),
}

impl RecoveryTrial {
    /// Answers may take `timeout`, as decisions may.
    pub(crate) fn new(timeout: Duration) -> Self {
        let late_budget = LateBudget::new(TOO_SLOW);
        RecoveryTrial { timeout, since: None, in_time: 0, late: 0, late_budget, typical: None }
    }

    /// Adds an answer that took so long and came `now`. Redis has to do well for `probation`; an
    /// answer that is late now and then, as some may be in use, does not end it.
    pub(crate) fn add(&mut self, took: Duration, now: Instant, probation: Duration) -> TrialResult {
        let typical = self.typical.map_or(took, |it| (it * 3 + took) / 4);
        self.typical = Some(typical);
        if took > self.timeout {
            self.in_time = 0;
            self.late += 1;
            if !self.late_budget.record_late() && self.late < TOO_SLOW {
                return TrialResult::Undecided;
            }
            self.late_budget.reset();
            self.since = None;
            return TrialResult::TooSlow(typical.max(took));
        }
        self.late = 0;
        self.in_time += 1;
        self.late_budget.record_in_time();
        let since = *self.since.get_or_insert(now);
        if self.in_time >= PROBES && now.duration_since(since) >= probation {
            TrialResult::Passed(typical)
        } else {
            TrialResult::Undecided
        }
    }
}

/// How often Redis became too slow again soon after it had been taken back into use.
#[derive(Debug, Default)]
pub(crate) struct Relapses {
    count: u32,
    closed: Option<Instant>,
}

/// In use for so long without becoming too slow, it counts as well: one that stands still now and
/// then, as a fork makes it, is not too slow.
const HEALTHY: Duration = Duration::from_secs(5);
/// How long Redis has to do well after its first relapse; twice as long after each further one, up
/// to the longest. After a few of them it is still back within five seconds.
const FIRST_PROBATION: Duration = Duration::from_millis(250);
const LONGEST_PROBATION: Duration = Duration::from_secs(60);

impl Relapses {
    /// The breaker has opened. If it is not for slowness, how slow Redis was tells nothing: it is
    /// another one when it is back.
    pub(crate) fn opened(&mut self, slow: bool, now: Instant) {
        let soon = self.closed.take().is_some_and(|it| now.duration_since(it) < HEALTHY);
        self.count = if slow && soon { self.count.saturating_add(1) } else { 0 };
    }

    /// It could not be closed, though requests had begun to wait for it.
    pub(crate) fn half_close_failed(&mut self, slow: bool) {
        self.count = if slow { self.count.saturating_add(1) } else { 0 };
    }

    /// Redis fails while the breaker is open.
    pub(crate) fn failed(&mut self, slow: bool) {
        if !slow {
            self.count = 0;
        }
    }

    pub(crate) fn closed(&mut self, now: Instant) {
        self.closed = Some(now);
    }

    /// For how long Redis has to do well before it is used again.
    pub(crate) fn probation(&self) -> Duration {
        match self.count {
            0 => Duration::ZERO,
            count => {
                let factor = 2_u32.saturating_pow(count - 1);
                FIRST_PROBATION.saturating_mul(factor).min(LONGEST_PROBATION)
            }
        }
    }
}

/// How long to wait after an answer in time: a long probation needs no more probes than a few
/// hundred.
pub(crate) fn pause(probation: Duration) -> Duration {
    PAUSE.max(probation / 100)
}

#[cfg(test)]
mod tests;
