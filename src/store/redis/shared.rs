//! What all workers share of a store in Redis.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::{IntCounter, IntGauge};
use tokio::sync::Notify;

use super::connect::dialer::Dialer;
use super::connect::hash_slot::hash_slot;
use super::decide::known_states::QuietSince;
use super::decide::lease_notes::LeaseNotes;
use super::decide::refunds::RefundsInFlight;
use super::decide::reply_order::ReplyOrder;
use super::open::StoreShape;
use super::supervise::breaker::Breaker;
use super::supervise::ledger::Ledger;
use super::wire::check_args::CallContext;
use crate::clock::{self, Clock, Micros};
use crate::config::settings;
use crate::guards::GuardSharing;
use crate::overrides::OverrideTable;
use crate::store::{Check, CheckOutcome, CheckSet, MemoryStore, StoreContext};
use crate::telemetry::AuditLog;
use crate::tenants::TenantTable;
use crate::trust::TrustTable;

/// One for the process.
#[derive(Debug)]
pub struct RedisShared {
    pub(super) shape: StoreShape,
    pub(super) dialer: Arc<Dialer>,
    pub(super) prefix: String,
    pub(super) timeout: Duration,
    /// What one worker may keep of what is bounded by `max_keys`.
    pub(super) keys_per_worker: usize,
    pub(super) breaker: Breaker,
    /// What is known of the buckets in Redis, and what decides while it fails.
    pub(super) local: MemoryStore,
    pub(super) order: ReplyOrder,
    pub(super) lease_notes: LeaseNotes,
    /// Shows the time of Redis; on a cluster, of the master that is probed.
    /// Buckets are judged by [`RedisShared::now_in`].
    pub(super) clock: Clock,
    /// Whether any limit has `on_error = "local"`, so that gateways may owe something after an outage.
    pub(super) has_local_limits: AtomicBool,
    pub(super) ledger: Mutex<Ledger>,
    /// Since when there is nothing in it.
    pub(super) quiet_since: QuietSince,
    /// Notified when the ledger has a debt though the breaker is closed.
    pub(super) debts_noted: Notify,
    /// Notified when debts were paid, or could not be.
    pub(super) debts_paid: Notify,
    pub(super) refunds_in_flight: RefundsInFlight,
    /// This process's name among the gateways that share the store, and how many there are.
    pub(super) node: String,
    /// The same as a number.
    pub(super) number: u32,
    pub(super) nodes: AtomicU64,
    /// This process ends, and is no longer to be heard among the gateways.
    pub(super) is_leaving: AtomicBool,
    pub(super) calls: IntCounter,
    pub(super) nodes_gauge: IntGauge,
    pub(super) next_worker: AtomicUsize,
    /// The overrides of all gateways that share the store.
    pub(super) overrides: OnceLock<Arc<OverrideTable>>,
    /// The tenants that were made at run time, by any of them.
    pub(super) tenants: OnceLock<Arc<TenantTable>>,
    /// The guards of this gateway, which it shares with them.
    pub(super) guards: OnceLock<GuardSharing>,
    /// Has the violations that go to the stream.
    pub(super) audit: AuditLog,
    /// What this gateway knows of users, which it shares with them.
    pub(super) trust: OnceLock<Arc<TrustTable>>,
}

impl RedisShared {
    pub(super) fn new(
        shape: StoreShape,
        settings: &settings::Redis,
        store: &settings::Store,
        context: StoreContext<'_>,
    ) -> Self {
        let StoreContext { workers, node, metrics, audit } = context;
        let clock = Clock::steered();
        let dialer = Arc::new(Dialer::new(settings.clone()));
        let address = format!("redis at {dialer}");
        let max_keys = store.max_keys;
        RedisShared {
            shape,
            prefix: settings.prefix.clone(),
            timeout: settings.timeout,
            keys_per_worker: max_keys.div_ceil(workers.max(1)),
            breaker: Breaker::new(workers, address, store.on_error, metrics.clone(), audit.clone()),
            local: MemoryStore::new(max_keys, clock.clone()),
            order: ReplyOrder::new(),
            lease_notes: LeaseNotes::default(),
            clock,
            has_local_limits: AtomicBool::new(store.has_local_limits),
            ledger: Mutex::new(Ledger::new(max_keys, settings.timeout)),
            quiet_since: QuietSince::start(),
            debts_noted: Notify::new(),
            debts_paid: Notify::new(),
            refunds_in_flight: RefundsInFlight::default(),
            number: number(node),
            node: node.to_owned(),
            nodes: AtomicU64::new(1),
            is_leaving: AtomicBool::new(false),
            calls: metrics.store_calls.clone(),
            nodes_gauge: metrics.store_nodes.clone(),
            next_worker: AtomicUsize::new(0),
            overrides: OnceLock::new(),
            tenants: OnceLock::new(),
            guards: OnceLock::new(),
            audit: audit.clone(),
            trust: OnceLock::new(),
            dialer,
        }
    }

