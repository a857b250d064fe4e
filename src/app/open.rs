//! The first part of a run: everything that can fail is bound, opened, read or started.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use super::AppError;
use super::external::{ExternalState, RunTimeState};
use super::inherited::InheritedSockets;
use super::listeners::{DataListeners, OpenListener};
use super::logs::Logs;
use super::takeover::{Predecessor, PreparedOffer};
use crate::admin;
use crate::config::LoadedConfig;
use crate::config::settings::{ListenAddress, Settings};
use crate::gateway::{Compiled, Gateway, ProcessShared, ServedConfig};
use crate::guards::{GuardSharing, GuardTable};
use crate::listen::address_count::AddressCounts;
use crate::listen::worker::Worker;
use crate::store::{self, OpenedStore, StoreContext};
use crate::telemetry::Metrics;
use crate::trust::TrustTable;
use crate::upstream::SharedUpstreams;

/// A gateway that is ready to serve. Its workers run and have nothing to do yet.
pub(super) struct OpenedGateway {
    pub(super) settings: Arc<Settings>,
    /// What the gateway is called in `Via`, in metrics and in a shared store.
    pub(super) node: String,
    pub(super) open_listeners: Vec<OpenListener>,
    pub(super) data_listeners: DataListeners,
    pub(super) admin_listener: TcpListener,
    /// Where a successor may ask for these two.
    pub(super) takeover: Option<PreparedOffer>,
    /// The gateway that is to leave once this one is ready.
    pub(super) predecessor: Option<Predecessor>,
    pub(super) metrics: Metrics,
    pub(super) logs: Logs,
    pub(super) store: OpenedStore,
    pub(super) guards: Arc<GuardTable>,
    pub(super) upstreams: Arc<SharedUpstreams>,
    pub(super) external_state: ExternalState,
    pub(super) compiled: Compiled,
    /// The same as workers have it.
    pub(super) served: ServedConfig,
    pub(super) workers: Arc<Vec<Worker>>,
}

impl OpenedGateway {
    pub(super) fn open(
        loaded: &LoadedConfig,
        mut inherited: InheritedSockets,
        predecessor: Option<Predecessor>,
    ) -> Result<Self, AppError> {
        let mut settings = loaded.settings.clone();
        let replacing = predecessor.is_some();
        // First of all: a gateway that runs has the other addresses as well, and can be replaced.
        let takeover = settings.server.takeover.as_deref();
        let takeover = takeover.map(|path| PreparedOffer::bind(path, replacing)).transpose()?;
        let configured = tcp_addresses(&settings);
        let bound = DataListeners::bind(&mut settings.server, &mut inherited);
        let (open_listeners, data_listeners) =
            bound.map_err(|error| explained(error, &inherited, &configured))?;
        let settings = Arc::new(settings);
        let admin_listener = match inherited.take_tcp(settings.admin.listen) {
            Some(listener) => listener,
            None => bind_admin(settings.admin.listen)
                .map_err(|error| explained(error, &inherited, &configured))?,
        };
        inherited.close_unclaimed()?;

        let metrics = Metrics::new();
        let node = random_node_name()?;
        metrics.set_build_info(&node);
        data_listeners.show_certificates(&metrics);
        let count = match settings.server.workers {
            0 => std::thread::available_parallelism()?.get(),
            count => count,
        };
        let logs = Logs::open(&settings.telemetry, &metrics, &node)?;
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
        let recorder = logs.recorder(&settings.telemetry);
        let compiled = Compiled::new(settings.clone(), &store.hasher, &metrics, recorder, external);
        let served = compiled.served();
        let upstreams = Arc::new(SharedUpstreams::new(&metrics));
        let mut token_secret = [0; 16];
        getrandom::fill(&mut token_secret).map_err(AppError::Randomness)?;
        let shared = ProcessShared {
            queues: Arc::default(),
            via: node.as_str().into(),
            token_secret,
            guards: guards.clone(),
            trust,
            audit: logs.audit.clone(),
            upstreams: upstreams.clone(),
            in_flight: Arc::default(),
        };
        let workers =
            start_workers(count, &store, &shared, &served, &data_listeners.address_counts)?;
        Ok(OpenedGateway {
            settings,
            node,
            open_listeners,
            data_listeners,
            admin_listener,
            takeover,
            predecessor,
            metrics,
            logs,
            store,
            guards,
            upstreams,
            external_state,
            compiled,
            served,
            workers: Arc::new(workers),
        })
    }
}

fn tcp_addresses(settings: &Settings) -> Vec<SocketAddr> {
    let data = settings.server.listen.iter().filter_map(|it| match it.address {
        ListenAddress::Tcp(address) => Some(address),
        ListenAddress::Unix { .. } => None,
    });
    data.chain([settings.admin.listen]).collect()
}

/// An address is often in use because the socket unit has opened another one of its port.
fn explained(error: AppError, inherited: &InheritedSockets, configured: &[SocketAddr]) -> AppError {
    match &error {
        AppError::Bind { address: ListenAddress::Tcp(address), source, .. }
            if source.kind() == io::ErrorKind::AddrInUse =>
        {
            inherited.in_the_way(*address, configured).map_or(error, AppError::from)
        }
        _ => error,
    }
}

/// Unique, so that `Via` tells a loop from two gateways in a row, and gateways that share a store
/// can count each other.
fn random_node_name() -> Result<String, AppError> {
    let mut id = [0; 4];
    getrandom::fill(&mut id).map_err(AppError::Randomness)?;
    Ok(format!("weir-{:08x}", u32::from_ne_bytes(id)))
}

fn bind_admin(address: SocketAddr) -> Result<TcpListener, AppError> {
    let key = "admin.listen";
    let named = ListenAddress::Tcp(address);
    admin::bind(address).map_err(|source| AppError::Bind { address: named, key, source })
}

fn start_workers(
    count: usize,
    store: &OpenedStore,
    shared: &ProcessShared,
    served: &ServedConfig,
    counts: &Arc<AddressCounts>,
) -> Result<Vec<Worker>, AppError> {
    let start = |index| {
        let (store, hasher) = (store.control.clone(), store.hasher.clone());
        let (shared, for_gateway) = (shared.clone(), served.clone());
        let gateway = move || Gateway::new(store, hasher, shared, for_gateway);
        Ok(Worker::start(index, gateway, served.compiled.clone(), counts.clone())?)
    };
    (0..count).map(start).collect()
}
