//! What guards have noticed, and whom they have refused.

use prometheus::IntCounter;
use prometheus::local::LocalIntCounter;

use crate::limit::Mode;
use crate::limit::guard::GuardStage;
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
    /// The labels, in the order of the actions. What is only watched has its own: nobody was warned,
    /// blocked or refused.
    const ENFORCED: [&str; 3] = ["warned", "blocked", "refused"];
    const SHADOW: [&str; 3] = ["shadow_warned", "shadow_blocked", "shadow_refused"];

    /// A guard has put a caller on this stage.
    pub fn detected(stage: GuardStage) -> Self {
        match stage {
            GuardStage::Blocked => GuardAction::Blocked,
            GuardStage::Clean | GuardStage::Warned => GuardAction::Warned,
        }
    }
}

/// The counters of one guard.
#[derive(Debug, Clone)]
pub struct GuardCounters {
    counters: [IntCounter; GuardAction::ENFORCED.len()],
}

impl GuardCounters {
    #[must_use]
    pub fn new(guard: &str, mode: Mode, metrics: &Metrics) -> Self {
        let labels = match mode {
            Mode::Enforce => GuardAction::ENFORCED,
            Mode::Shadow => GuardAction::SHADOW,
        };
        let counter = |action| metrics.guard_detections.with_label_values(&[guard, action]);
        GuardCounters { counters: labels.map(counter) }
    }

    pub fn count(&self, action: GuardAction) {
        self.counters[action as usize].inc();
    }
}

/// The same as one worker counts.
#[derive(Debug)]
pub struct GuardMeter {
    counters: [LocalIntCounter; GuardAction::ENFORCED.len()],
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
