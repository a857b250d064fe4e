//! What gateways that share a Redis say to each other by its sets of nodes: that they live, and what they
//! do about an outage.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::census::{self, Retention};
use super::joint_recovery::{RECOVERY_SET, reports};
use super::silence::watch_silence;
use super::supervisor::{Supervisor, within};
use crate::store::redis::RedisShared;
use crate::store::redis::connect::failure::Failure;
use crate::store::redis::connect::nodes::Nodes;
use crate::store::redis::connect::session::Session;

/// The set of the nodes that are alive.
const LIVE_NODES: &str = "nodes";

impl Supervisor {
    pub(crate) async fn beat(&mut self) -> Result<(), Failure> {
        self.last_heartbeat = Instant::now();
        let Some(session) = &self.session else { return Err(Failure::timeout()) };
        if let Session::Cluster(nodes) = session {
            watch_silence(&self.shared, session, within(nodes.hear_clocks())).await?;
            self.shared.follow_clocks();
            self.refresh_cluster(nodes);
        }
        let names = self.report_alive(census::LIFETIME).await?;
        let count = names.len() as u64;
        // After a failure the other gateways get time for a heartbeat before they count as gone, and
        // all of it from when Redis is in use again: until then this one keeps to its share, though it
        // may be the first to find a new master.
        let is_in_use = !self.shared.breaker.is_open();
        let missing_are_gone = is_in_use && self.counting_since.elapsed() > census::LIFETIME;
        let nodes = if missing_are_gone { count } else { count.max(self.shared.nodes()) };
        self.shared.set_nodes(nodes);
        // One that is missing once may only have been forgotten, by FLUSHALL or a clock that was set.
        let earlier = if missing_are_gone { &self.last_heard } else { &self.known_nodes };
        self.known_nodes = census::joined(&names, earlier);
        self.last_heard = names;
        Ok(())
    }

    /// Reads the clock by which the sets of nodes are kept: that of one server, also on a cluster, for all
    /// gateways. Decisions tell of it only where there are some.
    pub(super) async fn read_time(&mut self) -> Result<(), Failure> {
        let Some(session) = &self.session else { return Err(Failure::timeout()) };
        let sent = Instant::now();
        let name = self.shared.reserved_key(LIVE_NODES);
        let time = watch_silence(&self.shared, session, within(session.time(&name))).await?;
        let received = Instant::now();
        if received - sent <= self.shared.timeout {
            // Ends a silence also where no request makes a call.
            self.shared.breaker.end_silence();
        }
        if !session.is_cluster() {
            self.shared.clock.steer(time, sent, received);
        }
        self.server_clock.update(time, sent, received);
        self.time_read = received;
        Ok(())
    }

    /// Says that this node is alive. The answer is the names of all that have said so within `max_age`.
    pub(super) async fn report_alive(&self, max_age: Duration) -> Result<Vec<String>, Failure> {
        self.report_in(LIVE_NODES, &self.shared.node, census::LIVE, max_age).await
    }

    /// Puts a member into one of the sets of nodes. The answer is all that were put there within
    /// `max_age`.
    pub(super) async fn report_in(
        &self,
        set: &str,
        member: &str,
        retention: Retention,
        max_age: Duration,
    ) -> Result<Vec<String>, Failure> {
        let Some(session) = &self.session else { return Err(Failure::timeout()) };
        let name = self.shared.reserved_key(set);
        // Without a time all others would seem to be ahead of it.
        let Some(now) = self.server_clock.at(Instant::now()) else {
            return Err(Failure::timeout());
        };
        let member = (!self.shared.is_leaving.load(Ordering::Relaxed)).then_some(member);
        let report = census::report(&name, member, now, retention, max_age);
        let reported = within(session.run_together(&name, &report));
        watch_silence(&self.shared, session, reported).await
    }

    /// Learns of nodes that have joined the cluster, and forgets those that left. It runs detached:
    /// what is known is good enough until one of the masters fails.
    fn refresh_cluster(&self, nodes: &Arc<Nodes>) {
        if !self.shared.dialer.known.is_due() {
            return;
        }
        let nodes = nodes.clone();
        tokio::spawn(async move {
            if let Err(failure) = nodes.refresh().await {
                tracing::debug!(%failure, "the nodes of the cluster are not told");
            }
        });
    }
}

/// Takes this node off the lists, so that the shares of the others grow at once. If that fails, its
/// heartbeat expires.
pub(crate) async fn leave(shared: &RedisShared) {
    // The supervisor goes on until the end, and must not put it back.
    shared.is_leaving.store(true, Ordering::Relaxed);
    let _ = within(async {
        let session = Session::open(&shared.dialer).await?;
        for set in [LIVE_NODES, RECOVERY_SET] {
            let name = shared.reserved_key(set);
            let members = reports::members_of(&shared.node);
            let _: u64 = session.run_together(&name, &census::leave(&name, members)).await?;
        }
        Ok(())
    })
    .await;
}
