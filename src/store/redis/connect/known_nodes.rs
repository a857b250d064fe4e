//! The nodes of a cluster that this process has learned of, one memory for all workers.
//!
//! The configuration names some of them, which may all be gone one day while the cluster lives on
//! without them: every node that was ever part of it is asked as well. What leaves the cluster is forgotten
//! after a while, and a node that was taken into another cluster is not believed.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::config::settings::Origin;

/// How often the list is asked for while all is well.
pub(crate) const REFRESH: Duration = Duration::from_secs(10);
/// How long a node that the cluster does not list any more is remembered. Nodes that are down for
/// a while are listed, so this is for those that were removed.
const FORGET: Duration = Duration::from_secs(600);
/// More than a cluster of Redis can have.
const MOST: usize = 1_024;

#[derive(Debug, Default)]
pub(crate) struct KnownNodes(Mutex<NodeMemory>);

#[derive(Debug, Default)]
struct NodeMemory {
    nodes: Vec<(Origin, Instant)>,
    /// The names that the nodes of the last list have among themselves.
    ids: HashSet<String>,
    refreshed: Option<Instant>,
}

impl KnownNodes {
    /// Takes over the list of a node that is up to date.
    pub(crate) fn learn<'a>(&self, nodes: impl Iterator<Item = (&'a Origin, &'a str)>) {
        self.learn_at(nodes, Instant::now());
    }

    fn learn_at<'a>(&self, nodes: impl Iterator<Item = (&'a Origin, &'a str)>, now: Instant) {
        let mut memory = self.0.lock();
        memory.refreshed = Some(now);
        memory.ids.clear();
        for (origin, id) in nodes.take(MOST) {
            memory.ids.insert(id.to_owned());
            match memory.nodes.iter_mut().find(|(known, _)| known == origin) {
                Some((_, seen)) => *seen = now,
                None => memory.nodes.push((origin.clone(), now)),
            }
        }
        memory.nodes.retain(|(_, seen)| now.duration_since(*seen) < FORGET);
        memory.nodes.sort_by_key(|(_, seen)| std::cmp::Reverse(*seen));
        memory.nodes.truncate(MOST);
    }

    /// Whom to ask, one after another, each with whether it is a seed: first those that the
    /// configuration names, then all others in an order that differs each time.
    pub(crate) fn candidates(&self, seeds: &[Origin]) -> Vec<(Origin, bool)> {
        let order = RandomState::new();
        let mut others: Vec<Origin> = {
            let memory = self.0.lock();
            let others = memory.nodes.iter().map(|(origin, _)| origin);
            others.filter(|origin| !seeds.contains(origin)).cloned().collect()
        };
        others.sort_by_cached_key(|origin| order.hash_one(origin));
        let seeds = seeds.iter().map(|seed| (seed.clone(), true));
        seeds.chain(others.into_iter().map(|origin| (origin, false))).collect()
    }

    /// Whether a list is of the cluster that is known: it names at least one node that the last
    /// one had. An address may belong to another server by now.
    pub(crate) fn is_ours<'a>(&self, mut ids: impl Iterator<Item = &'a str>) -> bool {
        let memory = self.0.lock();
        memory.ids.is_empty() || ids.any(|id| memory.ids.contains(id))
    }

    /// Whether it is time to ask for the list again. If so, it is the caller's turn to.
    pub(crate) fn is_due(&self) -> bool {
        let mut memory = self.0.lock();
        let due = memory.refreshed.is_none_or(|at| at.elapsed() >= REFRESH);
        if due {
            memory.refreshed = Some(Instant::now());
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(port: u16) -> Origin {
        Origin { host: "10.0.0.1".to_owned(), port }
    }

    fn learn(known: &KnownNodes, ports: &[u16], now: Instant) {
        let nodes: Vec<_> = ports.iter().map(|port| (origin(*port), format!("id{port}"))).collect();
        known.learn_at(nodes.iter().map(|(origin, id)| (origin, id.as_str())), now);
    }

    /// Whom it would ask, in order of their ports.
    fn asked(known: &KnownNodes, seeds: &[u16]) -> Vec<(u16, bool)> {
        let seeds: Vec<_> = seeds.iter().map(|port| origin(*port)).collect();
        let mut all: Vec<_> =
            known.candidates(&seeds).into_iter().map(|(it, seed)| (it.port, seed)).collect();
        assert!(all.iter().take(seeds.len()).all(|(_, seed)| *seed), "seeds come first");
        all.sort_unstable();
        all
    }

    #[test]
    fn what_was_learned_is_asked_besides_the_seeds() {
        let known = KnownNodes::default();
        assert_eq!(asked(&known, &[1, 2]), [(1, true), (2, true)]);
        learn(&known, &[2, 3, 4], Instant::now());
        assert_eq!(asked(&known, &[1, 2]), [(1, true), (2, true), (3, false), (4, false)]);
    }

    #[test]
    fn a_node_that_left_is_forgotten_after_a_while_and_not_while_nobody_answers() {
        let known = KnownNodes::default();
        let start = Instant::now();
        learn(&known, &[1, 2], start);
        learn(&known, &[1, 3], start + FORGET / 2);
        assert_eq!(asked(&known, &[]), [(1, false), (2, false), (3, false)]);
        // Hours without any list: what is known stays.
        assert_eq!(asked(&known, &[]).len(), 3);
        learn(&known, &[1, 3], start + FORGET);
        assert_eq!(asked(&known, &[]), [(1, false), (3, false)]);
    }

    #[test]
    fn memory_is_bounded_and_keeps_the_latest() {
        let known = KnownNodes::default();
        let start = Instant::now();
        let most = u16::try_from(MOST).expect("ports");
        learn(&known, &(1..=most).collect::<Vec<_>>(), start);
        learn(&known, &[most + 1, 1], start + Duration::from_secs(1));
        let all = asked(&known, &[]);
        assert_eq!(all.len(), MOST);
        assert!(all.contains(&(1, false)) && all.contains(&(most + 1, false)));
    }

    #[test]
    fn a_list_without_a_known_node_is_of_another_cluster() {
        let known = KnownNodes::default();
        let is_ours = |ids: &[&str]| known.is_ours(ids.iter().copied());
        assert!(is_ours(&["a"]), "nothing is known yet");
        learn(&known, &[1, 2], Instant::now());
        assert!(is_ours(&["new", "id2"]));
        assert!(!is_ours(&["new", "other"]));
    }

    #[test]
    fn the_list_is_asked_for_now_and_then_and_by_one() {
        let known = KnownNodes::default();
        assert!(known.is_due());
        assert!(!known.is_due(), "somebody does");
        learn(&known, &[1], Instant::now());
        assert!(!known.is_due());
        let Some(past) = Instant::now().checked_sub(REFRESH) else { return };
        learn(&known, &[1], past);
        assert!(known.is_due());
    }
}
