//! The masters of a cluster: which one owns which hash slot, and a connection to each.
//!
//! Redirects are followed here and not by the redis crate, since that one sends a command again
//! after a broken connection, too, and a charge must not be made twice.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::time::{Instant, sleep};

use super::cluster_view::{ClusterView, HashSlotRange};
use super::dialer::Dialer;
use super::failure::{Failure, Reason};
use super::hash_slot::SLOTS;
use super::script_call::{NodeRole, ScriptReply, call_script};
use super::session::time;
use crate::clock::Micros;
use crate::config::settings::Origin;
use crate::store::redis::wire::reply;
use crate::store::redis::wire::script::Form;

/// A slot that has moved, or is on its way, needs a redirect or two.
const REDIRECTS: usize = 8;
/// While some keys of a slot have moved and some have not, a call on several of them has to wait.
const TRY_AGAIN: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub(crate) struct Nodes {
    dialer: Arc<Dialer>,
    map: Mutex<Map>,
}

#[derive(Debug, Default)]
struct Map {
    /// The owner of each slot.
    owners: Vec<Option<Origin>>,
    connections: HashMap<Origin, MultiplexedConnection>,
}

impl Map {
    /// Takes over which node owns which slot.
    fn follow(&mut self, view: &ClusterView, dialer: &Dialer) {
        for range in &view.ranges {
            self.owners[range.slots()].fill(Some(range.owner().clone()));
            dialer.clocks.assign_unheard(range.slots(), range.owner());
        }
    }
}

impl Nodes {
    /// Finds all masters by asking nodes that are known, and connects to each.
    pub(crate) async fn discover(dialer: Arc<Dialer>, seeds: &[Origin]) -> Result<Self, Failure> {
        let view = ClusterView::ask(&dialer, seeds).await?;
        let mut map = Map { owners: vec![None; usize::from(SLOTS)], ..Map::default() };
        map.follow(&view, &dialer);
        let owners: HashSet<&Origin> = view.ranges.iter().map(HashSlotRange::owner).collect();
        let missing = owners.into_iter().filter(|owner| **owner != view.asked);
        let dial = async |owner: &Origin| Ok((owner.clone(), dialer.node(owner).await?));
        let dialled: Vec<Result<_, Failure>> = join_all(missing.map(dial)).await;
        for node in dialled {
            let (origin, connection) = node?;
            map.connections.insert(origin, connection);
        }
        map.connections.insert(view.asked, view.connection);
        Ok(Nodes { dialer, map: Mutex::new(map) })
    }

    /// Learns which masters there are by now, and connects to those that have joined or were promoted.
    /// One that cannot be reached is dialled again when it is asked for something.
    pub(crate) async fn refresh(&self) -> Result<(), Failure> {
        let Some(seeds) = self.dialer.seeds() else { return Ok(()) };
        let view = ClusterView::ask(&self.dialer, seeds).await?;
        self.map.lock().follow(&view, &self.dialer);
        join_all(view.ranges.iter().map(|range| self.connection(range.owner()))).await;
        Ok(())
    }

    /// A connection to each master.
    pub(crate) fn masters(&self) -> Vec<(Origin, MultiplexedConnection)> {
        let map = self.map.lock();
        let owns = |origin: &Origin| map.owners.iter().flatten().any(|owner| owner == origin);
        let masters = map.connections.iter().filter(|(origin, _)| owns(origin));
        masters.map(|(origin, connection)| (origin.clone(), connection.clone())).collect()
    }

    /// Hears from every master what its clock shows, asked all at once: so that it is known before
    /// any of them fails, also of one that nobody has asked for a bucket.
    pub(crate) async fn hear_clocks(&self) -> Result<(), Failure> {
        let hear = async |(origin, mut master)| {
            let sent = Instant::now();
            let now = time(&mut master).await?;
            self.dialer.clocks.update(&origin, now, sent, Instant::now());
            Ok(())
        };
        let heard: Vec<Result<(), Failure>> = join_all(self.masters().into_iter().map(hear)).await;
        heard.into_iter().collect()
    }

    /// As [`Self::run`] with a script that is given the instant, by the clock of the node that runs it, after
    /// which it must not decide any more.
    pub(crate) async fn decide(
        &self,
        slot: u16,
        deadline: Instant,
        command: impl Fn(Form, Option<Micros>) -> Cmd,
    ) -> Result<Value, Failure> {
        loop {
            let value = self.run(slot, deadline, &command).await?;
            let Value::BulkString(bytes) = &value else { return Ok(value) };
            match reply::instant(bytes) {
                // If there is time left, its clock was set: now that is known.
                Some((_, true)) if Instant::now() < deadline => {}
                Some((_, true)) => return Err(Failure::expired()),
                _ => return Ok(value),
            }
        }
    }

