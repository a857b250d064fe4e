//! What the masters say of themselves: whether they are the processes that they were before an outage,
//! and whether they evict buckets.

use std::time::Duration;

use tokio::time::Instant;

use super::silence::watch_silence;
use super::supervisor::within;
use crate::store::redis::RedisShared;
use crate::store::redis::connect::session::{MasterInfo, Session};

/// How often the masters of a cluster are looked at while it is in use.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// The masters, by a name that each has until it ends.
#[derive(Debug)]
pub(super) struct Masters {
    /// As they were while Redis was in use.
    in_use: Vec<String>,
    /// As they were found last, and when that was.
    found: Vec<String>,
    looked: Instant,
    /// The policies of eviction that were last warned of, so that it is not said at every reconnect.
    warned: Vec<String>,
}

impl Masters {
    pub(super) fn new() -> Self {
        Masters {
            in_use: Vec::new(),
            found: Vec::new(),
            looked: Instant::now(),
            warned: Vec::new(),
        }
    }

    /// Asks them. If they cannot be asked, what was found before stays.
    pub(super) async fn look(&mut self, shared: &RedisShared, session: &Session) {
        self.looked = Instant::now();
        let masters = match watch_silence(shared, session, within(session.masters())).await {
            Ok(masters) => masters,
            Err(failure) => return tracing::debug!(%failure, "INFO cannot be read"),
        };
        self.warn_of_eviction(&masters);
        self.found = masters.into_iter().filter_map(|it| it.run_id).collect();
    }

    /// Learns of masters that have joined a cluster, or were promoted, while it is in use: or the next
    /// outage would look like a restart.
    pub(super) async fn follow(&mut self, shared: &RedisShared, session: &Session) {
        let is_due = self.looked.elapsed() >= LOOK_INTERVAL;
        if is_due && session.is_cluster() && !shared.breaker.is_open() {
            self.look(shared, session).await;
            self.take_into_use();
        }
    }

    /// Redis is in use as it was found last.
    pub(super) fn take_into_use(&mut self) {
        self.in_use.clone_from(&self.found);
    }

    /// Whether Redis is another process than before the outage: then all gateways were in it, however
    /// short it was.
    pub(super) fn is_another(&self) -> bool {
        let is_known = |it: &String| self.in_use.contains(it);
        !self.in_use.is_empty() && !self.found.iter().all(is_known)
    }

    /// A Redis that evicts buckets gives callers fresh ones.
    fn warn_of_eviction(&mut self, masters: &[MasterInfo]) {
        let policies = masters.iter().filter_map(|it| it.eviction_policy.clone());
        let mut evicting: Vec<_> = policies.filter(|it| it != "noeviction").collect();
        evicting.sort();
        evicting.dedup();
        if !evicting.is_empty() && evicting != self.warned {
            tracing::warn!(
                "redis has maxmemory-policy {}: when its memory is full it forgets buckets, and \
                 their callers start afresh; set it to noeviction",
                evicting.join(", ")
            );
        }
        self.warned = evicting;
    }
}
