//! For how long a server is left out: twice as long each time, without a long good time in between.

use crate::clock::whole_millis;
use crate::config::settings::Ejection;

#[derive(Debug, Default)]
pub(super) struct Backoff {
    /// How often it has been left out, or a trial has failed.
    times: u32,
    /// Until when it was last left out, in milliseconds.
    until: u64,
}

impl Backoff {
    /// To be called before a server is left out for clients for whom it was well.
    pub(super) fn forget_if_well(&mut self, now: u64, settings: &Ejection) {
        if now > self.until.saturating_add(whole_millis(settings.max_time)) {
            self.times = 0;
        }
    }

    /// It is left out from `now` on. Returns for how long, in milliseconds.
    pub(super) fn begin(&mut self, now: u64, settings: &Ejection) -> u64 {
        self.times = self.times.saturating_add(1);
        let time = self.time(settings);
        self.until = now + time;
        time
    }

    /// For how long it was left out last.
    pub(super) fn time(&self, settings: &Ejection) -> u64 {
        time(settings, self.times)
    }

    /// For how long it would be next.
    pub(super) fn next_time(&self, settings: &Ejection) -> u64 {
        time(settings, self.times.saturating_add(1))
    }
}

/// How long a server is left out that is left out for the n-th time.
fn time(settings: &Ejection, times: u32) -> u64 {
    let doubled = settings.time.saturating_mul(1 << times.saturating_sub(1).min(16));
    whole_millis(doubled.min(settings.max_time))
}
