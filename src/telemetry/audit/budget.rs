//! How much is recorded of violations in a second, by all workers together: an attack must neither
//! fill a disk nor keep workers busy with writing.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

/// Ten seconds of an attack, which may touch eleven, stay below a megabyte.
const BYTES_PER_SECOND: u64 = 80_000;
/// Of the packed number: the bytes that were spent in the second in front of them.
const BYTES_MASK: u64 = u32::MAX as u64;

/// One for the process. Once it is spent, asking it is a load of a number that nobody changes.
#[derive(Debug)]
pub(super) struct AuditBudget {
    began: Instant,
    /// The second since `began` in the upper half, the bytes spent in it in the lower.
    spent: AtomicU64,
}

impl AuditBudget {
    pub(super) fn new() -> Self {
        AuditBudget { began: Instant::now(), spent: AtomicU64::new(0) }
    }

    #[inline]
    pub(super) fn has_room(&self, now: Instant) -> bool {
        let spent = self.spent.load(Ordering::Relaxed);
        spent & BYTES_MASK < BYTES_PER_SECOND || self.second(now) > spent >> 32
    }

    pub(super) fn spend(&self, bytes: usize, now: Instant) {
        let second = self.second(now);
        // Workers read the clock at different times: a second that has begun does not end again.
        let spend = |spent: u64| match spent >> 32 {
            then if second > then => Some(second << 32 | bytes as u64 & BYTES_MASK),
            then => {
                Some(then << 32 | (spent & BYTES_MASK).saturating_add(bytes as u64) & BYTES_MASK)
            }
        };
        let _ = self.spent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend);
    }

    fn second(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.began).as_secs()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_second_has_its_own_budget_and_none_comes_back() {
        let budget = AuditBudget::new();
        let at = |seconds| budget.began + Duration::from_secs(seconds);
        budget.spend(BYTES_PER_SECOND as usize - 1, at(3));
        assert!(budget.has_room(at(3)));
        budget.spend(1, at(3));
        assert!(!budget.has_room(at(3)) && budget.has_room(at(4)));
        assert!(!budget.has_room(at(2)), "a worker whose clock is behind");
        budget.spend(1, at(2));
        assert!(!budget.has_room(at(3)));
        budget.spend(10, at(4));
        assert!(budget.has_room(at(4)));
    }
}
