//! How often the same thing may be logged.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

use crate::clock::millis;

/// When something was last logged, in milliseconds; zero if it never was.
#[derive(Debug, Default)]
pub(super) struct LogPace(AtomicU64);

impl LogPace {
    /// True for one caller in `interval` milliseconds, who is then to log.
    pub(super) fn is_due(&self, now: Instant, interval: u64) -> bool {
        let now = millis(now);
        let last = self.0.load(Ordering::Relaxed);
        let due = last == 0 || now.saturating_sub(last) > interval;
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        due && self.0.compare_exchange(last, now, set, get).is_ok()
    }

    /// Whether anything was logged since the last reset.
    pub(super) fn has_logged(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// It has been logged.
    pub(super) fn note(&self, now: Instant) {
        self.0.store(millis(now), Ordering::Relaxed);
    }

    /// Starts anew. Whether anything was logged since the last time.
    pub(super) fn reset(&self) -> bool {
        self.0.swap(0, Ordering::Relaxed) != 0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn it_is_due_once_in_each_interval() {
        let (pace, start) = (LogPace::default(), Instant::now());
        let is_due = |millis| pace.is_due(start + Duration::from_millis(millis), 1000);
        assert_eq!(
            [0, 0, 500, 1000, 1001, 1002].map(is_due),
            [true, false, false, false, true, false]
        );
        assert!(!is_due(2001) && is_due(2002));
    }

    #[test]
    fn it_is_due_at_once_after_a_reset() {
        let (pace, now) = (LogPace::default(), Instant::now());
        assert!(!pace.has_logged() && !pace.reset());
        assert!(pace.is_due(now, 1000) && pace.has_logged());
        assert!(pace.reset() && !pace.reset());
        assert!(pace.is_due(now, 1000));
    }

    #[test]
    fn what_was_logged_elsewhere_counts() {
        let (pace, now) = (LogPace::default(), Instant::now());
        pace.note(now);
        assert!(pace.has_logged() && !pace.is_due(now, 1000));
    }
}
