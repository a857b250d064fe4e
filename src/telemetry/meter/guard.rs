//! What guards have noticed, and whom they have refused.

use prometheus::IntCounter;
use prometheus::local::LocalIntCounter;

use crate::telemetry::Metrics;

/// What a guard has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardAction {
    Warned,
    Blocked,
    /// A request of a caller that it has blocked.
    Refused,
}

impl GuardAction {
    const ALL: [(GuardAction, &str); 3] = [
        (GuardAction::Warned, "warned"),
        (GuardAction::Blocked, "blocked"),
        (GuardAction::Refused, "refused"),
    ];
}

/// The counters of one guard.
#[derive(Debug, Clone)]
pub struct GuardCounters {
    counters: [IntCounter; GuardAction::ALL.len()],
}

impl GuardCounters {
    #[must_use]
    pub fn new(guard: &str, metrics: &Metrics) -> Self {
        let counter = |(_, action)| metrics.guard_detections.with_label_values(&[guard, action]);
        GuardCounters { counters: GuardAction::ALL.map(counter) }
    }

    pub fn count(&self, action: GuardAction) {
        self.counters[action as usize].inc();
    }
}

/// The same as one worker counts.
#[derive(Debug)]
pub struct GuardMeter {
    counters: [LocalIntCounter; GuardAction::ALL.len()],
}

impl GuardMeter {
    #[must_use]
    pub fn new(shared: &GuardCounters) -> Self {
        GuardMeter { counters: shared.counters.each_ref().map(IntCounter::local) }
    }

    pub fn count(&self, action: GuardAction) {
        self.counters[action as usize].inc();
    }

    pub fn flush(&self) {
        self.counters.iter().for_each(LocalIntCounter::flush);
    }
}

impl Drop for GuardMeter {
    fn drop(&mut self) {
        self.flush();
    }
}
