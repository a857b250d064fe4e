//! Assembly: from a checked configuration to a running gateway, through its reloads, to its end.

mod control;
pub mod logs;
pub mod outside;
pub mod reload;
pub mod snapshots;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::admin::{self, Api, Status};
use crate::clock::Clock;
use crate::config::settings::{self, StoreKind};
use crate::config::{Loaded, Source, admin_summary, store_summary};
use crate::gateway::{Compiled, Gateway, Queues};
use crate::listen::acceptor::{self, Room};
use crate::listen::worker::Worker;
use crate::rulings::Book;
use crate::shutdown::{Signal, Signals};
use crate::store::{self, BucketHasher};
use crate::telemetry::{Audit, Metrics};
use control::Control;
use logs::{LogError, Logs};
use outside::{OutsideError, Surroundings};
use reload::Reloader;
use snapshots::Snapshots;

/// File descriptors kept for everything that is not a connection.
const RESERVED_FILES: u64 = 64;
/// Less room than this is worth a warning.
const FEW_CONNECTIONS: usize = 512;

#[derive(Debug, thiserror::Error)]
pub enum AppError {
    #[error("cannot listen on {address} ({key}): {source}; {}", advice(.source))]
    Bind { address: SocketAddr, key: &'static str, source: io::Error },
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Outside(#[from] OutsideError),
    #[error("the system gives no randomness: {0}")]
    Randomness(getrandom::Error),
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "stop the program that has it, or choose another port",
        io::ErrorKind::AddrNotAvailable => "this machine does not have that address",
        io::ErrorKind::PermissionDenied => "ports below 1024 need a privilege; choose a higher one",
        _ => "choose another address",
    }
}

/// Runs until a signal ends it.
///
/// # Errors
/// If the gateway cannot start.
pub fn run(source: &Source, loaded: Loaded) -> Result<(), AppError> {
    let settings = Arc::new(loaded.settings.clone());
    let data = settings
        .server
        .listen
        .iter()
        .map(|&address| bind(address, "server.listen"))
        .collect::<Result<Vec<_>, _>>()?;
    let admin = bind(settings.admin.listen, "admin.listen")?;

    let metrics = Metrics::new();
    // A name of its own, so that a loop is told from two gateways in a row, and that others who
    // share the store can count this one.
    let mut id = [0; 4];
    getrandom::fill(&mut id).map_err(AppError::Randomness)?;
    let node = format!("weir-{:08x}", u32::from_ne_bytes(id));
    metrics.introduce(&node);
    let count = match settings.server.workers {
        0 => std::thread::available_parallelism()?.get(),
        count => count,
    };
    let logs = Logs::open(&settings.telemetry)?;
    let Opened { store, hasher, book, snapshots } =
        open_store(&settings.store, count, &node, &metrics, &logs.audit)?;
    store.share(&book);
    let surroundings = Surroundings::of(&settings, book.clone())?;
    let outside = surroundings.outside();
    let access_log = logs.access.clone();
    let compiled = Compiled::new(settings.clone(), &hasher, &metrics, access_log, outside);
    let compiled = Arc::new(compiled);
    let workers = Arc::new(start_workers(count, &store, &hasher, &node, &compiled)?);

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let mut signals = Signals::listen()?;
        let (stop, stopping) = watch::channel(false);
        let api = (book.clone(), store.clone());
        let api = Arc::new(Api::new(api, logs.audit.clone(), settings.clone()));
        let status = Status::new(metrics.clone(), store.clone(), workers.clone(), api.clone());
        let status = Arc::new(status);
        let max_connections = connection_limit(settings.server.max_connections);
        // Before the first request comes: it is to find the store in use, if there is one.
        store.begin().await;
        let snapshots = snapshots.map(Snapshots::start);
        let mut acceptors = tokio::task::JoinSet::new();
        for listener in data {
            tracing::info!("listening on http://{}", listener.local_addr()?);
            let (workers, stopping) = (workers.clone(), stopping.clone());
            let turned_away = metrics.turned_away.clone();
            let room = Room { max_connections, turned_away };
            acceptors.spawn(acceptor::accept(listener, workers, room, stopping));
        }
        let only = admin_summary(&settings.admin);
        tracing::info!("admin on http://{}{only}", admin.local_addr()?);
        let admin = admin::start(admin, status.clone())?;
        tracing::info!(
            "{node}: store {}{}; {} workers, at most {max_connections} connections; \
             configuration {source}",
            store_summary(&settings.store),
            if store.is_degraded() { ", out of reach" } else { "" },
            workers.len(),
        );
        let reloader = Reloader::new(
            source.clone(),
            loaded,
            (workers.clone(), compiled),
            hasher,
            metrics,
            (store.clone(), logs, surroundings, api.clone()),
        );
        let control = Control::start(reloader, source.path().map(Path::to_owned), book)?;
        while signals.next().await == Signal::Reload {
            control.reload();
        }

        status.drain();
        let drain = api.settings().server.drain;
        let until = Instant::now() + drain;
        tracing::info!("draining for at most {drain:?}; a second signal ends at once");
        let _ = stop.send(true);
        while acceptors.join_next().await.is_some() {}
        workers.iter().for_each(|worker| worker.drain(until));
        tokio::select! {
            () = ended(&workers) => tracing::info!("drained"),
            () = stop_again(&mut signals) => tracing::warn!("ended before everything was drained"),
        }
        if let Some(snapshots) = snapshots {
            snapshots.finish().await;
        }
        store.leave().await;
        admin.stop().await;
        control.stop();
        Ok(())
    });
    // Somebody may still be asking for the address of a name.
    runtime.shutdown_background();
    ended
}

