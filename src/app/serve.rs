//! The second and the third part of a run: serving until a signal comes, and draining.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::AppError;
use super::control::ControlThread;
use super::open::OpenedGateway;
use super::reload::{Reloader, ReloaderParts};
use crate::admin::{self, AdminApi, AdminServer, AdminService};
use crate::config::{ConfigSource, LoadedConfig, admin_summary, store_summary};
use crate::listen::acceptor::{self, ConnectionLimit};
use crate::listen::worker::Worker;
use crate::shutdown::{Signal, Signals};
use crate::store::{OpenedStore, StoreControl};

/// File descriptors kept for everything that is not a connection.
const RESERVED_FILES: u64 = 64;
/// Less room than this is worth a warning.
const FEW_CONNECTIONS: usize = 512;

/// A gateway that takes requests.
pub(super) struct RunningGateway {
    signals: Signals,
    acceptors: JoinSet<io::Result<()>>,
    stop_accepting: watch::Sender<bool>,
    workers: Arc<Vec<Worker>>,
    store: Arc<dyn StoreControl>,
    api: Arc<AdminApi>,
    admin_service: Arc<AdminService>,
    admin_server: AdminServer,
    control: ControlThread,
}

impl RunningGateway {
    pub(super) async fn start(
        opened: OpenedGateway,
        source: &ConfigSource,
        loaded: LoadedConfig,
    ) -> Result<Self, AppError> {
        let OpenedGateway { settings, node, metrics, logs, external_state, workers, .. } = opened;
        let OpenedStore { control: store, hasher, .. } = opened.store;
        let run_time = external_state.run_time().clone();
        let signals = Signals::listen()?;
        let (stop_accepting, stopping) = watch::channel(false);
        let (audit, shared) = (logs.audit.clone(), store.clone());
        let (guards, about) = (opened.guards.clone(), run_time.clone());
        let api =
            AdminApi::new(about.overrides, about.tenants, guards, shared, audit, settings.clone());
        let api = Arc::new(api);
        let admin_service =
            AdminService::new(metrics.clone(), store.clone(), workers.clone(), api.clone());
        let admin_service = Arc::new(admin_service);
        let max_connections = connection_limit(settings.server.max_connections);
        // Before anything is accepted, so that the first request finds the store in use.
        store.clone().start().await;
        let mut acceptors = JoinSet::new();
        for listener in opened.data_listeners {
            tracing::info!("listening on http://{}", listener.local_addr()?);
            let (workers, stopping) = (workers.clone(), stopping.clone());
            let rejected = metrics.turned_away.clone();
            let limit = ConnectionLimit { max_connections, rejected };
            acceptors.spawn(acceptor::accept(listener, workers, limit, stopping));
        }
        let only = admin_summary(&settings.admin);
        tracing::info!("admin on http://{}{only}", opened.admin_listener.local_addr()?);
        let admin_server = admin::start(opened.admin_listener, admin_service.clone())?;
        tracing::info!(
            "{node}: store {}{}; {} workers, at most {max_connections} connections; \
             configuration {source}",
            store_summary(&settings.store),
            if store.is_degraded() { ", out of reach" } else { "" },
            workers.len(),
        );
        let reloader = Reloader::new(ReloaderParts {
            source: source.clone(),
            current: loaded,
            workers: workers.clone(),
            compiled: opened.compiled,
            served: opened.served,
            hasher,
            metrics,
            store: store.clone(),
            logs,
            external_state,
            api: api.clone(),
            guards: opened.guards,
        });
        let file = source.path().map(Path::to_owned);
        let control = ControlThread::start(reloader, file, run_time)?;
        Ok(RunningGateway {
            signals,
            acceptors,
            stop_accepting,
            workers,
            store,
            api,
            admin_service,
            admin_server,
            control,
        })
    }

    /// Resolves with the first signal to stop.
    pub(super) async fn reload_until_stopped(&mut self) {
        while self.signals.next().await == Signal::Reload {
            self.control.reload();
        }
    }

    /// Connections end first, then the store, then the admin listener, which answers `/readyz` until
    /// everything else is over.
    pub(super) async fn drain(mut self) {
        self.admin_service.drain();
        let drain = self.api.settings().server.drain;
        let until = Instant::now() + drain;
        tracing::info!("draining for at most {drain:?}; a second signal ends at once");
        let _ = self.stop_accepting.send(true);
        while self.acceptors.join_next().await.is_some() {}
        self.workers.iter().for_each(|worker| worker.drain(until));
        tokio::select! {
            () = workers_ended(&self.workers) => tracing::info!("drained"),
            () = second_stop(&mut self.signals) => {
                tracing::warn!("ended before everything was drained");
            }
        }
        self.store.leave().await;
        self.admin_server.stop().await;
        self.control.stop();
    }
}

/// As many connections as configured, or as file descriptors allow: a proxied one needs two.
fn connection_limit(configured: usize) -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let files = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: files.maximum, maximum: files.maximum };
    let allowed = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => files.maximum,
        Err(_) => files.current,
    };
    let room = allowed.map_or(usize::MAX, |files| {
        let left = files - RESERVED_FILES.min(files / 4);
        usize::try_from(left / 2).unwrap_or(usize::MAX).max(1)
    });
    let wanted = if configured == 0 { FEW_CONNECTIONS } else { configured };
    if room < wanted {
        tracing::warn!(
            "the limit on open files leaves room for {room} connections; raise it with ulimit -n"
        );
    }
    if configured == 0 { room } else { configured }
}

async fn workers_ended(workers: &[Worker]) {
    let mut check = tokio::time::interval(Duration::from_millis(10));
    while !workers.iter().all(Worker::is_finished) {
        check.tick().await;
    }
}

async fn second_stop(signals: &mut Signals) {
    while signals.next().await != Signal::Stop {}
}
