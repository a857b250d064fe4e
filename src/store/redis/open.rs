//! A store in Redis as start-up, operators and the end of the process see it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::{BoxFuture, FutureExt as _};

use super::supervise::guards::GuardReporter;
use super::supervise::heartbeat;
use super::supervise::overrides;
use super::supervise::penalty_stream;
use super::supervise::supervisor::Supervisor;
use super::supervise::tenants;
use super::supervise::trust::{self, TrustReporter};
use super::supervise::{bucket_reports, violations};
use super::{RedisShared, RedisStore};
use crate::config::settings::{self, StoreKind};
use crate::guards::{GuardSharing, GuardTable, Penalty};
use crate::limit::Report;
use crate::overrides::{Override, OverrideTable};
use crate::store::{
    AnyStore, BucketHasher, KnownBucket, MemoryStore, OpenedStore, StoreContext, StoreControl,
};
use crate::tenants::{TenantChange, TenantTable};
use crate::trust::TrustTable;
use crate::violations::{ViolationPage, ViolationQuery};

pub(in crate::store) fn open(
    settings: &settings::Store,
    context: StoreContext<'_>,
) -> Result<OpenedStore, getrandom::Error> {
    let StoreKind::Redis(redis) = &settings.kind else {
        unreachable!("the kind has chosen this store")
    };
    let worker_store =
        |shared: &Arc<RedisShared>| AnyStore::Redis(RedisStore::start(shared.clone()));
    open_as(
        StoreShape { kind: "redis", worker_store: Box::new(worker_store) },
        redis,
        settings,
        context,
    )
}

/// What kinds of store that live in Redis differ in.
pub(in crate::store) struct StoreShape {
    /// The name in metrics.
    pub(in crate::store) kind: &'static str,
    /// Makes one worker's store, on the worker's runtime.
    pub(in crate::store) worker_store: WorkerStoreMaker,
}

pub(in crate::store) type WorkerStoreMaker =
    Box<dyn Fn(&Arc<RedisShared>) -> AnyStore + Send + Sync>;

impl fmt::Debug for StoreShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreShape").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// Opens a store that lives in Redis, of that shape.
pub(in crate::store) fn open_as(
    shape: StoreShape,
    redis: &settings::Redis,
    settings: &settings::Store,
    context: StoreContext<'_>,
) -> Result<OpenedStore, getrandom::Error> {
    // Fails if a provider has been chosen already, which then serves as well.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let shared = RedisShared::new(shape, redis, settings, context);
    let (hasher, overrides, tenants) = (BucketHasher::random()?, Arc::default(), Arc::default());
    let (penalties, users) = (Vec::new(), Vec::new());
    let control = Arc::new(shared);
    Ok(OpenedStore { control, hasher, overrides, tenants, penalties, users })
}

impl StoreControl for RedisShared {
    fn kind(&self) -> &'static str {
        self.shape.kind
    }

    fn worker_store(self: Arc<Self>) -> AnyStore {
        (self.shape.worker_store)(&self)
    }

    fn local_buckets(&self) -> &MemoryStore {
        &self.local
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn configure(&self, settings: &settings::Store) {
        self.breaker.set_on_error(settings.on_error);
        self.has_local_limits.store(settings.has_local_limits, Ordering::Relaxed);
    }

    fn is_degraded(&self) -> bool {
        self.breaker.is_open()
    }

    fn degraded_reason(&self) -> Option<&'static str> {
        self.breaker.reason()
    }

    fn alone_among(&self) -> Option<u64> {
        self.breaker.is_open().then(|| self.nodes())
    }

    fn share_overrides(&self, overrides: &Arc<OverrideTable>) {
        let _ = self.overrides.set(overrides.clone());
    }

    fn put_override<'a>(&'a self, entry: &'a Override) -> BoxFuture<'a, Result<(), String>> {
        async { overrides::put(self, entry).await.map_err(|failure| failure.to_string()) }.boxed()
    }

    fn remove_override<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), String>> {
        async { overrides::remove(self, id).await.map_err(|failure| failure.to_string()) }.boxed()
    }

    fn gateways(&self) -> u64 {
        self.nodes()
    }

    fn share_tenants(&self, tenants: &Arc<TenantTable>) {
        let _ = self.tenants.set(tenants.clone());
    }

    fn refresh_tenants<'a>(&'a self, table: &'a TenantTable) -> BoxFuture<'a, Result<(), String>> {
        async { tenants::refresh(self, table).await.map_err(|failure| failure.to_string()) }.boxed()
    }

    fn change_tenant<'a>(
        &'a self,
        table: &'a TenantTable,
        change: &'a TenantChange,
        mark: Option<&'a str>,
    ) -> BoxFuture<'a, Result<bool, String>> {
        async move {
            let changed = tenants::change(self, table, change, mark).await;
            changed.map_err(|failure| failure.to_string())
        }
        .boxed()
    }

    fn bucket_reports<'a>(
        &'a self,
        buckets: &'a [KnownBucket<'a>],
    ) -> BoxFuture<'a, Result<Vec<Report>, String>> {
        async move {
            let reports = bucket_reports::read(self, buckets).await;
            reports.map_err(|failure| failure.to_string())
        }
        .boxed()
    }

    fn share_guards(&self, sharing: GuardSharing) {
        let _ = self.guards.set(sharing);
    }

    fn share_trust(&self, trust: &Arc<TrustTable>) {
        let _ = self.trust.set(trust.clone());
    }

    fn lift_penalty<'a>(
        &'a self,
        guards: &'a GuardTable,
        penalty: &'a Penalty,
    ) -> BoxFuture<'a, Result<(), String>> {
        async {
            penalty_stream::lift(self, guards, penalty).await.map_err(|failure| failure.to_string())
        }
        .boxed()
    }

    fn violations<'a>(
        &'a self,
        query: &'a ViolationQuery,
    ) -> BoxFuture<'a, Result<Option<ViolationPage>, String>> {
        async {
            if !self.audit.is_streamed() {
                return Ok(None);
            }
            let page = violations::read(self, query).await;
            page.map(Some).map_err(|failure| failure.to_string())
        }
        .boxed()
    }

    fn start(self: Arc<Self>) -> BoxFuture<'static, ()> {
        async {
            let guards = self.guards.get().cloned();
            let mut supervisor = Supervisor::new(self.clone());
            supervisor.start().await;
            tokio::spawn(supervisor.run());
            tokio::spawn(violations::send_forever(self.clone()));
            if let Some(table) = self.trust.get().cloned() {
                tokio::spawn(TrustReporter::new(self.clone(), table).run());
            }
            if let Some(sharing) = guards {
                let mut reporter = GuardReporter::new(self, sharing);
                reporter.start().await;
                tokio::spawn(reporter.run());
            }
        }
        .boxed()
    }

    fn leave(&self) -> BoxFuture<'_, ()> {
        async {
            if let Some(guards) = self.guards.get() {
                guards.note_pending(self.clock.now());
            }
            if !self.breaker.is_open() {
                violations::send_last(self).await;
                if let Some(table) = self.trust.get() {
                    trust::report_rest(self, table).await;
                }
                heartbeat::leave(self).await;
            }
        }
        .boxed()
    }
}
