//! Says that guards have no room for another caller: once a minute, with how many requests and blocks
//! of other gateways they could not take in.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::Micros;

const INTERVAL_US: u64 = 60_000_000;

#[derive(Debug, Default)]
pub(super) struct GuardOverflow {
    /// Requests that were not counted, and not told of yet.
    requests: AtomicU64,
    /// When that was last told.
    told_at: AtomicU64,
}

impl GuardOverflow {
    /// Notes that a request was not counted.
    pub(super) fn note(&self, now: Micros) {
        if let Some(requests) = self.due(now) {
            tracing::warn!(
                requests,
                "guards do not count new callers: all of max_keys are blocked"
            );
        }
    }

    /// How many to tell of, if it is time.
    fn due(&self, now: Micros) -> Option<u64> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let told_at = self.told_at.load(Ordering::Relaxed);
        if now.0.saturating_sub(told_at) < INTERVAL_US {
            return None;
        }
        // Of several workers one tells.
        let exchange = Ordering::Relaxed;
        self.told_at.compare_exchange(told_at, now.0, exchange, exchange).ok()?;
        Some(self.requests.swap(0, Ordering::Relaxed))
    }

    /// How many were not counted since the last time.
    #[cfg(test)]
    pub(super) fn untold(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overflow_is_told_once_a_minute_with_all_that_came() {
        let (overflow, start) = (GuardOverflow::default(), 1_000 * INTERVAL_US);
        let due = |after_us: u64| overflow.due(Micros(start + after_us));
        assert_eq!(due(0), Some(1));
        for second in 1..60 {
            assert_eq!(due(second * 1_000_000), None);
        }
        assert_eq!(due(INTERVAL_US), Some(60));
        assert_eq!(due(INTERVAL_US + 1), None);
    }
}
