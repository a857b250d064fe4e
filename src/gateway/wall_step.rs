//! How far the wall clock was moved since the process began.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::Clock;

const READ_INTERVAL: Duration = Duration::from_secs(1);

/// Reads it once a second.
#[derive(Debug)]
pub(super) struct WallStep {
    clock: Clock,
    next_read: Cell<Option<Instant>>,
    micros: Cell<i64>,
}

impl WallStep {
    pub(super) fn new(clock: Clock) -> Self {
        WallStep { clock, next_read: Cell::default(), micros: Cell::default() }
    }

    pub(super) fn at(&self, now: Instant) -> i64 {
        if self.next_read.get().is_none_or(|next| now >= next) {
            self.micros.set(self.clock.wall_step());
            self.next_read.set(Some(now + READ_INTERVAL));
        }
        self.micros.get()
    }
}
