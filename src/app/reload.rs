//! A changed configuration: checked whole, then served from the next request on.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::logs::Logs;
use super::outside::Surroundings;
use crate::admin::Api;
use crate::config::settings::{Settings, StoreKind};
use crate::config::{self, Loaded, Source, regular_file};
use crate::gateway::{Compiled, Outside};
use crate::listen::worker::Worker;
use crate::store::{self, BucketHasher};
use crate::telemetry::{Event, Metrics};

#[derive(Debug)]
pub struct Reloader {
    source: Source,
    current: Loaded,
    /// The store that was opened at the start: buckets are named as it wants them.
    store: store::Shared,
    store_kind: StoreKind,
    /// What was last refused, so that it is not complained about twice.
    refused: Option<String>,
    workers: Arc<Vec<Worker>>,
    hasher: BucketHasher,
    metrics: Metrics,
    logs: Logs,
    surroundings: Surroundings,
    api: Arc<Api>,
    /// What is served, and with what.
    served: Arc<Settings>,
    compiled: Arc<Compiled>,
    /// What was served before and may still be in use. The last reference to a large configuration
    /// is dropped here, where that holds up no request.
    retired: Vec<Arc<Compiled>>,
    outside: Outside,
    /// What workers were told, while it knows of numbers that held until a moment ago and may still
    /// hold elsewhere; since when, and until when.
    told: Option<Arc<Compiled>>,
    lingers: Option<(Instant, Instant)>,
}

/// How long gateways that share a store may hold callers to different numbers: longer than it takes
/// them to hear of an override that was made or taken back.
const LINGER: Duration = Duration::from_secs(5);
/// For so long, at most, if there is one change after another: what ended long ago has to go.
const LONGEST: Duration = Duration::from_secs(30);
/// How long workers may take to serve something else.
const PATIENCE: Duration = Duration::from_secs(1);

impl Reloader {
    #[must_use]
    pub fn new(
        source: Source,
        current: Loaded,
        (workers, compiled): (Arc<Vec<Worker>>, Arc<Compiled>),
        hasher: BucketHasher,
        metrics: Metrics,
        (store, logs, surroundings, api): (store::Shared, Logs, Surroundings, Arc<Api>),
    ) -> Self {
        let store_kind = current.settings.store.kind.clone();
        let served = compiled.settings.clone();
        let outside = surroundings.outside();
        Reloader {
            source,
            current,
            store,
            store_kind,
            refused: None,
            workers,
            hasher,
            metrics,
            logs,
            surroundings,
            api,
            served,
            compiled,
            retired: Vec::new(),
            outside,
            told: None,
            lingers: None,
        }
    }

    /// Starts what goes on beside the reloads, on the current runtime.
    pub fn start(&mut self) {
        self.surroundings.keep();
    }

    /// Loads the file, whether it changed or not: this also opens the logs anew.
    pub fn reload(&mut self) {
        self.refused = None;
        self.attempt(true);
    }

    /// Loads the file if it says something else than before.
    pub fn reload_if_changed(&mut self) {
        self.attempt(false);
    }

    /// Loads the file again if a list or a file of clients that it names has changed.
    pub fn reload_if_lists_changed(&mut self) {
        if self.surroundings.have_changed() {
            self.attempt(true);
        }
    }

    fn attempt(&mut self, always: bool) {
        // Anything that happens in the file's folder leads here, so this must be cheap.
        let same = |path| {
            let read = regular_file::read(path, config::LARGEST);
            read.is_ok_and(|text| text == self.current.text.as_bytes())
        };
        if !always && self.source.path().is_some_and(same) {
            // What was refused may be a file that it names.
            if !self.surroundings.have_changed() {
                self.refused = None;
            }
            if self.surroundings.are_as_read() {
                if self.metrics.last_reload.get() == 0 {
                    tracing::info!("the configuration is again the one that is served");
                }
                self.metrics.last_reload.set(1);
            }
            return;
        }
        match self.source.load() {
            Ok(loaded) => self.apply(loaded),
            Err(error) => {
                // It is looked at again when it changes again.
                self.surroundings.give_up_on_lists();
                self.metrics.last_reload.set(0);
                let text = error.to_string();
                if self.refused.as_ref() == Some(&text) {
                    return;
                }
                for line in error.lines() {
                    tracing::error!("{line}");
                }
                self.fail("the configuration has faults");
                self.refused = Some(text);
            }
        }
    }

