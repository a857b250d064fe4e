//! A changed configuration: checked whole, then served from the next request on.

use std::io;
use std::sync::Arc;

use tracing_appender::non_blocking::WorkerGuard;

use crate::config::settings::Settings;
use crate::config::{Loaded, Source};
use crate::gateway::Compiled;
use crate::listen::worker::Worker;
use crate::store::BucketHasher;
use crate::telemetry::{Lines, Metrics};

#[derive(Debug)]
pub struct Reloader {
    source: Source,
    current: Loaded,
    /// What was last refused, so that it is not complained about twice.
    refused: Option<String>,
    workers: Arc<Vec<Worker>>,
    hasher: BucketHasher,
    metrics: Metrics,
    access_log: Option<Lines>,
    /// Requests under way may still write to a log that was replaced, so all of them are kept.
    /// There is one for each time that `access_log` named another target.
    log_guards: Vec<WorkerGuard>,
}

impl Reloader {
    #[must_use]
    pub fn new(
        source: Source,
        current: Loaded,
        workers: Arc<Vec<Worker>>,
        hasher: BucketHasher,
        metrics: Metrics,
        (access_log, log_guard): (Option<Lines>, Option<WorkerGuard>),
    ) -> Self {
        let log_guards = log_guard.into_iter().collect();
        Reloader {
            source,
            current,
            refused: None,
            workers,
            hasher,
            metrics,
            access_log,
            log_guards,
        }
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
        // Anything that happens in the file's folder leads here, so this must be cheap.
        let same =
            |path| std::fs::read(path).is_ok_and(|text| text == self.current.text.as_bytes());
        if !always && self.source.path().is_some_and(same) {
            self.refused = None;
            return;
        }
        match self.source.load() {
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
        if let Err(error) = self.renew_access_log(&settings) {
            tracing::error!(%error, "cannot open the access log");
            return self.fail("the access log cannot be opened");
        }
        for key in fixed_changes(&self.current.settings, &settings) {
            tracing::warn!("{key} has changed; that takes a restart");
        }
        let access_log = self.access_log.clone();
        let compiled = Compiled::new(settings, &self.hasher, &self.metrics, access_log);
        let compiled = Arc::new(compiled);
        self.workers.iter().for_each(|worker| worker.configure(compiled.clone()));
        self.current = loaded;
        self.refused = None;
        self.metrics.reloads.with_label_values(&["ok"]).inc();
        tracing::info!(
            routes = compiled.settings.routes.len(),
            limits = compiled.settings.limits.len(),
            "configuration reloaded",
        );
    }

    fn renew_access_log(&mut self, settings: &Settings) -> io::Result<()> {
        let target = &settings.telemetry.access_log;
        if *target == self.current.settings.telemetry.access_log {
            self.access_log.iter().for_each(Lines::reopen);
            return Ok(());
        }
        let (log, guard) = Lines::open(target)?.unzip();
        self.access_log = log;
        self.log_guards.extend(guard);
        Ok(())
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
        // `on_error` has become part of the limits.
        ("store", old.store.kind != new.store.kind || old.store.max_keys != new.store.max_keys),
    ];
    changes.into_iter().filter(|(_, changed)| *changed).map(|(key, _)| key).collect()
}
