//! The second part of a run: serving until a signal comes, or a successor.

use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::control::ControlThread;
use super::open::OpenedGateway;
use super::reload::{Reloader, ReloaderParts};
use super::takeover::{STORE_TIME, Successor, TakeoverError, TakeoverOffer};
use super::{AppError, service_manager};
use crate::admin::{self, AdminApi, AdminServer, AdminService};
use crate::config::{ConfigSource, LoadedConfig, admin_summary, store_summary};
use crate::listen::acceptor::{self, ConnectionLimit};
use crate::listen::worker::Worker;
use crate::shutdown::{Signal, Signals};
use crate::store::{OpenedStore, StoreControl};
use crate::upstream::HealthChecks;

/// File descriptors kept for everything that is not a connection.
const RESERVED_FILES: u64 = 64;
/// How often a store is looked at that cannot be reached.
const STORE_POLL: Duration = Duration::from_millis(50);
/// Less room than this is worth a warning.
const FEW_CONNECTIONS: usize = 512;

/// A gateway that takes requests.
pub(super) struct RunningGateway {
    pub(super) signals: Signals,
    pub(super) acceptors: JoinSet<io::Result<()>>,
    pub(super) stop_accepting: watch::Sender<bool>,
    pub(super) workers: Arc<Vec<Worker>>,
    pub(super) store: Arc<dyn StoreControl>,
    pub(super) api: Arc<AdminApi>,
    pub(super) admin_service: Arc<AdminService>,
    pub(super) admin_server: AdminServer,
    pub(super) control: ControlThread,
    /// Where another process may ask to take over.
    pub(super) takeover: Option<TakeoverOffer>,
}

/// Why a gateway stops serving.
#[derive(Debug)]
pub(super) enum Ending {
    Signal,
    /// This process has the sockets, and waits to be told that it may accept.
    TakenOver(Successor),
}

impl RunningGateway {
    pub(super) async fn start(
        opened: OpenedGateway,
        mut signals: Signals,
        source: &ConfigSource,
        loaded: LoadedConfig,
    ) -> Result<Self, AppError> {
        let OpenedGateway { settings, node, metrics, logs, external_state, workers, .. } = opened;
        let OpenedStore { control: store, hasher, .. } = opened.store;
        let run_time = external_state.run_time().clone();
        let (stop_accepting, stopping) = watch::channel(false);
        let (audit, shared) = (logs.audit.clone(), store.clone());
        let (guards, about) = (opened.guards.clone(), run_time.clone());
        let api = Arc::new(AdminApi::new(
            about.overrides,
            about.tenants,
            guards,
            opened.upstreams.clone(),
            shared,
            audit,
            settings.clone(),
        ));
        let admin_service =
            AdminService::new(metrics.clone(), store.clone(), workers.clone(), api.clone());
        let admin_service = Arc::new(admin_service);
        let max_connections = connection_limit(settings.server.max_connections);
        // Before anything is accepted, so that the first request finds the store in use.
        store.clone().start().await;
        let took_over = opened.predecessor.is_some();
        if let Some(predecessor) = opened.predecessor {
            wait_for_store(&*store, &mut signals).await?;
            if let Some(departing) = predecessor.replace()? {
                departing.inherit_slots(store.clone());
            }
        }
        let takeover = match opened.takeover {
            Some(prepared) => {
                let admin = opened.admin_listener.as_fd().try_clone_to_owned();
                let open = opened.open_listeners.iter();
                let data = open.map(|(socket, _)| socket.as_fd().try_clone_to_owned());
                let sockets = data.chain([admin]).collect::<io::Result<Vec<_>>>()?;
                Some(prepared.publish(sockets, store.clone())?)
            }
            None => None,
        };
        let mut acceptors = JoinSet::new();
        for (socket, listener) in opened.open_listeners {
            tracing::info!("listening on {}", listener.url());
            let (workers, stopping) = (workers.clone(), stopping.clone());
            let rejected = metrics.turned_away.clone();
            let limit = ConnectionLimit { max_connections, rejected };
            acceptors.spawn(acceptor::accept(socket, listener, workers, limit, stopping));
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
        // Probes run here: compiling a large configuration would hold them up on the control thread.
        let runtime = tokio::runtime::Handle::current();
        let health = HealthChecks::new(runtime, opened.upstreams.clone(), &metrics);
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
            upstreams: opened.upstreams,
            listeners: opened.data_listeners,
            health,
        });
        let file = source.path().map(Path::to_owned);
        let control = ControlThread::start(reloader, file, run_time)?;
        service_manager::ready(took_over);
        service_manager::start_watchdog(&workers);
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
            takeover,
        })
    }

    /// Resolves with the signal to stop, once `drain_delay` is over, or with a successor. Meanwhile
    /// configurations are reloaded.
    pub(super) async fn serve_until_ended(&mut self) -> Ending {
        let mut leaving: Option<Instant> = None;
        loop {
            let delay_over = async {
                match leaving {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            let successor = async {
                match &mut self.takeover {
                    Some(offer) => offer.successor().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                signal = self.signals.next() => match signal {
                    Signal::Reload => self.control.reload(),
                    Signal::Stop => {
                        let delay = self.api.settings().server.drain_delay;
                        self.admin_service.drain();
                        service_manager::stopping("leaving");
                        if leaving.is_some() || delay.is_zero() {
                            return Ending::Signal;
                        }
                        tracing::info!(
                            "not ready any more; requests are taken for another {delay:?}, or until \
                             a second signal"
                        );
                        leaving = Instant::now().checked_add(delay);
                    }
                },
                () = delay_over => return Ending::Signal,
                successor = successor => return Ending::TakenOver(successor),
            }
        }
    }
}

/// A gateway that takes over without its store would have full buckets for everybody, while the one
/// before it may well reach the store.
async fn wait_for_store(
    store: &dyn StoreControl,
    signals: &mut Signals,
) -> Result<(), TakeoverError> {
    let until = Instant::now() + STORE_TIME;
    while store.is_degraded() {
        let look_again = (Instant::now() + STORE_POLL).min(until);
        let is_stopped = tokio::select! {
            signal = signals.next() => signal == Signal::Stop,
            () = tokio::time::sleep_until(look_again) => false,
        };
        if is_stopped || Instant::now() >= until {
            return Err(TakeoverError::StoreUnreachable(store.degraded_reason()));
        }
    }
    Ok(())
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
    if configured > room {
        let files = 2 * configured as u64 + RESERVED_FILES;
        tracing::warn!(
            "the limit on open files is too low for {configured} connections (server.max_connections), \
             which need two each; raise it to {files} with ulimit -n"
        );
    } else if configured == 0 && room < FEW_CONNECTIONS {
        tracing::warn!(
            "the limit on open files leaves room for {room} connections; raise it with ulimit -n"
        );
    }
    if configured == 0 { room } else { configured }
}
