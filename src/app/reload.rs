//! A changed configuration: checked whole, then served from the next request on.

mod named_files;
mod start_settings;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::external::ExternalState;
use super::listeners::DataListeners;
use super::logs::Logs;
use super::recent::RecentlyServed;
use super::service_manager;
use crate::admin::AdminApi;
use crate::config::settings::Settings;
use crate::config::{ConfigSource, LoadedConfig};
use crate::gateway::{Compiled, ExternalSnapshot, ServedConfig};
use crate::guards::GuardTable;
use crate::limit::tenants::TenantTree;
use crate::listen::worker::Worker;
use crate::store::{BucketHasher, StoreControl};
use crate::telemetry::{AuditEvent, Metrics};
use crate::upstream::{HealthChecks, SharedUpstreams};
use start_settings::StartSettings;

#[derive(Debug)]
pub(crate) struct Reloader {
    source: ConfigSource,
    current: LoadedConfig,
    /// The store that was opened at the start: buckets are named as it wants them.
    store: Arc<dyn StoreControl>,
    /// What was read at the start and runs until the end.
    started_with: StartSettings,
    /// The text of the last failure, so that it is logged once.
    last_failure: Option<String>,
    workers: Arc<Vec<Worker>>,
    hasher: BucketHasher,
    metrics: Metrics,
    logs: Logs,
    external_state: ExternalState,
    api: Arc<AdminApi>,
    guards: Arc<GuardTable>,
    upstreams: Arc<SharedUpstreams>,
    listeners: DataListeners,
    health: HealthChecks,
    /// What is served.
    served: Arc<Settings>,
    compiled: Compiled,
    /// The same as workers have it.
    sent: ServedConfig,
    /// What was served before and may still be in use: configurations until the last of their requests
    /// is answered, trees until it is decided. The last reference to what is large is dropped here,
    /// where that holds up no request.
    retired: Vec<Arc<Compiled>>,
    retired_trees: Vec<Arc<TenantTree>>,
    external: ExternalSnapshot,
    /// The numbers that held before changes of overrides: other gateways may not have heard of a
    /// change yet.
    recent: RecentlyServed<Compiled>,
}

/// What a reloader is made of.
pub(crate) struct ReloaderParts {
    pub(crate) source: ConfigSource,
    pub(crate) current: LoadedConfig,
    pub(crate) workers: Arc<Vec<Worker>>,
    pub(crate) compiled: Compiled,
    pub(crate) served: ServedConfig,
    pub(crate) hasher: BucketHasher,
    pub(crate) metrics: Metrics,
    pub(crate) store: Arc<dyn StoreControl>,
    pub(crate) logs: Logs,
    pub(crate) external_state: ExternalState,
    pub(crate) api: Arc<AdminApi>,
    pub(crate) guards: Arc<GuardTable>,
    pub(crate) upstreams: Arc<SharedUpstreams>,
    pub(crate) listeners: DataListeners,
    pub(crate) health: HealthChecks,
}

/// How long workers may take to apply a configuration.
const APPLY_TIMEOUT: Duration = Duration::from_secs(1);

impl Reloader {
    pub(crate) fn new(parts: ReloaderParts) -> Self {
        let started_with = StartSettings::of(&parts.current.settings);
        let served = parts.compiled.settings.clone();
        let mut external_state = parts.external_state;
        let external = external_state.snapshot(&served);
        parts.api.serve_tenants(parts.compiled.tenants.clone(), external.tenants.clone());
        Reloader {
            source: parts.source,
            current: parts.current,
            store: parts.store,
            started_with,
            last_failure: None,
            workers: parts.workers,
            hasher: parts.hasher,
            metrics: parts.metrics,
            logs: parts.logs,
            external_state,
            api: parts.api,
            guards: parts.guards,
            upstreams: parts.upstreams,
            listeners: parts.listeners,
            health: parts.health,
            served,
            compiled: parts.compiled,
            sent: parts.served,
            retired: Vec::new(),
            retired_trees: Vec::new(),
            external,
            recent: RecentlyServed::new(),
        }
    }

    /// Starts what goes on beside the reloads, on the current runtime.
    pub(crate) fn start(&mut self) {
        self.external_state.start_key_refresh();
        self.health.configure(&self.served.upstreams);
    }

