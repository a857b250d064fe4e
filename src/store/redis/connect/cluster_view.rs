//! What the nodes of a cluster say of it: which node owns which hash slot.
//!
//! Each has a view of its own, and one that was cut off or is about to be replaced has an old one.
//! So a few are asked at a time, and the view with the highest epoch holds: every takeover raises
//! it. A node that does not answer delays little: soon the next one is asked as well.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::time::{Instant, sleep_until};

use super::dialer::{Dialer, DisplayOrigin};
use super::failure::{Failure, Reason};
use super::hash_slot::SLOTS;
use super::session::question;
use crate::config::settings::Origin;

/// How many are asked at once from the start.
const AT_ONCE: usize = 3;
/// How long they are waited for before another one is asked as well.
const STAGGER: Duration = Duration::from_millis(100);
/// How many may owe an answer at a time.
const ASKED: usize = 12;
/// How long the others get once one has answered.
const GRACE: Duration = Duration::from_millis(20);

/// The cluster as one of its nodes sees it.
#[derive(Debug)]
pub(crate) struct ClusterView {
    /// The node that was asked, and the connection to it.
    pub(crate) asked: Origin,
    pub(crate) connection: MultiplexedConnection,
    pub(crate) ranges: Vec<HashSlotRange>,
    serves: bool,
    epoch: u64,
}

/// Slots that have the same nodes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HashSlotRange {
    first: u16,
    last: u16,
    /// The master and then its replicas: never empty.
    nodes: Vec<Node>,
}

#[derive(Debug, PartialEq, Eq)]
struct Node {
    origin: Origin,
    /// What nodes call each other; empty in versions that do not tell.
    id: String,
}

impl ClusterView {
    /// The most recent view that can be had of nodes that are known.
    pub(crate) async fn ask(dialer: &Dialer, seeds: &[Origin]) -> Result<ClusterView, Failure> {
        let mut waiting: VecDeque<_> = dialer.known.candidates(seeds).into();
        let mut asked = FuturesUnordered::new();
        let mut best: Option<ClusterView> = None;
        let mut failures = Vec::new();
        let mut next = Instant::now();
        loop {
            let now = Instant::now();
            while best.is_none()
                && asked.len() < ASKED
                && (asked.len() < AT_ONCE || now >= next)
                && let Some((origin, is_seed)) = waiting.pop_front()
            {
                asked.push(ClusterView::of(dialer, origin, is_seed));
                next = now + STAGGER;
            }
            let more = !waiting.is_empty() && asked.len() < ASKED;
            let answer = tokio::select! {
                biased;
                answer = asked.next() => match answer {
                    Some(answer) => answer,
                    None => break,
                },
                () = sleep_until(next), if best.is_some() => break,
                () = sleep_until(next), if more => continue,
            };
            match answer {
                Ok(view) => {
                    if best.is_none() {
                        next = Instant::now() + GRACE;
                    }
                    if best.as_ref().is_none_or(|best| view.rank() > best.rank()) {
                        best = Some(view);
                    }
                }
                Err((origin, failure)) => {
                    failures.push(format!("{}: {failure}", DisplayOrigin(&origin)))
                }
            }
        }
        let Some(view) = best else {
            return Err(Failure::new(Reason::Connection, failures.join("; ")));
        };
        if !view.is_whole() {
            return Err(Failure::new(Reason::Cluster, "not all slots have an owner"));
        }
        let nodes = view.ranges.iter().flat_map(|range| &range.nodes);
        dialer.known.learn(nodes.map(|node| (&node.origin, node.id.as_str())));
        Ok(view)
    }

    async fn of(
        dialer: &Dialer,
        asked: Origin,
        is_seed: bool,
    ) -> Result<ClusterView, (Origin, Failure)> {
        let view = async {
            let mut connection = dialer.node(&asked).await?;
            let slots = question(&mut connection, redis::cmd("CLUSTER").arg("SLOTS")).await?;
            let Value::Array(ranges) = slots else {
                return Err(Failure::new(Reason::Reply, "CLUSTER SLOTS gave no list"));
            };
            let ranges: Option<Vec<_>> =
                ranges.iter().map(|it| HashSlotRange::read(it, &asked)).collect();
            let ranges = ranges
                .ok_or_else(|| Failure::new(Reason::Reply, "CLUSTER SLOTS cannot be read"))?;
            let ids = ranges.iter().flat_map(|range| &range.nodes).map(|node| node.id.as_str());
            if !is_seed && !dialer.known.is_ours(ids) {
                return Err(Failure::new(Reason::Cluster, "it is of another cluster now"));
            }
            let info = question(&mut connection, redis::cmd("CLUSTER").arg("INFO")).await;
            let (serves, epoch) = match info {
                Ok(Value::BulkString(text)) => state(&String::from_utf8_lossy(&text)),
                Ok(Value::VerbatimString { text, .. }) => state(&text),
                Err(failure) if failure.is_silence() => return Err(failure),
                // Without the right to ask, the first view is taken.
                _ => (true, 0),
            };
            Ok(ClusterView { asked: asked.clone(), connection, ranges, serves, epoch })
        };
        view.await.map_err(|failure| (asked.clone(), failure))
    }

    /// Which of two to believe.
    fn rank(&self) -> (bool, bool, u64) {
        (self.is_whole(), self.serves, self.epoch)
    }

    /// Whether every slot has an owner.
    fn is_whole(&self) -> bool {
        let count = |range: &HashSlotRange| (range.first..=range.last).len();
        self.ranges.iter().map(count).sum::<usize>() == usize::from(SLOTS)
    }
}

impl HashSlotRange {
    /// `[first, last, [host, port, id, …], …]`: the first node of a range is its master. A node
    /// that does not know its own address leaves the host out: it is the one that was asked.
    fn read(range: &Value, asked: &Origin) -> Option<HashSlotRange> {
        let Value::Array(range) = range else { return None };
        let [Value::Int(first), Value::Int(last), nodes @ ..] = range.as_slice() else {
            return None;
        };
        let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
        let nodes: Vec<Node> =
            nodes.iter().map(|node| Node::read(node, asked)).collect::<Option<_>>()?;
        (first <= last && last < SLOTS && !nodes.is_empty()).then_some(HashSlotRange {
            first,
            last,
            nodes,
        })
    }

    pub(crate) fn slots(&self) -> std::ops::RangeInclusive<usize> {
        usize::from(self.first)..=usize::from(self.last)
    }

    pub(crate) fn owner(&self) -> &Origin {
        &self.nodes[0].origin
    }
}

impl Node {
    fn read(node: &Value, asked: &Origin) -> Option<Node> {
        let Value::Array(node) = node else { return None };
        let [host, Value::Int(port), more @ ..] = node.as_slice() else { return None };
        let host = text(host).unwrap_or_else(|| asked.host.clone());
        let id = more.first().and_then(text).unwrap_or_default();
        Some(Node { origin: Origin { host, port: u16::try_from(*port).ok()? }, id })
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(text) => String::from_utf8(text.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
    .filter(|text| !text.is_empty())
}

/// Whether the node would serve, and the highest epoch it has heard of.
fn state(info: &str) -> (bool, u64) {
    let field = |name: &str| {
        info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'))
    };
    let epoch = field("cluster_current_epoch").and_then(|text| text.parse().ok());
    (field("cluster_state") != Some("fail"), epoch.unwrap_or(0))
}

#[cfg(test)]
mod tests;