    fn apply(&mut self, loaded: Loaded) {
        for line in loaded.warnings.lines() {
            tracing::warn!("{line}");
        }
        let mut settings = loaded.settings.clone();
        let next = match self.surroundings.next(&settings) {
            Ok(next) => next,
            Err(error) => {
                self.surroundings.give_up_on_lists();
                return self.fail(&error.to_string());
            }
        };
        let telemetry = &self.current.settings.telemetry;
        if let Err(error) = self.logs.renew(telemetry, &settings.telemetry) {
            return self.fail(&error.to_string());
        }
        self.surroundings.take_over(next, &settings);
        for key in fixed_changes(&self.current.settings, &settings) {
            tracing::warn!("{key} has changed; that takes a restart");
        }
        settings.store.kind = self.store_kind.clone();
        self.store.configure(&settings.store);
        self.served = Arc::new(settings);
        self.api.configure(self.served.clone());
        let compiled = self.compile();
        self.current = loaded;
        self.refused = None;
        self.metrics.reloads.with_label_values(&["ok"]).inc();
        self.metrics.last_reload.set(1);
        let (routes, limits) = (compiled.settings.routes.len(), compiled.settings.limits.len());
        self.logs.audit.record(Event::ConfigUpdated { routes, limits });
        tracing::info!(routes, limits, "configuration reloaded");
    }

    /// Serves the same with what operators have decided since. No worker is held to other numbers
    /// before all know of them, nor does any forget the old ones before all have left them: one that
    /// knew only the smaller ones would clamp what the others still count.
    pub async fn serve_again(&mut self) {
        let version = self.surroundings.book().version();
        let next = self.surroundings.outside();
        let last = std::mem::replace(&mut self.outside, next.clone());
        let (last, next) = (self.made(&last), self.made(&next));
        let last = match &self.told {
            Some(told) => last.knowing(told),
            None => last,
        };
        let last = self.tell(last.knowing(&next));
        self.heard().await;
        let told = self.tell(next.knowing(&last));
        self.heard().await;
        self.surroundings.book().note_served(version);
        self.told = Some(told);
        let now = Instant::now();
        let (begun, _) = self.lingers.unwrap_or((now, now));
        self.lingers = Some((begun, (now + LINGER).min(begun + LONGEST)));
    }

    /// When what was served before is served nowhere any more.
    #[must_use]
    pub fn lingers_until(&self) -> Option<Instant> {
        self.lingers.map(|(_, until)| until)
    }

    /// Forgets what was served before.
    pub fn let_go(&mut self) {
        (self.told, self.lingers) = (None, None);
        let made = self.made(&self.outside);
        self.tell(made);
    }

    /// Forgets configurations that no request uses any more, and the series of what only they had.
    pub fn tidy(&mut self) {
        if self.retired.is_empty() {
            return;
        }
        // A request of an old configuration may bring a series back: what is pruned last is pruned
        // after the last of them.
        let (used, unused) =
            std::mem::take(&mut self.retired).into_iter().partition(|it| Arc::strong_count(it) > 1);
        self.retired = used;
        drop::<Vec<_>>(unused);
        self.metrics.prune(&self.compiled.series());
    }

    fn compile(&mut self) -> Arc<Compiled> {
        let version = self.surroundings.book().version();
        self.outside = self.surroundings.outside();
        let compiled = self.made(&self.outside);
        let compiled = self.tell(match &self.told {
            Some(told) => compiled.knowing(told),
            None => compiled,
        });
        self.surroundings.book().note_served(version);
        compiled
    }

    /// The settings made ready, with what lies outside of them.
    fn made(&self, outside: &Outside) -> Compiled {
        let (settings, access_log) = (self.served.clone(), self.logs.access.clone());
        Compiled::new(settings, &self.hasher, &self.metrics, access_log, outside.clone())
    }

    fn tell(&mut self, compiled: Compiled) -> Arc<Compiled> {
        let compiled = Arc::new(compiled);
        self.workers.iter().for_each(|worker| worker.configure(compiled.clone()));
        self.retired.push(std::mem::replace(&mut self.compiled, compiled.clone()));
        compiled
    }

    /// Resolves when all workers serve what they were told to, which they do in turn.
    async fn heard(&self) {
        let flushed = self.workers.iter().map(Worker::flush);
        let _ = timeout(PATIENCE, futures_util::future::join_all(flushed)).await;
    }

    fn fail(&self, why: &str) {
        self.metrics.reloads.with_label_values(&["failed"]).inc();
        self.metrics.last_reload.set(0);
        tracing::error!("configuration not reloaded: {why}; the one before serves on");
    }
}

/// The keys that are read only at the start.
fn fixed_changes(old: &Settings, new: &Settings) -> Vec<&'static str> {
    let changes = [
        ("server.listen", old.server.listen != new.server.listen),
        ("server.workers", old.server.workers != new.server.workers),
        ("server.max_connections", old.server.max_connections != new.server.max_connections),
        ("admin", old.admin != new.admin),
        // `on_error` has become part of the limits.
        ("store", old.store.kind != new.store.kind || old.store.max_keys != new.store.max_keys),
        ("store.snapshot", old.store.snapshot != new.store.snapshot),
    ];
    changes.into_iter().filter(|(_, changed)| *changed).map(|(key, _)| key).collect()
}
