//! From when a worker's gateway is made to when it ends: another configuration, what is done at
//! intervals, the drain.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::Notify;

use super::wall_step::WallStep;
use super::worker_config::{WorkerConfig, WorkerTree};
use super::{Gateway, RequestsInFlight, ServedConfig, WaitQueues};
use crate::caller::jwt::TokenCache;
use crate::clock;
use crate::guards::GuardTable;
use crate::store::{BucketHasher, Store, StoreControl};
use crate::telemetry::AuditLog;
use crate::trust::TrustTable;
use crate::upstream::{Servers, SharedUpstreams};
use crate::violations::RecentViolations;

/// What all gateways of the process have in common.
#[derive(Debug, Clone)]
pub struct ProcessShared {
    pub queues: Arc<WaitQueues>,
    /// This process's name in `Via`.
    pub via: Arc<str>,
    /// The secret of the token caches.
    pub token_secret: [u8; 16],
    pub guards: Arc<GuardTable>,
    pub trust: Arc<TrustTable>,
    pub audit: AuditLog,
    pub upstreams: Arc<SharedUpstreams>,
    pub in_flight: Arc<RequestsInFlight>,
}

impl Gateway {
    pub fn new(
        store: Arc<dyn StoreControl>,
        hasher: BucketHasher,
        shared: ProcessShared,
        served: ServedConfig,
    ) -> Self {
        let ServedConfig { compiled, tree } = served;
        let ProcessShared { queues, via, token_secret, guards, trust, audit, upstreams, in_flight } =
            shared;
        let servers = Servers::new(upstreams);
        let clock = store.clock();
        Gateway {
            store: Rc::new(store.worker_store()),
            queues,
            hasher,
            via,
            config: RefCell::new(Rc::new(WorkerConfig::new(compiled, &servers))),
            tree: RefCell::new(Rc::new(WorkerTree(tree))),
            servers,
            tokens: TokenCache::new(&token_secret),
            config_changed: Notify::new(),
            guards,
            violations: RecentViolations::new(audit),
            trust,
            in_flight,
            wall: WallStep::new(clock.clone()),
            clock,
        }
    }

    /// Serves another configuration from the next request on, and to requests that wait for a limit.
    pub fn configure(&self, served: ServedConfig) {
        let ServedConfig { compiled, tree } = served;
        self.tree.replace(Rc::new(WorkerTree(tree)));
        let config = self.config.borrow().replaced_by(compiled, &self.servers);
        let before = self.config.replace(Rc::new(config));
        // Long answers may keep the old configuration alive; what it has counted is due now.
        before.flush_meters();
        // Servers that only it had are forgotten now, unless its requests still use them.
        drop(before);
        self.config_changed.notify_waiters();
        self.servers.tidy_after_reload();
    }

    /// No request waits for a limit any more: the process is about to end.
    pub fn drain(&self) {
        self.queues.drain();
    }

    /// Resolves when all detached work of ended requests is done.
    pub async fn flush(&self) {
        self.store.flush().await;
    }

    /// Closes upstream connections that have been idle for too long.
    pub fn tidy(&self) {
        self.servers.tidy();
    }

    /// Adds what this worker has counted to the shared metrics, and to the audit log.
    pub fn flush_meters(&self) {
        self.config.borrow().flush_meters();
        self.violations.flush(clock::now());
    }
}
