//! What a server's clock shows, as far as its replies have shown: so that a call can say until when
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

/// One server's clock: what it showed at least at an instant here. Unknown before the first reply.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ServerClock(Option<(Micros, Instant)>);

impl ServerClock {
    /// Takes over the time that a reply tells. A clock that was set, in either direction, is followed
    /// at once.
    pub(crate) fn update(&mut self, time: Micros, sent: Instant, received: Instant) {
        let way = received.saturating_duration_since(sent).as_micros() as u64;
        let known = self.at(received).map_or(0, |it| it.0.min(time.0 + way));
        self.0 = Some((Micros(known.max(time.0)), received));
    }

    /// What the clock shows at an instant, at the least.
    pub(crate) fn at(&self, instant: Instant) -> Option<Micros> {
        let (time, seen) = self.0?;
        Some(Micros(match instant.checked_duration_since(seen) {
            Some(later) => time.0 + later.as_micros() as u64,
            None => time.0.saturating_sub((seen - instant).as_micros() as u64),
        }))
    }
}

/// The clocks of a cluster's nodes, each its own. They are kept when connections are made anew.
#[derive(Debug, Default)]
pub(crate) struct ServerClocks(Mutex<HashMap<Origin, ServerClock>>);

impl ServerClocks {
    pub(crate) fn update(&self, origin: &Origin, time: Micros, sent: Instant, received: Instant) {
        let mut clocks = self.0.lock();
        match clocks.get_mut(origin) {
            Some(clock) => clock.update(time, sent, received),
            None => {
                let mut clock = ServerClock::default();
                clock.update(time, sent, received);
                clocks.insert(origin.clone(), clock);
            }
        }
    }

    pub(crate) fn at(&self, origin: &Origin, instant: Instant) -> Option<Micros> {
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
    fn clock_after(ahead: u64, ways: &[(u64, u64)]) -> (ServerClock, Instant, u64) {
        let (start, mut clock, mut at) = (Instant::now(), ServerClock::default(), 0);
        for (there, back) in ways {
            let (sent, read, received) = (at, at + there, at + there + back);
            let time = |at| start + Duration::from_micros(at);
            clock.update(Micros(ahead + read), time(sent), time(received));
            at = received + 1_000;
        }
        (clock, start + Duration::from_micros(at), ahead + at)
    }

    #[test]
    fn an_unknown_clock_shows_nothing() {
        assert_eq!(ServerClock::default().at(Instant::now()), None);
    }

    #[test]
    fn it_is_read_late_by_no_more_than_the_fastest_reply_took_and_never_early() {
        for ahead in [0, 5, HOUR] {
            let (clock, at, shows) = clock_after(ahead, &[(100, 900), (300, 50), (20, 8_000)]);
            assert_eq!(clock.at(at), Some(Micros(shows - 50)));
            let before = at - Duration::from_micros(500);
            assert_eq!(clock.at(before), Some(Micros(shows - 550)));
        }
    }

    #[test]
    fn a_clock_that_was_set_is_followed_with_the_next_reply() {
        let (mut clock, at, shows) = clock_after(HOUR, &[(100, 50)]);
        let later = at + Duration::from_micros(200);
        clock.update(Micros(2 * HOUR), at, later);
        assert_eq!(clock.at(later), Some(Micros(2 * HOUR)), "an hour on");
        let (at, later) = (later, later + Duration::from_micros(200));
        clock.update(Micros(shows), at, later);
        assert_eq!(clock.at(later), Some(Micros(shows + 200)), "and back: within one round trip");
    }

    #[test]
    fn every_node_has_its_own_clock() {
        let node = |port| Origin { host: "node".to_owned(), port };
        let (clocks, now) = (ServerClocks::default(), Instant::now());
        clocks.update(&node(1), Micros(HOUR), now, now);
        clocks.update(&node(2), Micros(2 * HOUR), now, now);
        assert_eq!(clocks.at(&node(1), now), Some(Micros(HOUR)));
        assert_eq!(clocks.at(&node(2), now), Some(Micros(2 * HOUR)));
        assert_eq!(clocks.at(&node(3), now), None);
    }
}
