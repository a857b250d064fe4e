//! What a server's clock shows, as far as its replies have shown: so that a call can say until when
//! it is worth running, and so that the buckets of a cluster can be judged without it, each by the
//! clock of its own master.
//!
//! A script reads the clock of its server some time between the sending of its call and the
//! arrival of its reply. So each reply bounds from both sides how far that clock is ahead of this
//! process's. The lower bound is used: a call is then never run after its deadline, and a healthy
//! one loses no more than the time that the fastest reply was on its way.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::hash_slot::SLOTS;
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
        let known = self.at(received).map_or(0, |it| it.0.min(time.0.saturating_add(way)));
        self.0 = Some((Micros(known.max(time.0)), received));
    }

    /// What the clock shows at an instant, at the least.
    pub(crate) fn at(&self, instant: Instant) -> Option<Micros> {
        let (time, seen) = self.0?;
        Some(Micros(match instant.checked_duration_since(seen) {
            Some(later) => time.0.saturating_add(later.as_micros() as u64),
            None => time.0.saturating_sub((seen - instant).as_micros() as u64),
        }))
    }

    /// The instant at which the clock shows a time, if nobody sets it.
    pub(crate) fn instant_of(&self, time: Micros) -> Option<Instant> {
        let (shown, seen) = self.0?;
        match time.0.checked_sub(shown.0) {
            Some(later) => seen.checked_add(Duration::from_micros(later)),
            None => seen.checked_sub(Duration::from_micros(shown.0 - time.0)),
        }
    }

    /// Whether a reply has come since an instant, or none is missed yet.
    fn is_heard_since(&self, instant: Option<Instant>) -> bool {
        self.0.is_none_or(|(_, seen)| instant.is_none_or(|instant| seen >= instant))
    }
}

/// A node that was not heard for so long has left the cluster: masters are heard at every heartbeat.
const NODE_FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

/// The clocks of a cluster's nodes, each its own. They are kept when connections are made anew.
#[derive(Debug, Default)]
pub(crate) struct ServerClocks(Mutex<NodeClocks>);

#[derive(Debug, Default)]
struct NodeClocks {
    clocks: Vec<ServerClock>,
    /// Where in `clocks` each node's is.
    positions: HashMap<Origin, usize>,
    /// For each hash slot the same of the node by whose clock its buckets are judged. Empty until there
    /// is one.
    slot_clocks: Vec<Option<usize>>,
}

impl NodeClocks {
    fn position(&mut self, origin: &Origin) -> usize {
        if let Some(position) = self.positions.get(origin) {
            return *position;
        }
        self.clocks.push(ServerClock::default());
        self.positions.insert(origin.clone(), self.clocks.len() - 1);
        self.clocks.len() - 1
    }

    fn slot_clocks(&mut self) -> &mut [Option<usize>] {
        self.slot_clocks.resize(usize::from(SLOTS), None);
        &mut self.slot_clocks
    }
}

impl ServerClocks {
    pub(crate) fn update(&self, origin: &Origin, time: Micros, sent: Instant, received: Instant) {
        let mut nodes = self.0.lock();
        let position = nodes.position(origin);
        nodes.clocks[position].update(time, sent, received);
    }

    /// The same where the node has told of buckets in a slot: their instants are of its clock.
    pub(crate) fn update_in_slot(
        &self,
        slot: u16,
        origin: &Origin,
        time: Micros,
        sent: Instant,
        received: Instant,
    ) {
        let mut nodes = self.0.lock();
        let position = nodes.position(origin);
        nodes.clocks[position].update(time, sent, received);
        nodes.slot_clocks()[usize::from(slot)] = Some(position);
    }

    pub(crate) fn at(&self, origin: &Origin, instant: Instant) -> Option<Micros> {
        let nodes = self.0.lock();
        nodes.clocks[*nodes.positions.get(origin)?].at(instant)
    }

    /// A node owns these slots. Buckets in them that were heard of from another one before go on being
    /// judged by that one's clock until this one tells of them.
    pub(crate) fn assign_unheard(&self, slots: RangeInclusive<usize>, origin: &Origin) {
        let mut nodes = self.0.lock();
        let position = nodes.position(origin);
        nodes.slot_clocks();
        let NodeClocks { clocks, slot_clocks, .. } = &mut *nodes;
        for clock in &mut slot_clocks[slots] {
            if clock.is_none_or(|at| clocks[at].0.is_none()) {
                *clock = Some(position);
            }
        }
    }

    /// What the clock shows at an instant, at the least, by which the buckets in a slot are judged.
    pub(crate) fn in_slot(&self, slot: u16, instant: Instant) -> Option<Micros> {
        let nodes = self.0.lock();
        let position = nodes.slot_clocks.get(usize::from(slot)).copied().flatten()?;
        nodes.clocks[position].at(instant)
    }

    /// Forgets nodes that have left: those that were not heard for [`NODE_FORGOTTEN_AFTER`], though
    /// others were.
    pub(crate) fn forget_silent(&self, now: Instant) {
        let mut nodes = self.0.lock();
        let is_heard =
            |clock: &ServerClock| clock.is_heard_since(now.checked_sub(NODE_FORGOTTEN_AFTER));
        if nodes.clocks.iter().all(is_heard) {
            return;
        }
        let mut kept = Vec::with_capacity(nodes.clocks.len());
        let moved: Vec<Option<usize>> = nodes
            .clocks
            .iter()
            .map(|clock| {
                is_heard(clock).then(|| {
                    kept.push(*clock);
                    kept.len() - 1
                })
            })
            .collect();
        nodes.clocks = kept;
        nodes.positions.retain(|_, position| match moved[*position] {
            Some(to) => {
                *position = to;
                true
            }
            None => false,
        });
        for position in &mut nodes.slot_clocks {
            *position = position.and_then(|from| moved[from]);
        }
    }

