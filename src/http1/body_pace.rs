//! How fast a client sends its body, for `min_body_rate`.
//!
//! Only the time counts in which the body was waited for: while the upstream has no room for more, the
//! client cannot send any. A client that keeps the rate may take as long as it likes.

use std::time::Duration;

use tokio::time::Instant;

use crate::config::settings::MinBodyRate;

/// How long one body was waited for.
#[derive(Debug, Default)]
pub(crate) struct BodyPace {
    waited: Duration,
    since: Option<Instant>,
}

impl BodyPace {
    /// Says that more has to be waited for, and returns the instant at which it is late. `received` is
    /// how much has come so far.
    pub(crate) fn wait(&mut self, rate: MinBodyRate, received: u64, now: Instant) -> Instant {
        let since = *self.since.get_or_insert(now);
        let earned = Duration::from_millis(
            received.saturating_mul(1000).checked_div(rate.bytes_per_second).unwrap_or(u64::MAX),
        );
        let allowed = rate.grace.saturating_add(earned).saturating_sub(self.waited);
        // Far enough for anybody, and never past what an instant can be.
        since + allowed.min(Duration::from_secs(86_400))
    }

    /// Since when nothing has come that was waited for.
    pub(crate) fn waits_since(&self, now: Instant) -> Instant {
        self.since.unwrap_or(now)
    }

    /// Says that something has come.
    pub(crate) fn note_data(&mut self, now: Instant) {
        if let Some(since) = self.since.take() {
            self.waited += now.saturating_duration_since(since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: MinBodyRate = MinBodyRate { bytes_per_second: 100, grace: Duration::from_secs(10) };

    #[test]
    fn each_byte_buys_time_and_waiting_uses_it_up() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut pace = BodyPace::default();
        assert_eq!(pace.wait(RATE, 0, start), at(10));
        assert_eq!(pace.wait(RATE, 0, at(3)), at(10), "it is the same wait");
        pace.note_data(at(9));
        // Nine seconds are gone, and 200 bytes are worth two.
        assert_eq!(pace.wait(RATE, 200, at(20)), at(23));
        pace.note_data(at(22));
        // A client that keeps the rate has all the time that it needs.
        assert_eq!(pace.wait(RATE, 100_000, at(30)), at(30 + 999));
    }

    #[test]
    fn time_in_which_nobody_reads_is_not_the_clients() {
        let start = Instant::now();
        let mut pace = BodyPace::default();
        let _ = pace.wait(RATE, 0, start);
        pace.note_data(start);
        let late = start + Duration::from_secs(500);
        assert_eq!(pace.wait(RATE, 1, late), late + Duration::from_millis(10_010));
    }
}
