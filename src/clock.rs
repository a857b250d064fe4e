//! Time as the engine sees it: whole microseconds since the Unix epoch, from one clock value.
//!
//! [`Clock::system`] reads the monotonic clock and adds the wall-clock time of its start, so a
//! step of the wall clock neither fills nor empties a bucket. [`Clock::manual`] is moved by hand:
//! tests and replays own their time.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

thread_local! {
    static CACHED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Reads the monotonic clock.
pub fn now() -> Instant {
    let now = Instant::now();
    CACHED.set(Some(now));
    now
}

/// Renews what [`cached_now`] tells, after a wait.
pub fn refresh() {
    now();
}

/// When this thread last read the clock, which every request does when it comes, has waited, is
/// decided and ends. Precise enough for what is measured in seconds, and for something that has just
/// happened; reading the clock takes as long as deciding a limit.
pub fn cached_now() -> Instant {
    CACHED.get().unwrap_or_else(now)
}

/// An instant as a number that fits into an atomic: milliseconds since a little before the first call;
/// never zero, so that zero can mean that there is none.
pub fn millis(instant: Instant) -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(|| {
        let now = Instant::now();
        // What the first calls are asked for was mostly read from the clock before they were made.
        now.checked_sub(Duration::from_secs(1)).unwrap_or(now)
    });
    let since = instant.saturating_duration_since(*START).as_millis();
    u64::try_from(since).unwrap_or(u64::MAX).saturating_add(1)
}

/// A duration to be added to [`millis`].
pub fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX >> 1)
}

/// What the wall clock shows: seconds since the Unix epoch.
pub fn unix_second() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The same, to the millisecond.
pub fn unix_time() -> f64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    (time.unwrap_or_default().as_secs_f64() * 1e3).round() / 1e3
}

/// A point in time: microseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Micros(pub u64);

impl Micros {
    /// How long after `earlier` this is; zero if it is not.
    pub fn since(self, earlier: Micros) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// The instant so long before this.
    pub fn before(self, time: Duration) -> Micros {
        Micros(self.0.saturating_sub(u64::try_from(time.as_micros()).unwrap_or(u64::MAX)))
    }
}

/// Where "now" comes from.
#[derive(Debug, Clone)]
pub struct Clock(ClockSource);

#[derive(Debug, Clone)]
enum ClockSource {
    System(Anchor),
    Steered(Anchor, Arc<AtomicI64>),
    Manual(Arc<AtomicU64>),
}

/// A moment on the monotonic clock, and what the wall clock showed.
#[derive(Debug, Clone, Copy)]
struct Anchor {
    start: Instant,
    wall: u64,
}

impl Anchor {
    fn new() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Anchor { start: Instant::now(), wall: wall.as_micros() as u64 }
    }

    fn at(&self, instant: Instant) -> u64 {
        self.wall + instant.saturating_duration_since(self.start).as_micros() as u64
    }
}

impl Clock {
    /// The monotonic clock, anchored to the wall clock now.
    pub fn system() -> Self {
        Clock(ClockSource::System(Anchor::new()))
    }

    /// A clock that shows the time of another machine, as far as [`Clock::steer`] has heard of it.
    /// Clones are steered together.
    pub fn steered() -> Self {
        Clock(ClockSource::Steered(Anchor::new(), Arc::default()))
    }

    /// Takes over the time that the other machine's clock showed at some instant between `sent`
    /// and `received`, which bounds by how much the two differ. A reply that was long on its way, or
    /// is heard after a newer one, agrees with what is known and changes nothing; only one that no
    /// delay explains sets this clock back, since then the other was set back itself.
    pub fn steer(&self, time: Micros, sent: Instant, received: Instant) {
        if let ClockSource::Steered(anchor, shift) = &self.0 {
            let ahead = |instant| time.0.wrapping_sub(anchor.at(instant)).cast_signed();
            let (least, most) = (ahead(received), ahead(sent));
            let within = |known: i64| {
                let next = if known > most { least } else { known.max(least) };
                (next != known).then_some(next)
            };
            let _ = shift.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within);
        }
    }

    /// A clock that stands at `start` until [`Clock::advance`] or [`Clock::set`] moves it. Clones share their time.
    pub fn manual(start: Micros) -> Self {
        Clock(ClockSource::Manual(Arc::new(AtomicU64::new(start.0))))
    }

    pub fn now(&self) -> Micros {
        match &self.0 {
            ClockSource::System(anchor) => Micros(anchor.at(now())),
            ClockSource::Steered(anchor, shift) => {
                let shift = shift.load(Ordering::Relaxed);
                Micros(anchor.at(now()).saturating_add_signed(shift))
            }
            ClockSource::Manual(at) => Micros(at.load(Ordering::Acquire)),
        }
    }

    /// How far the wall clock is ahead of this one, in microseconds: it was moved since the start,
    /// or this one shows another machine's time. Less than half a second is none.
    pub fn wall_step(&self) -> i64 {
        const DRIFT: u64 = 500_000;
        if let ClockSource::Manual(_) = self.0 {
            return 0;
        }
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let wall = i64::try_from(wall).unwrap_or(i64::MAX);
        let step = wall.saturating_sub_unsigned(self.now().0);
        if step.unsigned_abs() < DRIFT { 0 } else { step }
    }

    /// Moves a manual clock forward.
    ///
    /// # Panics
    /// If this is the system's clock: nobody may move that.
    pub fn advance(&self, by: Duration) {
        self.manual_time().fetch_add(by.as_micros() as u64, Ordering::AcqRel);
    }

    /// Moves a manual clock to an instant, which may be an earlier one.
    ///
    /// # Panics
    /// If this is the system's clock.
    pub fn set(&self, at: Micros) {
        self.manual_time().store(at.0, Ordering::Release);
    }

    fn manual_time(&self) -> &AtomicU64 {
        match &self.0 {
            ClockSource::System(_) | ClockSource::Steered(..) => {
                panic!("the system clock cannot be moved")
            }
            ClockSource::Manual(at) => at,
        }
    }
}

#[cfg(test)]
mod tests;
