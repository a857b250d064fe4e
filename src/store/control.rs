//! What start-up, operators and the end of the process need of a store.

use std::fmt::Debug;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _, ready};

use super::{AnyStore, BucketHasher, BucketId, HeldSlots, MemoryStore};
use crate::clock::{Clock, Micros};
use crate::config::settings;
use crate::guards::{GuardSharing, GuardTable, Penalty, PenaltyNotice};
use crate::limit::{Policy, Report, State};
use crate::overrides::{Override, OverrideTable};
use crate::telemetry::{AuditLog, Metrics};
use crate::tenants::{TenantChange, TenantTable};
use crate::trust::{KeptUser, TrustTable};
use crate::violations::{ViolationPage, ViolationQuery};

/// What a store is opened with, besides its settings.
#[derive(Debug, Clone, Copy)]
pub struct StoreContext<'a> {
    pub workers: usize,
    /// This process's name among the gateways that share the store.
    pub node: &'a str,
    pub metrics: &'a Metrics,
    pub audit: &'a AuditLog,
}

/// A store that has been opened, and what was kept with it.
#[derive(Debug)]
pub struct OpenedStore {
    pub control: Arc<dyn StoreControl>,
    /// The hasher whose secret has named the store's buckets.
    pub hasher: BucketHasher,
    /// The overrides that were in force when the store was last used.
    pub overrides: Arc<OverrideTable>,
    /// The tenants that were made at run time, likewise.
    pub tenants: Arc<TenantTable>,
    /// The penalties that were in force then, where the store itself does not tell them.
    pub penalties: Vec<PenaltyNotice>,
    /// What was known of users then, likewise.
    pub users: Vec<KeptUser>,
}

/// A bucket that an operator asks about.
#[derive(Debug, Clone, Copy)]
pub struct KnownBucket<'a> {
    pub bucket: BucketId,
    /// What all buckets of its limit start from.
    pub limit_prefix: u64,
    /// Its key in a store that several gateways share.
    pub key: &'a [u8],
    pub policy: &'a Policy,
}

impl KnownBucket<'_> {
    /// What it holds in that state. One that is not there is full.
    pub fn report(&self, state: Option<State>, now: Micros) -> Report {
        self.policy.report(self.policy.clamp(state.unwrap_or_default(), now), now)
    }
}

/// One for the process.
pub trait StoreControl: Debug + Send + Sync {
    /// The name in metrics and in the health report.
    fn kind(&self) -> &'static str;

    /// One worker's store. Has to be called on the worker's runtime.
    fn worker_store(self: Arc<Self>) -> AnyStore;

    /// The buckets in this process: all there are, or what is known of those elsewhere.
    fn local_buckets(&self) -> &MemoryStore;

    /// Whether other gateways may share it.
    fn is_shared(&self) -> bool {
        false
    }

    /// The clock that decisions are made by.
    fn clock(&self) -> Clock {
        self.local_buckets().clock()
    }

    /// Applies what a reload has changed.
    fn configure(&self, _settings: &settings::Store) {}

    /// Whether limits are being served without the store they live in.
    fn is_degraded(&self) -> bool {
        false
    }

    /// Why it fails, if that is known.
    fn degraded_reason(&self) -> Option<&'static str> {
        None
    }

    /// How many gateways share the store, if each of them decides alone at the moment.
    fn alone_among(&self) -> Option<u64> {
        None
    }

    /// Keeps these overrides equal to those of all gateways that share the store.
    fn share_overrides(&self, _overrides: &Arc<OverrideTable>) {}

    /// Stores an override for all gateways that share the store. `Err` says why that failed.
    fn put_override<'a>(&'a self, _entry: &'a Override) -> BoxFuture<'a, Result<(), String>> {
        ready(Ok(())).boxed()
    }

    /// Removes an override for all gateways that share the store. `Err` says why that failed.
    fn remove_override<'a>(&'a self, _id: &'a str) -> BoxFuture<'a, Result<(), String>> {
        ready(Ok(())).boxed()
    }

    /// How many gateways share the store, this one included, as last counted.
    fn gateways(&self) -> u64 {
        1
    }

    /// Keeps these tenants equal to those of all gateways that share the store.
    fn share_tenants(&self, _tenants: &Arc<TenantTable>) {}

    /// Takes over what other gateways have changed of the tenants. `Err` says why that failed.
    fn refresh_tenants<'a>(&'a self, _table: &'a TenantTable) -> BoxFuture<'a, Result<(), String>> {
        ready(Ok(())).boxed()
    }

    /// Makes a change of the tenants for all gateways that share the store, and in the table. False if
    /// others have changed them since they had that mark: then nothing is changed, and the table is
    /// up to date. `Err` says why that failed.
    fn change_tenant<'a>(
        &'a self,
        table: &'a TenantTable,
        change: &'a TenantChange,
        _mark: Option<&'a str>,
    ) -> BoxFuture<'a, Result<bool, String>> {
        table.apply(change, None);
        ready(Ok(true)).boxed()
    }

    /// What some buckets hold, by the store that keeps them. `Err` says why they cannot be had.
    fn bucket_reports<'a>(
        &'a self,
        buckets: &'a [KnownBucket<'a>],
    ) -> BoxFuture<'a, Result<Vec<Report>, String>> {
        let (store, now) = (self.local_buckets(), self.clock().now());
        let report = |it: &KnownBucket<'_>| it.report(store.state_or_shared(it), now);
        ready(Ok(buckets.iter().map(report).collect())).boxed()
    }

    /// Has all gateways that share the store count together, and keeps penalties where the store
    /// keeps what outlives the process.
    fn share_guards(&self, sharing: GuardSharing);

    /// Makes a key clean, for all gateways that share the store. `Err` says why that failed.
    fn lift_penalty<'a>(
        &'a self,
        guards: &'a GuardTable,
        penalty: &'a Penalty,
    ) -> BoxFuture<'a, Result<(), String>> {
        guards.lift(penalty.id, self.clock().now());
        ready(Ok(())).boxed()
    }

    /// The violations of all gateways that share the store; `None` if it keeps none. `Err` says
    /// why they cannot be had.
    fn violations<'a>(
        &'a self,
        _query: &'a ViolationQuery,
    ) -> BoxFuture<'a, Result<Option<ViolationPage>, String>> {
        ready(Ok(None)).boxed()
    }
    /// Has all gateways that share the store know the same of users, and keeps that where the store keeps
    /// what outlives the process.
    fn share_trust(&self, trust: &Arc<TrustTable>);

    /// Brings the store into use, or finds that it cannot be reached, and supervises it from then on.
    fn start(self: Arc<Self>) -> BoxFuture<'static, ()>;

    /// Keeps what outlives the process now, for a process that is about to start.
    fn keep(&self) -> BoxFuture<'_, ()> {
        ready(()).boxed()
    }

    /// From now on another process keeps what outlives this one.
    fn hand_over(&self) {}

    /// The slots that requests of this process hold, for the one that takes over. `None` if the store
    /// counts them for both.
    fn held_slots(&self) -> Option<HeldSlots> {
        None
    }

    /// Counts the slots that the process before this one holds, in the place of those it held before.
    /// `None`: it has ended.
    fn inherit_slots(&self, _held: Option<&HeldSlots>) {}

    /// The process ends: keeps what is to be kept, and tells other gateways.
    fn leave(&self) -> BoxFuture<'_, ()>;
}