    /// As [`super::session::Session::run`]. The script is told until when its node may decide, by
    /// that node's clock.
    pub(crate) async fn run(
        &self,
        slot: u16,
        deadline: Instant,
        command: impl Fn(Form, Option<Micros>) -> Cmd,
    ) -> Result<Value, Failure> {
        let mut importing: Option<Origin> = None;
        let mut redirects = 0;
        // What is tried once more shortly before the deadline may be run after it.
        let started = Instant::now();
        let patience = started + deadline.saturating_duration_since(started) / 2;
        while redirects < REDIRECTS {
            let (origin, role) = match &importing {
                None => (self.owner_of(slot)?, NodeRole::Owner),
                Some(origin) => (origin.clone(), NodeRole::Importing),
            };
            let mut connection = self.connection(&origin).await?;
            let clocks = &self.dialer.clocks;
            let command = |form| command(form, clocks.at(&origin, deadline));
            let error = match call_script(&mut connection, role, deadline, command).await {
                Ok(ScriptReply { value, sent }) => {
                    if let Value::BulkString(bytes) = &value
                        && let Some((now, _)) = reply::instant(bytes)
                    {
                        clocks.update_in_slot(slot, &origin, now, sent, Instant::now());
                    }
                    return Ok(value);
                }
                Err(error) => error,
            };
            redirects += 1;
            match error.kind() {
                ErrorKind::Server(ServerErrorKind::Moved) => {
                    let owner = redirect(&error, &self.host(slot))?;
                    self.map.lock().owners[usize::from(slot)] = Some(owner);
                    importing = None;
                }
                ErrorKind::Server(ServerErrorKind::Ask) => {
                    importing = Some(redirect(&error, &self.host(slot))?)
                }
                ErrorKind::Server(ServerErrorKind::TryAgain) if Instant::now() < patience => {
                    redirects = 0;
                    sleep(TRY_AGAIN).await;
                }
                // It passes with the keys that are on their way: no more than a late answer.
                ErrorKind::Server(ServerErrorKind::TryAgain) => {
                    return Err(Failure::new(Reason::Expired, format!("slot {slot} is moving")));
                }
                _ => return Err(error.into()),
            }
        }
        Err(Failure::new(Reason::Cluster, format!("slot {slot} is passed from node to node")))
    }

    pub(crate) async fn owner(&self, slot: u16) -> Result<MultiplexedConnection, Failure> {
        self.connection(&self.owner_of(slot)?).await
    }

    fn owner_of(&self, slot: u16) -> Result<Origin, Failure> {
        let owner = self.map.lock().owners[usize::from(slot)].clone();
        owner.ok_or_else(|| Failure::new(Reason::Cluster, format!("slot {slot} has no owner")))
    }

    /// The host of the slot's owner.
    fn host(&self, slot: u16) -> String {
        let map = self.map.lock();
        map.owners[usize::from(slot)].as_ref().map_or_else(String::new, |it| it.host.clone())
    }

    async fn connection(&self, origin: &Origin) -> Result<MultiplexedConnection, Failure> {
        if let Some(connection) = self.map.lock().connections.get(origin) {
            return Ok(connection.clone());
        }
        // Whatever it is, nothing has been sent.
        let dialled = self.dialer.node(origin).await;
        let unsent = |failure: Failure| Failure::new(Reason::Cluster, failure.to_string());
        let connection = dialled.map_err(unsent)?;
        self.map.lock().connections.insert(origin.clone(), connection.clone());
        Ok(connection)
    }
}

/// A node that does not know the other's address leaves the host out: it is its own.
fn redirect(error: &RedisError, asked: &str) -> Result<Origin, Failure> {
    let unreadable = || Failure::new(Reason::Cluster, format!("a redirect to nowhere: {error}"));
    let (address, _) = error.redirect_node().ok_or_else(unreadable)?;
    let (host, port) = address.rsplit_once(':').ok_or_else(unreadable)?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host = if host.is_empty() { asked } else { host }.to_owned();
    Ok(Origin { host, port: port.parse().map_err(|_| unreadable())? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_say_where_to() {
        let to = |line: &str| {
            let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes());
            let error = value.expect("a reply").extract_error().expect_err("an error");
            redirect(&error, "asked")
                .map(|Origin { host, port }| (host, port))
                .map_err(|it| it.reason)
        };
        assert_eq!(to("MOVED 3999 127.0.0.1:6381"), Ok(("127.0.0.1".to_owned(), 6381)));
        assert_eq!(to("ASK 3999 redis-2.example:6381"), Ok(("redis-2.example".to_owned(), 6381)));
        for six in ["::1:6381", "[::1]:6381"] {
            assert_eq!(to(&format!("MOVED 1 {six}")), Ok(("::1".to_owned(), 6381)));
        }
        assert_eq!(to("MOVED 3999 :6381"), Ok(("asked".to_owned(), 6381)));
        for nowhere in ["MOVED", "MOVED 3999", "MOVED 3999 here", "MOVED 3999 here:99999"] {
            assert_eq!(to(nowhere), Err(Reason::Cluster), "{nowhere}");
        }
    }
}
