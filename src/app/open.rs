//! The first part of a run: everything that can fail is bound, opened, read or started.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use super::AppError;
use super::external::{ExternalState, RunTimeState};
use super::logs::Logs;
use crate::config::LoadedConfig;
use crate::config::settings::Settings;
use crate::gateway::{Compiled, Gateway, ProcessShared, ServedConfig};
use crate::guards::{GuardSharing, GuardTable};
use crate::listen::acceptor;
use crate::listen::worker::Worker;
use crate::store::{self, OpenedStore, StoreContext};
use crate::telemetry::Metrics;
use crate::trust::TrustTable;

/// A gateway that is ready to serve. Its workers run and have nothing to do yet.
pub(super) struct OpenedGateway {
    pub(super) settings: Arc<Settings>,
    /// What the gateway is called in `Via`, in metrics and in a shared store.
    pub(super) node: String,
    pub(super) data_listeners: Vec<TcpListener>,
    pub(super) admin_listener: TcpListener,
    pub(super) metrics: Metrics,
    pub(super) logs: Logs,
    pub(super) store: OpenedStore,
    pub(super) guards: Arc<GuardTable>,
    pub(super) external_state: ExternalState,
    pub(super) compiled: Compiled,
    /// The same as workers have it.
    pub(super) served: ServedConfig,
    pub(super) workers: Arc<Vec<Worker>>,
}

impl OpenedGateway {
    pub(super) fn open(loaded: &LoadedConfig) -> Result<Self, AppError> {
        let settings = Arc::new(loaded.settings.clone());
        let data_listeners = settings
            .server
            .listen
            .iter()
            .map(|&address| bind(address, "server.listen"))
            .collect::<Result<Vec<_>, _>>()?;
        let admin_listener = bind(settings.admin.listen, "admin.listen")?;

        let metrics = Metrics::new();
        let node = random_node_name()?;
        metrics.set_build_info(&node);
        let count = match settings.server.workers {
            0 => std::thread::available_parallelism()?.get(),
            count => count,
        };
        let logs = Logs::open(&settings.telemetry, &metrics)?;
        let context =
            StoreContext { workers: count, node: &node, metrics: &metrics, audit: &logs.audit };
        let store = store::open(&settings.store, context).map_err(AppError::Randomness)?;
        store.control.share_overrides(&store.overrides);
        store.control.share_tenants(&store.tenants);
        let guards = GuardTable::new(settings.store.max_keys, store.control.is_shared());
        guards.configure(&settings.guards);
        let now = store.control.clock().now();
        for notice in &store.penalties {
            if let Some(id) = notice.kept_id() {
                guards.apply_notice(id, notice, now);
            }
        }
        let guards = Arc::new(guards);
        store.control.share_guards(GuardSharing {
            table: guards.clone(),
            hasher: store.hasher.clone(),
            metrics: metrics.clone(),
            audit: logs.audit.clone(),
        });
        let scores = &metrics.user_scores;
        let (max_users, reports) = (settings.store.max_keys, store.control.is_shared());
        let trust = TrustTable::new(max_users, reports, scores, store.control.clock());
        trust.restore(&store.users);
        let trust = Arc::new(trust);
        store.control.share_trust(&trust);
        let (overrides, tenants) = (store.overrides.clone(), store.tenants.clone());
        let run_time = RunTimeState { overrides, tenants };
        let mut external_state = ExternalState::load(&settings, run_time)?;
        let external = external_state.snapshot(&settings);
        let access_log = logs.access.clone();
        let compiled =
            Compiled::new(settings.clone(), &store.hasher, &metrics, access_log, external);
        let served = compiled.served();
        let mut token_secret = [0; 16];
        getrandom::fill(&mut token_secret).map_err(AppError::Randomness)?;
        let shared = ProcessShared {
            queues: Arc::default(),
            via: node.as_str().into(),
            token_secret,
            guards: guards.clone(),
            trust,
            audit: logs.audit.clone(),
        };
        let workers = start_workers(count, &store, &shared, &served)?;
        Ok(OpenedGateway {
            settings,
            node,
            data_listeners,
            admin_listener,
            metrics,
            logs,
            store,
            guards,
            external_state,
            compiled,
            served,
            workers: Arc::new(workers),
        })
    }
}

/// Unique, so that `Via` tells a loop from two gateways in a row, and gateways that share a store
/// can count each other.
fn random_node_name() -> Result<String, AppError> {
    let mut id = [0; 4];
    getrandom::fill(&mut id).map_err(AppError::Randomness)?;
    Ok(format!("weir-{:08x}", u32::from_ne_bytes(id)))
}

fn bind(address: SocketAddr, key: &'static str) -> Result<TcpListener, AppError> {
    acceptor::bind(address).map_err(|source| AppError::Bind { address, key, source })
}

fn start_workers(
    count: usize,
    store: &OpenedStore,
    shared: &ProcessShared,
    served: &ServedConfig,
) -> Result<Vec<Worker>, AppError> {
    let start = |index| {
        let (store, hasher) = (store.control.clone(), store.hasher.clone());
        let (shared, for_gateway) = (shared.clone(), served.clone());
        let gateway = move || Gateway::new(store, hasher, shared, for_gateway);
        Ok(Worker::start(index, gateway, served.compiled.clone())?)
    };
    (0..count).map(start).collect()
}
