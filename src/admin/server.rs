//! Accepting connections on the admin listener, and the bounds that keep it answering: on connections,
//! requests under way, their time, and what is not read of answers.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::HttpService;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceBuilder, ServiceExt};

use super::held_answers::HeldAnswers;
use super::{
    AdminBody, AdminResponse, AdminService, MAX_CONCURRENT, TIMEOUT, api_error, hosts, shared_port,
};

/// More connections than this wait to be accepted.
const MAX_CONNECTIONS: usize = 256;
/// As many of them may ask for `/v1`: the others are left to health checks and scrapers.
const MAX_API_CONNECTIONS: usize = 192;
/// How much of small answers is held for a client that pipelines and does not read.
const MAX_BUFFERED_BYTES: usize = 64 * 1024;
/// A connection takes no further request after this time, and is dropped if its last answer is not
/// out soon: a client that pipelines and does not read would stay for ever.
const MAX_CONNECTION_AGE: Duration = Duration::from_secs(30);

/// The running listener.
#[derive(Debug)]
pub(crate) struct AdminServer {
    phase: watch::Sender<ListenerPhase>,
    ended: tokio::task::JoinHandle<()>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ListenerPhase {
    Serving,
    /// Until another process listens there as well.
    Sharing,
    /// Only connections that are there.
    Closed,
    /// Not these either.
    Stopping,
}

impl AdminServer {
    /// Lets a successor bind the address, which then has it alone.
    pub(crate) fn share_port(&self) {
        let _ = self.phase.send(ListenerPhase::Sharing);
    }

    /// Leaves new connections to whoever has the same socket.
    pub(crate) fn stop_accepting(&self) {
        let _ = self.phase.send(ListenerPhase::Closed);
    }

    /// Ends it once the answers under way are out, or after a moment without.
    pub(crate) async fn stop(self) {
        let _ = self.phase.send(ListenerPhase::Stopping);
        let _ = tokio::time::timeout(Duration::from_secs(1), self.ended).await;
    }
}

type GuardedProbes =
    BoxCloneSyncService<(Request<Incoming>, Option<SocketAddr>), AdminResponse, BoxError>;

/// What answers the requests of all connections, within bounds on time, number and what is unread.
#[derive(Debug, Clone)]
struct BoundedService {
    admin: Arc<AdminService>,
    probes: GuardedProbes,
    api_connections: Arc<Semaphore>,
    api_answers: HeldAnswers,
    probe_answers: HeldAnswers,
}

/// A connection, as its requests see it.
#[derive(Debug)]
struct AdminConnection {
    local: Option<SocketAddr>,
    /// There once it has asked for `/v1`.
    api_permit: Mutex<Option<OwnedSemaphorePermit>>,
}

impl AdminConnection {
    /// Whether it is one of those that ask for `/v1`.
    fn may_ask_api(&self, permits: &Arc<Semaphore>) -> bool {
        let mut permit = self.api_permit.lock();
        if permit.is_none() {
            *permit = permits.clone().try_acquire_owned().ok();
        }
        permit.is_some()
    }
}

impl BoundedService {
    fn new(admin: Arc<AdminService>) -> Self {
        let of_probes = admin.clone();
        let respond = tower::service_fn(move |(request, local): (Request<Incoming>, _)| {
            let admin = of_probes.clone();
            async move { Ok::<_, Infallible>(admin.answer(request, local).await) }
        });
        let probes = ServiceBuilder::new()
            .load_shed()
            .concurrency_limit(MAX_CONCURRENT)
            .timeout(TIMEOUT)
            .service(respond);
        BoundedService {
            admin,
            probes: BoxCloneSyncService::new(probes),
            api_connections: Arc::new(Semaphore::new(MAX_API_CONNECTIONS)),
            api_answers: HeldAnswers::new(),
            probe_answers: HeldAnswers::new(),
        }
    }