    /// Loads the file, whether it changed or not: this also opens the logs anew.
    pub(crate) fn reload(&mut self) {
        self.last_failure = None;
        service_manager::reloading();
        let old = "serving the configuration before: the new one has faults";
        service_manager::reloaded(if self.attempt(true) { "serving" } else { old });
    }

    /// Loads the file if it says something else than before.
    pub(crate) fn reload_if_changed(&mut self) {
        self.attempt(false);
    }

    /// Whether it is served now, or was before.
    fn attempt(&mut self, always: bool) -> bool {
        // Anything that happens in the file's folder leads here, so this must be cheap.
        let same = self.file_is_served();
        if !always && same {
            // The last failure may have been in a file that the configuration names.
            if !self.external_state.files.have_changed() {
                self.last_failure = None;
            }
            self.note_if_all_is_served();
            return true;
        }
        // Files that change while they are read are read again.
        let before = self.external_state.files.stamps();
        let applied = match self.source.load() {
            Ok(loaded) => {
                let applied = self.apply(loaded);
                if applied {
                    let (routes, limits, tenants) = self.served_counts();
                    self.external_state.files.note_read(&before);
                    self.last_failure = None;
                    // Before it is counted: whoever sees the count may read the gauge next.
                    self.metrics.last_reload.set(1);
                    self.count_success();
                    tracing::info!(routes, limits, tenants, "configuration reloaded");
                }
                applied
            }
            Err(error) => {
                self.metrics.last_reload.set(0);
                let text = error.to_string();
                if self.last_failure.as_ref() != Some(&text) {
                    error.lines().iter().for_each(|line| tracing::error!("{line}"));
                    self.report_failure("the configuration has faults");
                    self.last_failure = Some(text);
                }
                false
            }
        };
        if same && !applied {
            // The fault is in one of these, and has been logged.
            self.external_state.files.note_seen(&before);
        }
        applied
    }

    /// Whether it is served now. The caller counts it.
    fn apply(&mut self, loaded: LoadedConfig) -> bool {
        for line in loaded.warnings.lines() {
            tracing::warn!("{line}");
        }
        let mut settings = loaded.settings.clone();
        let next = match self.external_state.load_next(&settings) {
            Ok(next) => next,
            Err(error) => {
                self.report_failure(&error.to_string());
                return false;
            }
        };
        // Another kind of store takes a restart.
        settings.telemetry.audit_log.redis &= self.store.is_shared();
        let telemetry = &self.current.settings.telemetry;
        if let Err(error) = self.logs.renew(telemetry, &settings.telemetry) {
            self.report_failure(&error.to_string());
            return false;
        }
        self.external_state.replace_with(next, &settings);
        for key in self.started_with.changed_in(&settings) {
            tracing::warn!("{key} has changed; that takes a restart");
        }
        settings.store.kind = self.started_with.store_kind().clone();
        self.store.configure(&settings.store);
        self.listeners.configure(&mut settings.server);
        self.serve(settings);
        self.current = loaded;
        let (routes, limits, tenants) = self.served_counts();
        self.logs.audit.record(AuditEvent::ConfigUpdated { routes, limits, tenants });
        true
    }

    /// Serves by other settings, which the listeners go by already.
    fn serve(&mut self, settings: Settings) {
        self.listeners.show_certificates(&self.metrics);
        self.served = Arc::new(settings);
        self.guards.configure(&self.served.guards);
        self.health.configure(&self.served.upstreams);
        self.upstreams.configure(&self.served.upstreams);
        self.api.configure(self.served.clone());
        self.compile();
    }

    /// Routes, limits and tenants that are served.
    fn served_counts(&self) -> (usize, usize, usize) {
        let Settings { routes, limits, tenants, .. } = &*self.served;
        (routes.len(), limits.len(), tenants.tree.tenants().len())
    }

    /// Says in metrics that what is served is what the files say, if it is.
    fn note_if_all_is_served(&self) {
        if self.file_is_served() && self.external_state.files.are_as_read() {
            if self.metrics.last_reload.get() == 0 {
                tracing::info!("the configuration is again the one that is served");
            }
            self.metrics.last_reload.set(1);
        }
    }

