//! Time as the engine sees it: whole microseconds since the Unix epoch, from one clock value.
//!
//! [`Clock::system`] reads the monotonic clock and adds the wall-clock time of its start, so a
//! step of the wall clock neither fills nor empties a bucket. [`Clock::manual`] is moved by hand:
//! tests and replays own their time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A point in time: microseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Micros(pub u64);

impl Micros {
    /// How long after `earlier` this is; zero if it is not.
    #[must_use]
    pub fn since(self, earlier: Micros) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// Where "now" comes from.
#[derive(Debug, Clone)]
pub struct Clock(Source);

#[derive(Debug, Clone)]
enum Source {
    System { start: Instant, wall: u64 },
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// The monotonic clock, anchored to the wall clock now.
    #[must_use]
    pub fn system() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock(Source::System { start: Instant::now(), wall: wall.as_micros() as u64 })
    }

    /// A clock that stands at `start` until [`Clock::advance`] moves it. Clones share their time.
    #[must_use]
    pub fn manual(start: Micros) -> Self {
        Clock(Source::Manual(Arc::new(AtomicU64::new(start.0))))
    }

    #[must_use]
    pub fn now(&self) -> Micros {
        match &self.0 {
            Source::System { start, wall } => Micros(wall + start.elapsed().as_micros() as u64),
            Source::Manual(at) => Micros(at.load(Ordering::Acquire)),
        }
    }

    /// Moves a manual clock forward.
    ///
    /// # Panics
    /// If this is the system's clock: nobody may move that.
    pub fn advance(&self, by: Duration) {
        match &self.0 {
            Source::System { .. } => panic!("the system clock cannot be moved"),
            Source::Manual(at) => {
                at.fetch_add(by.as_micros() as u64, Ordering::AcqRel);
            }
        }
    }
}
