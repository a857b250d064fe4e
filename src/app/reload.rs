//! A changed configuration: checked whole, then served from the next request on.

use std::sync::Arc;

use tracing_appender::non_blocking::WorkerGuard;

use crate::config::settings::Settings;
use crate::config::{Loaded, Source};
use crate::gateway::Compiled;
use crate::listen::worker::Worker;
use crate::store::BucketHasher;
use crate::telemetry::{AccessLog, Metrics};

#[derive(Debug)]
pub struct Reloader {
    source: Source,
    current: Loaded,
    /// What was last refused, so that it is not complained about twice.
    refused: Option<String>,
    workers: Arc<Vec<Worker>>,
    hasher: BucketHasher,
    metrics: Metrics,
    /// Writes out the access log when it is replaced.
    log_guard: Option<WorkerGuard>,
}

impl Reloader {
    #[must_use]
    pub fn new(
        source: Source,
        current: Loaded,
        workers: Arc<Vec<Worker>>,
        hasher: BucketHasher,
        metrics: Metrics,
        log_guard: Option<WorkerGuard>,
    ) -> Self {
        Reloader { source, current, refused: None, workers, hasher, metrics, log_guard }
    }

    /// Loads the file, whether it changed or not: this also opens the access log anew.
    pub fn reload(&mut self) {
        self.refused = None;
        self.attempt(true);
    }

    /// Loads the file if it says something else than before.
    pub fn reload_if_changed(&mut self) {
        self.attempt(false);
    }

    fn attempt(&mut self, always: bool) {
        match self.source.load() {
            Ok(loaded) if !always && loaded.text == self.current.text => self.refused = None,
            Ok(loaded) => self.apply(loaded),
            Err(error) => {
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
        let settings = Arc::new(loaded.settings.clone());
        let (access_log, guard) = match AccessLog::open(&settings.telemetry.access_log) {
            Ok(opened) => opened.unzip(),
            Err(error) => {
                tracing::error!(%error, "cannot open the access log");
                return self.fail("the access log cannot be opened");
            }
        };
        for key in fixed_changes(&self.current.settings, &settings) {
            tracing::warn!("{key} has changed; that takes a restart");
        }
        let compiled = Compiled::new(settings, &self.hasher, &self.metrics, access_log);
        let compiled = Arc::new(compiled);
        self.workers.iter().for_each(|worker| worker.configure(compiled.clone()));
        self.log_guard = guard;
        self.current = loaded;
        self.refused = None;
        self.metrics.reloads.with_label_values(&["ok"]).inc();
        tracing::info!(
            "configuration reloaded: {} routes, {} limits",
            compiled.settings.routes.len(),
            compiled.settings.limits.len(),
        );
    }

    fn fail(&self, why: &str) {
        self.metrics.reloads.with_label_values(&["failed"]).inc();
        tracing::error!("configuration not reloaded: {why}; the one before serves on");
    }
}

/// The keys that are read only at the start.
fn fixed_changes(old: &Settings, new: &Settings) -> Vec<&'static str> {
    let changes = [
        ("server.listen", old.server.listen != new.server.listen),
        ("server.workers", old.server.workers != new.server.workers),
        ("server.drain", old.server.drain != new.server.drain),
        ("server.max_connections", old.server.max_connections != new.server.max_connections),
        ("admin", old.admin != new.admin),
        ("store", old.store != new.store),
    ];
    changes.into_iter().filter(|(_, changed)| *changed).map(|(key, _)| key).collect()
}