    /// By how much the clocks differ at the most, from each other and from one that shows `own` at
    /// this instant.
    pub(crate) fn spread(&self, own: Micros, instant: Instant) -> Duration {
        let nodes = self.0.lock();
        let times = nodes.clocks.iter().filter_map(|clock| clock.at(instant));
        let (first, last) =
            times.fold((own, own), |(first, last), it| (first.min(it), last.max(it)));
        last.since(first)
    }
}

#[cfg(test)]
mod tests {
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
    fn a_server_that_says_nonsense_stops_nobody() {
        let (now, mut clock) = (Instant::now(), ServerClock::default());
        let later = now + Duration::from_secs(1);
        clock.update(Micros(u64::MAX), now, later);
        clock.update(Micros(u64::MAX), later, later);
        assert_eq!(clock.at(later + Duration::from_secs(1)), Some(Micros(u64::MAX)));
    }

    #[test]
    fn it_is_read_late_by_no_more_than_the_fastest_reply_took_and_never_early() {
        for ahead in [0, 5, HOUR] {
            let (clock, at, shows) = clock_after(ahead, &[(100, 900), (300, 50), (20, 8_000)]);
            assert_eq!(clock.at(at), Some(Micros(shows - 50)));
            let before = at - Duration::from_micros(500);
            assert_eq!(clock.at(before), Some(Micros(shows - 550)));
            assert_eq!(clock.instant_of(Micros(shows - 50)), Some(at));
            assert_eq!(clock.instant_of(Micros(shows - 550)), Some(before));
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

    #[test]
    fn a_node_that_was_never_heard_gives_its_slots_to_the_next() {
        let node = |port| Origin { host: "node".to_owned(), port };
        let (clocks, now) = (ServerClocks::default(), Instant::now());
        clocks.assign_unheard(0..=9, &node(1));
        clocks.assign_unheard(5..=9, &node(2));
        clocks.update(&node(1), Micros(HOUR), now, now);
        clocks.update(&node(2), Micros(2 * HOUR), now, now);
        assert_eq!(clocks.in_slot(0, now), Some(Micros(HOUR)));
        assert_eq!(clocks.in_slot(5, now), Some(Micros(2 * HOUR)));
        clocks.assign_unheard(0..=9, &node(2));
        assert_eq!(clocks.in_slot(0, now), Some(Micros(HOUR)), "it has been heard");
    }

    #[test]
    fn buckets_are_judged_by_the_node_that_told_of_them() {
        let node = |port| Origin { host: "node".to_owned(), port };
        let (clocks, now) = (ServerClocks::default(), Instant::now());
        let later = now + Duration::from_micros(7);
        assert_eq!(clocks.in_slot(5, now), None, "no slot is known");
        clocks.update(&node(1), Micros(HOUR), now, now);
        clocks.update(&node(2), Micros(3 * HOUR), now, now);
        clocks.assign_unheard(0..=9, &node(1));
        assert_eq!(clocks.in_slot(5, later), Some(Micros(HOUR + 7)), "its owner's");
        assert_eq!(clocks.in_slot(10, now), None);
        clocks.update_in_slot(5, &node(2), Micros(3 * HOUR), now, now);
        assert_eq!(clocks.in_slot(5, later), Some(Micros(3 * HOUR + 7)), "it has moved");
        assert_eq!(clocks.in_slot(6, now), Some(Micros(HOUR)));
        clocks.assign_unheard(0..=9, &node(3));
        assert_eq!(
            clocks.in_slot(5, now),
            Some(Micros(3 * HOUR)),
            "the new owner told nothing yet"
        );
    }

    #[test]
    fn nodes_that_have_left_are_forgotten_with_their_clocks() {
        let node = |port| Origin { host: "node".to_owned(), port };
        let (clocks, start) = (ServerClocks::default(), Instant::now());
        for (number, hours) in [(1, 1), (2, 9), (3, 3)] {
            clocks.update_in_slot(number, &node(number), Micros(hours * HOUR), start, start);
        }
        let now = start + NODE_FORGOTTEN_AFTER + Duration::from_secs(1);
        let since = NODE_FORGOTTEN_AFTER.as_micros() as u64 + 1_000_000;
        for (number, hours) in [(1, 1), (3, 3)] {
            clocks.update(&node(number), Micros(hours * HOUR + since), now, now);
        }
        clocks.forget_silent(now);
        assert_eq!(clocks.at(&node(2), now), None);
        assert_eq!(clocks.in_slot(2, now), None);
        assert_eq!(clocks.in_slot(1, now), Some(Micros(HOUR + since)));
        assert_eq!(clocks.in_slot(3, now), Some(Micros(3 * HOUR + since)));
        let spread = clocks.spread(Micros(HOUR + since), now);
        assert_eq!(spread, Duration::from_micros(2 * HOUR));
        clocks.update(&node(4), Micros(HOUR), now, now);
        assert_eq!(
            clocks.at(&node(3), now),
            Some(Micros(3 * HOUR + since)),
            "it is not overwritten"
        );
    }

    #[test]
    fn clocks_differ_by_the_first_and_the_last() {
        let node = |port| Origin { host: "node".to_owned(), port };
        let (clocks, now) = (ServerClocks::default(), Instant::now());
        assert_eq!(clocks.spread(Micros(HOUR), now), Duration::ZERO);
        clocks.update(&node(1), Micros(3 * HOUR), now, now);
        assert_eq!(clocks.spread(Micros(HOUR), now), Duration::from_micros(2 * HOUR));
        clocks.update(&node(2), Micros(0), now, now);
        assert_eq!(clocks.spread(Micros(HOUR), now), Duration::from_micros(3 * HOUR));
    }
}