    async fn answer(
        self,
        request: Request<Incoming>,
        connection: Arc<AdminConnection>,
    ) -> AdminResponse {
        let local = connection.local;
        if !request.uri().path().starts_with("/v1/") {
            let answer = self.probes.oneshot((request, local)).await;
            return self.probe_answers.admit(answer.unwrap_or_else(|_| api_error::too_many()));
        }
        if !connection.may_ask_api(&self.api_connections) {
            return api_error::too_many_connections();
        }
        let reading = hosts::is_reading(request.method());
        let answer = self.admin.answer_api(request, local).await;
        // What a change says is short, and has to be said.
        if reading { self.api_answers.admit(answer) } else { answer }
    }
}

/// Serves on the current runtime.
///
/// # Errors
/// If the listener cannot be watched.
pub(crate) fn start(listener: TcpListener, admin: Arc<AdminService>) -> io::Result<AdminServer> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let (phase, phases) = watch::channel(ListenerPhase::Serving);
    let bounded = BoundedService::new(admin);
    let ended = tokio::spawn(async move {
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut phase = phases.clone();
        loop {
            let accepted = tokio::select! {
                accepted = accept(&listener, &permits) => accepted,
                () = left_to_others(&listener, &mut phase) => break,
            };
            match accepted {
                Ok((stream, permit)) => serve_beside(stream, permit, &bounded, &phases),
                Err(error) => {
                    tracing::warn!(%error, "the admin listener cannot accept");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        // What waits in a socket of this process alone would be reset with it.
        let is_inherited = *phase.borrow() == ListenerPhase::Closed;
        while !is_inherited
            && let Some(Ok((stream, permit))) = accept(&listener, &permits).now_or_never()
        {
            serve_beside(stream, permit, &bounded, &phases);
        }
        drop(listener);
        // All of them are free when the last connection has ended.
        let _ = permits.acquire_many(MAX_CONNECTIONS as u32).await;
    });
    Ok(AdminServer { phase, ended })
}

/// Resolves when no more connections are to be accepted. It is cancel safe.
async fn left_to_others(
    listener: &tokio::net::TcpListener,
    phase: &mut watch::Receiver<ListenerPhase>,
) {
    let closed = |it: &ListenerPhase| *it >= ListenerPhase::Closed;
    let shared =
        phase.wait_for(|it| *it >= ListenerPhase::Sharing).await.is_ok_and(|it| !closed(&it));
    if shared && shared_port::share(listener).is_ok() {
        tokio::select! {
            () = shared_port::taken(listener) => {}
            _ = phase.wait_for(closed) => {}
        }
    } else {
        let _ = phase.wait_for(closed).await;
    }
}

/// The next connection, once there is a permit for it.
async fn accept(
    listener: &tokio::net::TcpListener,
    permits: &Arc<Semaphore>,
) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let permit = permits.clone().acquire_owned().await.map_err(io::Error::other)?;
    Ok((listener.accept().await?.0, permit))
}

/// Serves a connection in a task of its own.
fn serve_beside(
    stream: TcpStream,
    permit: OwnedSemaphorePermit,
    bounded: &BoundedService,
    phases: &watch::Receiver<ListenerPhase>,
) {
    // Telling HTTP/1 from HTTP/2 would read a first byte that no timer covers.
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(TIMEOUT);
    server.max_buf_size(MAX_BUFFERED_BYTES);
    let (local, api_permit) = (stream.local_addr().ok(), Mutex::default());
    let connection = Arc::new(AdminConnection { local, api_permit });
    let bounded = bounded.clone();
    let service = hyper::service::service_fn(move |request| {
        let answer = bounded.clone().answer(request, connection.clone());
        let answer = async move { Ok::<_, Infallible>(answer.await) };
        Box::pin(answer) as Pin<Box<dyn Future<Output = _> + Send>>
    });
    let served = server.serve_connection(TokioIo::new(stream), service);
    let phases = phases.clone();
    tokio::spawn(async move {
        serve(served, phases).await;
        drop(permit);
    });
}

/// Serves one connection to its end.
async fn serve<S>(
    connection: http1::Connection<TokioIo<TcpStream>, S>,
    mut phase: watch::Receiver<ListenerPhase>,
) where
    S: HttpService<Incoming, ResBody = AdminBody>,
    S::Error: Into<BoxError>,
{
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        () = tokio::time::sleep(MAX_CONNECTION_AGE) => None,
        _ = phase.wait_for(|it| *it == ListenerPhase::Stopping) => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            connection.as_mut().graceful_shutdown();
            tokio::time::timeout(TIMEOUT, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "an admin connection failed");
    }
}