    /// What one worker may keep of what is bounded by `max_keys`.
    pub(in crate::store) fn keys_per_worker(&self) -> usize {
        self.keys_per_worker
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.dialer.seeds().is_some()
    }

    /// The hash slot of a key. Without a cluster everything is in one.
    pub(super) fn slot_of(&self, key: &[u8]) -> u16 {
        if self.is_cluster() { hash_slot(key) } else { 0 }
    }

    /// What the clock shows by which the buckets in a hash slot are judged: that of the master which
    /// last told of them. The masters of a cluster have clocks of their own.
    pub(super) fn now_in(&self, slot: u16) -> Micros {
        if !self.is_cluster() {
            return self.clock.now();
        }
        let known = self.dialer.clocks.in_slot(slot, clock::now());
        known.unwrap_or_else(|| self.clock.now())
    }

    /// The same for the bucket of this name.
    pub(super) fn now_of(&self, name: &[u8]) -> Micros {
        self.now_in(self.slot_of(name))
    }

    /// The same for the bucket of a check. Slots that are held are counted here by one clock.
    pub(super) fn now_for(&self, asked: CheckSet<'_>, check: &Check<'_>) -> Micros {
        if check.policy.is_held() || !self.is_cluster() {
            return self.clock.now();
        }
        self.now_of(&asked.key(check).text())
    }

    /// Whether an instant by the clock of one master does for the buckets of all, where nothing is
    /// charged: to find each one's own takes a lock that all workers share.
    pub(super) fn clocks_agree(&self) -> bool {
        /// What is known of a clock is off by the time that a reply was on its way.
        const TOLERANCE: Duration = Duration::from_millis(10);
        self.local.clock_spread() <= TOLERANCE
    }

    /// Charges what is known of a bucket here, whether it passes or not.
    pub(super) fn charge_known(&self, check: &Check<'_>, slot: u16) -> CheckOutcome {
        if self.is_cluster() {
            self.local.charge_after_at(check, &[self.now_in(slot)])
        } else {
            self.local.charge_one_after(check)
        }
    }

    /// Takes over what the clocks of a cluster's masters show. Nothing that is kept here counts as
    /// ended before it has by all of them.
    pub(super) fn follow_clocks(&self) {
        let (clocks, now) = (&self.dialer.clocks, clock::now());
        // What is owed from an outage is judged by the clocks from before it.
        if self.breaker.is_closed() {
            clocks.forget_silent(now);
        }
        if let Some(time) = clocks.in_slot(self.slot_of(&self.reserved_key("probe")), now) {
            self.clock.steer(time, now, now);
        }
        // Of one instant: what the thread stands still in between would count as a difference.
        let time = self.clock.now();
        let spread = clocks.spread(time, clock::cached_now());
        self.local.set_clock_spread(spread);
        self.ledger.lock().set_clock_spread(spread);
    }

    /// A key that is no bucket: names of limits have no `@`.
    pub(super) fn reserved_key(&self, what: &str) -> Vec<u8> {
        format!("{}:@{what}", self.prefix).into_bytes()
    }

    /// What scripts need to know of a worker.
    pub(super) fn call_context(&self, worker: usize) -> CallContext {
        // Workers are at most 1024, and 48 bits stay whole in a double.
        let holder = u64::from(self.number) << 16 | worker as u64;
        CallContext { holder, around: self.clock.now(), deadline: None }
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

/// A number for a name that is unique.
fn number(name: &str) -> u32 {
    let hex = name.rsplit('-').next().and_then(|hex| u32::from_str_radix(hex, 16).ok());
    hex.unwrap_or_else(|| name.bytes().fold(0, |sum, it| sum.wrapping_mul(31) ^ u32::from(it)))
}