fn bind(address: SocketAddr, key: &'static str) -> Result<TcpListener, AppError> {
    acceptor::bind(address).map_err(|source| AppError::Bind { address, key, source })
}

/// The store as a start finds it, and what goes with it.
struct Opened {
    store: store::Shared,
    hasher: BucketHasher,
    book: Arc<Book>,
    snapshots: Option<Snapshots>,
}

fn open_store(
    settings: &settings::Store,
    workers: usize,
    node: &str,
    metrics: &Metrics,
    audit: &Audit,
) -> Result<Opened, AppError> {
    match &settings.kind {
        StoreKind::Memory => {
            let opened = snapshots::open(settings, Clock::system());
            let snapshots::Opened { store, hasher, book, snapshots } =
                opened.map_err(AppError::Randomness)?;
            Ok(Opened { store: store::Shared::Memory(store), hasher, book, snapshots })
        }
        StoreKind::Redis(redis) => {
            // Fails if somebody has chosen already, which is as good.
            let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
            let (node, audit) = (node.to_owned(), audit.clone());
            let shared = store::redis::Shared::new(redis, settings, workers, node, metrics, audit);
            let hasher = BucketHasher::random().map_err(AppError::Randomness)?;
            let (store, book) = (store::Shared::Redis(Arc::new(shared)), Arc::default());
            Ok(Opened { store, hasher, book, snapshots: None })
        }
    }
}

fn start_workers(
    count: usize,
    store: &store::Shared,
    hasher: &BucketHasher,
    node: &str,
    compiled: &Arc<Compiled>,
) -> Result<Vec<Worker>, AppError> {
    let via: Arc<str> = node.into();
    let queues = Arc::new(Queues::default());
    let mut tokens = [0; 16];
    getrandom::fill(&mut tokens).map_err(AppError::Randomness)?;
    let start = |index| {
        let (store, hasher) = (store.clone(), hasher.clone());
        let (shared, for_gateway) = ((queues.clone(), via.clone(), tokens), compiled.clone());
        let gateway = move || Gateway::new(&store, hasher, shared, for_gateway);
        Ok(Worker::start(index, gateway, compiled.clone())?)
    };
    (0..count).map(start).collect()
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

async fn ended(workers: &[Worker]) {
    let mut check = tokio::time::interval(Duration::from_millis(10));
    while !workers.iter().all(Worker::is_finished) {
        check.tick().await;
    }
}

async fn stop_again(signals: &mut Signals) {
    while signals.next().await != Signal::Stop {}
}
