//! What all workers share of a store in Redis.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::{IntCounter, IntGauge};
use tokio::sync::Notify;

use super::dialer::Dialer;
use super::failure::Failure;
use super::health::Health;
use super::keeper::{self, Keeper};
use super::ledger::Ledger;
use super::reply_order::ReplyOrder;
use super::rulings;
use super::terms::Asker;
use crate::clock::Clock;
use crate::config::settings;
use crate::rulings::{Book, Ruling};
use crate::store::MemoryStore;
use crate::telemetry::{Audit, Metrics};

/// One for the process.
#[derive(Debug)]
pub struct Shared {
    pub(super) dialer: Arc<Dialer>,
    pub(super) prefix: String,
    pub(super) timeout: Duration,
    /// What one worker may keep of what is bounded by `max_keys`.
    pub(super) keys_per_worker: usize,
    pub(super) health: Health,
    /// What is known of the buckets in Redis, and what stands in for them.
    pub(super) local: MemoryStore,
    pub(super) order: ReplyOrder,
    /// Shows the time of Redis.
    pub(super) clock: Clock,
    pub(super) ledger: Mutex<Ledger>,
    /// Whether there may be something in it.
    pub(super) owes: AtomicBool,
    /// There is something in the ledger, though the breaker is closed.
    pub(super) owing: Notify,
    /// Refunds that are known to be due and have not been made: see [`super::refunds`].
    pub(super) refunding: AtomicUsize,
    /// This process's name among the gateways that share the store, and how many there are.
    pub(super) node: String,
    /// The same as a number.
    pub(super) number: u32,
    pub(super) nodes: AtomicU64,
    pub(super) calls: IntCounter,
    pub(super) nodes_gauge: IntGauge,
    pub(super) next_worker: AtomicUsize,
    /// What operators have decided, here and elsewhere.
    pub(super) book: OnceLock<Arc<Book>>,
}

impl Shared {
    #[must_use]
    pub fn new(
        settings: &settings::Redis,
        store: &settings::Store,
        workers: usize,
        node: String,
        metrics: &Metrics,
        audit: Audit,
    ) -> Self {
        let clock = Clock::steered();
        let dialer = Arc::new(Dialer::new(settings.clone()));
        let place = (format!("redis at {dialer}"), store.on_error);
        let max_keys = store.max_keys;
        Shared {
            prefix: settings.prefix.clone(),
            timeout: settings.timeout,
            keys_per_worker: max_keys.div_ceil(workers.max(1)),
            health: Health::new(workers, place, metrics.clone(), audit),
            local: MemoryStore::new(max_keys, clock.clone()),
            order: ReplyOrder::new(),
            clock,
            ledger: Mutex::new(Ledger::new(max_keys)),
            owes: AtomicBool::new(false),
            owing: Notify::new(),
            refunding: AtomicUsize::new(0),
            number: number(&node),
            node,
            nodes: AtomicU64::new(1),
            calls: metrics.store_calls.clone(),
            nodes_gauge: metrics.store_nodes.clone(),
            next_worker: AtomicUsize::new(0),
            book: OnceLock::new(),
            dialer,
        }
    }

    #[must_use]
    pub fn keeper(self: &Arc<Self>) -> Keeper {
        Keeper::new(self.clone())
    }

    /// Tells the others that this node goes.
    pub async fn leave(&self) {
        keeper::leave(self).await;
    }

    #[must_use]
    pub fn health(&self) -> &Health {
        &self.health
    }

    #[must_use]
    pub fn local(&self) -> &MemoryStore {
        &self.local
    }

    /// Takes over what a reload has changed.
    pub fn configure(&self, store: &settings::Store) {
        self.health.set_on_error(store.on_error);
    }

    /// Shares these rulings with all who use the store. Once.
    pub fn share(&self, book: Arc<Book>) {
        let _ = self.book.set(book);
    }

    /// # Errors
    /// If Redis does not take it.
    pub async fn put_ruling(&self, ruling: &Ruling) -> Result<(), Failure> {
        rulings::put(self, ruling).await
    }

    /// # Errors
    /// If Redis does not take it.
    pub async fn remove_ruling(&self, id: &str) -> Result<(), Failure> {
        rulings::remove(self, id).await
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.dialer.seeds().is_some()
    }

    /// A key that is no bucket. Limits cannot be called so: their names have no `@`.
    pub(super) fn name(&self, what: &str) -> Vec<u8> {
        format!("{}:@{what}", self.prefix).into_bytes()
    }

    /// How one of the workers introduces itself to Redis.
    pub(super) fn asker(&self, worker: usize) -> Asker {
        // Workers are at most 1024, and 48 bits stay whole in a double.
        let holder = u64::from(self.number) << 16 | worker as u64;
        Asker { holder, around: self.clock.now(), deadline: None }
    }

    pub(super) fn nodes(&self) -> u64 {
        self.nodes.load(Ordering::Relaxed)
    }

    pub(super) fn set_nodes(&self, nodes: u64) {
        /// Beyond this a share is too small to matter, and its arithmetic to fit.
        const MOST: u64 = 1_000;
        let nodes = nodes.clamp(1, MOST);
        self.nodes.store(nodes, Ordering::Relaxed);
        self.nodes_gauge.set(nodes.cast_signed());
    }
}

/// A number for a name that others do not have.
fn number(name: &str) -> u32 {
    let hex = name.rsplit('-').next().and_then(|hex| u32::from_str_radix(hex, 16).ok());
    hex.unwrap_or_else(|| name.bytes().fold(0, |sum, it| sum.wrapping_mul(31) ^ u32::from(it)))
}
