//! The intervals that leases go by, all from `store.sync_interval`.

use std::time::Duration;

use crate::limit::lease::LONGEST_LEASE;

/// In microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTiming {
    /// How often demand is looked at.
    pub tick: u64,
    /// `store.sync_interval`: how long units may lie idle at a gateway, and half of the longest that a
    /// key near its limit is refused without asking again.
    pub sync: u64,
    /// How long a lease lasts.
    pub life: u64,
}

/// Ticks in a `sync_interval`.
pub(super) const TICKS: u64 = 4;
/// Intervals that a lease lasts for.
const LIFE: u64 = 8;

/// A bucket that was empty is asked for again after so many microseconds at the latest.
pub(super) const LONGEST_DRY: u64 = 1_000_000;

impl LeaseTiming {
    pub fn new(sync_interval: Duration) -> Self {
        let sync = (sync_interval.as_micros() as u64).max(1_000);
        let life = (sync * LIFE).min(LONGEST_LEASE / 5 * 4);
        LeaseTiming { tick: sync / TICKS, sync, life }
    }

    /// How long a bucket that is leased, or dry, may go unheard while it is asked for.
    pub(super) fn max_unheard(self) -> Duration {
        Duration::from_micros(self.life.max(LONGEST_DRY))
    }

    /// How long after it was sent for a span of the store's clock is sure not to be over, by a clock
    /// here that runs a thousandth slower. Clocks that are disciplined differ by less.
    pub(super) fn surely_within(span: u64) -> u64 {
        span - span.div_ceil(1_000)
    }
}
