//! What a server's clock shows, as far as its replies have told: so that a call can say until when
//! it is worth running.
//!
//! A script reads the clock of its server some time between the sending of its call and the
//! arrival of its reply. So each reply bounds from both sides how far that clock is ahead of this
//! process's. The lower bound is used: a call is then never run after its deadline, and a healthy
//! one loses no more than the time that the fastest reply was on its way.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::clock::Micros;
use crate::config::settings::Origin;

/// One server's clock: what it showed at least at an instant here. Unknown until it was heard of.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ServerClock(Option<(Micros, Instant)>);

impl ServerClock {
    /// Takes in the time that a reply tells. A clock that was set, in either direction, is followed
    /// at once.
    pub(super) fn hear(&mut self, time: Micros, sent: Instant, received: Instant) {
        let way = received.saturating_duration_since(sent).as_micros() as u64;
        let known = self.at(received).map_or(0, |it| it.0.min(time.0 + way));
        self.0 = Some((Micros(known.max(time.0)), received));
    }

    /// What the clock shows at an instant, at the least.
    pub(super) fn at(&self, instant: Instant) -> Option<Micros> {
        let (time, seen) = self.0?;
        let later = instant.saturating_duration_since(seen).as_micros() as u64;
        let earlier = seen.saturating_duration_since(instant).as_micros() as u64;
        Some(Micros((time.0 + later).saturating_sub(earlier)))
    }
}

/// The clocks of a cluster's nodes, each its own. They are kept when connections are made anew.
#[derive(Debug, Default)]
pub(super) struct ServerClocks(Mutex<HashMap<Origin, ServerClock>>);

impl ServerClocks {
    pub(super) fn hear(&self, origin: &Origin, time: Micros, sent: Instant, received: Instant) {
        let mut clocks = self.0.lock();
        match clocks.get_mut(origin) {
            Some(clock) => clock.hear(time, sent, received),
            None => {
                let mut clock = ServerClock::default();
                clock.hear(time, sent, received);
                clocks.insert(origin.clone(), clock);
            }
        }
    }

    pub(super) fn at(&self, origin: &Origin, instant: Instant) -> Option<Micros> {
        self.0.lock().get(origin)?.at(instant)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const HOUR: u64 = 3_600_000_000;

    /// Replies of a server whose clock is `ahead`, each with how long the call and the reply were
    /// on their way, in µs; what is then believed of the instant after.
    fn heard(ahead: u64, ways: &[(u64, u64)]) -> (ServerClock, Instant, u64) {
        let (start, mut clock, mut at) = (Instant::now(), ServerClock::default(), 0);
        for (there, back) in ways {
            let (sent, read, received) = (at, at + there, at + there + back);
            let time = |at| start + Duration::from_micros(at);
            clock.hear(Micros(ahead + read), time(sent), time(received));
            at = received + 1_000;
        }
        (clock, start + Duration::from_micros(at), ahead + at)
    }

    #[test]
    fn an_unknown_clock_shows_nothing() {
        assert_eq!(ServerClock::default().at(Instant::now()), None);
    }

    #[test]
    fn it_is_told_late_by_no_more_than_the_fastest_reply_took_and_never_early() {
        for ahead in [0, 5, HOUR] {
            let (clock, at, shows) = heard(ahead, &[(100, 900), (300, 50), (20, 8_000)]);
            assert_eq!(clock.at(at), Some(Micros(shows - 50)));
            let before = at - Duration::from_micros(500);
            assert_eq!(clock.at(before), Some(Micros(shows - 550)));
        }
    }

    #[test]
    fn a_clock_that_was_set_is_followed_with_the_next_reply() {
        let (mut clock, at, shows) = heard(HOUR, &[(100, 50)]);
        let later = at + Duration::from_micros(200);
        clock.hear(Micros(2 * HOUR), at, later);
        assert_eq!(clock.at(later), Some(Micros(2 * HOUR)), "an hour on");
        let (at, later) = (later, later + Duration::from_micros(200));
        clock.hear(Micros(shows), at, later);
        assert_eq!(clock.at(later), Some(Micros(shows + 200)), "and back: within one round trip");
    }

    #[test]
    fn every_node_has_its_own_clock() {
        let node = |port| Origin { host: "node".to_owned(), port };
        let (clocks, now) = (ServerClocks::default(), Instant::now());
        clocks.hear(&node(1), Micros(HOUR), now, now);
        clocks.hear(&node(2), Micros(2 * HOUR), now, now);
        assert_eq!(clocks.at(&node(1), now), Some(Micros(HOUR)));
        assert_eq!(clocks.at(&node(2), now), Some(Micros(2 * HOUR)));
        assert_eq!(clocks.at(&node(3), now), None);
    }
}
