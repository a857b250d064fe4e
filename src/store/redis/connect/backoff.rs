//! How long to wait before the next attempt: longer each time, never for long, and never in step
//! with the other workers and gateways that wait for the same Redis.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_millis(800);

#[derive(Debug)]
pub(crate) struct Backoff {
    attempts: u32,
    /// Differs from one backoff to the next.
    seed: RandomState,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Backoff { attempts: 0, seed: RandomState::new() }
    }

    pub(crate) fn reset(&mut self) {
        self.attempts = 0;
    }

    /// Whether nothing has failed since the start or the last success.
    pub(crate) fn is_first(&self) -> bool {
        self.attempts == 0
    }

    /// Counts an attempt that is followed by another at once.
    pub(crate) fn skip(&mut self) {
        self.attempts += 1;
    }

    /// Between half and all of a span that doubles each time.
    pub(crate) fn next(&mut self) -> Duration {
        let span = FIRST.saturating_mul(1 << self.attempts.min(10)).min(LONGEST);
        self.attempts = self.attempts.saturating_add(1);
        let share = self.seed.hash_one(self.attempts) as u32;
        span / 2 + (span / 2).mul_f64(f64::from(share) / f64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_a_bound_and_start_over() {
        let mut backoff = Backoff::new();
        let first = backoff.next();
        assert!(first >= FIRST / 2 && first <= FIRST, "{first:?}");
        let last = (0..100).map(|_| backoff.next()).last().unwrap_or_default();
        assert!(last >= LONGEST / 2 && last <= LONGEST, "{last:?}");
        backoff.reset();
        assert!(backoff.is_first());
        assert!(backoff.next() <= FIRST && !backoff.is_first());
    }

    #[test]
    fn no_two_wait_in_step() {
        let (mut one, mut other) = (Backoff::new(), Backoff::new());
        assert!((0..10).any(|_| one.next() != other.next()));
    }
}