    /// Serves the same configuration with the overrides and tenants that hold now. It takes two steps: first every
    /// worker knows both the old and the new numbers, then they switch. A worker that knew only the
    /// smaller numbers would clamp buckets that others still count by the larger ones.
    pub(crate) async fn apply_run_time(&mut self) {
        let version = self.external_state.run_time().version();
        let next = self.external_state.snapshot(&self.served);
        let last = std::mem::replace(&mut self.external, next.clone());
        let (last, next) = (self.compile_with(&last), self.compile_with(&next));
        let both = self.coexisting_with_recent(last.clone()).coexisting_with(&next);
        self.send_to_workers(both);
        self.workers_applied().await;
        self.send_to_workers(next.coexisting_with(&self.compiled));
        self.workers_applied().await;
        self.external_state.run_time().note_served(version);
        let merge = |last: Compiled, before: &Compiled| last.coexisting_with(before);
        self.recent.note(last.numbers_only(), Instant::now(), merge);
    }

    /// When no gateway serves the oldest of the numbers from before any more.
    pub(crate) fn transition_until(&self) -> Option<Instant> {
        self.recent.until()
    }

    /// Forgets what was served before and no gateway serves any more.
    pub(crate) fn end_transition(&mut self) {
        self.recent.forget(Instant::now());
        let compiled = self.compile_with(&self.external);
        self.send_to_workers(self.coexisting_with_recent(compiled));
    }

    /// Forgets configurations that no request uses any more, and the series of what only they had.
    pub(crate) fn drop_unused(&mut self) {
        self.listeners.log_expiry();
        self.retired_trees.retain(|it| Arc::strong_count(it) > 1);
        if self.retired.is_empty() {
            return;
        }
        // A request of an old configuration may bring a series back, so pruning is repeated until the
        // last of these requests has ended.
        let had_others = self.retired.iter().any(|it| !Arc::ptr_eq(&it.settings, &self.served));
        self.retired.retain(|it| Arc::strong_count(it) > 1);
        if had_others {
            self.metrics.prune(&self.compiled.series());
        }
    }

    fn compile(&mut self) {
        let version = self.external_state.run_time().version();
        self.external = self.external_state.snapshot(&self.served);
        let compiled = self.compile_with(&self.external);
        self.send_to_workers(self.coexisting_with_recent(compiled));
        self.external_state.run_time().note_served(version);
    }

    fn coexisting_with_recent(&self, compiled: Compiled) -> Compiled {
        self.recent.iter().fold(compiled, Compiled::coexisting_with)
    }

    /// The settings compiled with the files and overrides that belong to them. Only what has changed
    /// is compiled again.
    fn compile_with(&self, external: &ExternalSnapshot) -> Compiled {
        if Arc::ptr_eq(&self.compiled.settings, &self.served) {
            return self.compiled.with(&self.hasher, external.clone());
        }
        let (settings, recorder) =
            (self.served.clone(), self.logs.recorder(&self.served.telemetry));
        Compiled::new(settings, &self.hasher, &self.metrics, recorder, external.clone())
    }

    fn send_to_workers(&mut self, compiled: Compiled) {
        let served = compiled.served();
        self.api.serve_tenants(compiled.tenants.clone(), self.external.tenants.clone());
        self.workers.iter().for_each(|worker| worker.configure(served.clone()));
        self.compiled = compiled;
        let ServedConfig { compiled, tree } = std::mem::replace(&mut self.sent, served);
        self.retired.push(compiled);
        if !self.retired_trees.iter().any(|it| Arc::ptr_eq(it, &tree)) {
            self.retired_trees.push(tree);
        }
    }

    /// Resolves when all workers serve what was sent to them: they handle commands in order.
    async fn workers_applied(&self) {
        let flushed = self.workers.iter().map(Worker::flush);
        let _ = timeout(APPLY_TIMEOUT, futures_util::future::join_all(flushed)).await;
    }

    fn count_success(&self) {
        self.metrics.reloads.with_label_values(&["ok"]).inc();
    }

    fn count_failure(&self) {
        self.metrics.last_reload.set(0);
        self.metrics.reloads.with_label_values(&["failed"]).inc();
    }

    fn report_failure(&self, why: &str) {
        self.count_failure();
        tracing::error!("configuration not reloaded: {why}; the one before serves on");
    }
}
