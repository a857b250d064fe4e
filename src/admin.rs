//! The admin listener: `/metrics`, `/healthz`, `/readyz`, and [`/v1`](api).
//!
//! It stands apart from the workers, on the main thread, so that neither can slow the other down;
//! what may take long is done on threads for that. It is shielded by tower's layers: a scraper that
//! hangs, or a hundred of them, cost an error for themselves.

pub mod api;
mod change;
mod hosts;
mod spellings;

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::sync::oneshot;
use tower::util::BoxCloneSyncService;
use tower::{ServiceBuilder, ServiceExt};

pub use api::Api;

use crate::listen::worker::Worker;
use crate::store;
use crate::telemetry::Metrics;

type Answer = Response<Full<Bytes>>;

const TIMEOUT: Duration = Duration::from_secs(10);
const AT_ONCE: usize = 32;
/// The largest body of a question.
const LARGEST: usize = 64 * 1024;
/// How long a scrape waits for a worker to add up its counts.
const FLUSH: Duration = Duration::from_millis(200);

/// What the admin listener can tell.
#[derive(Debug)]
pub struct Status {
    metrics: Metrics,
    store: store::Shared,
    workers: Arc<Vec<Worker>>,
    api: Arc<Api>,
    draining: AtomicBool,
}

impl Status {
    #[must_use]
    pub fn new(
        metrics: Metrics,
        store: store::Shared,
        workers: Arc<Vec<Worker>>,
        api: Arc<Api>,
    ) -> Self {
        Status { metrics, store, workers, api, draining: AtomicBool::new(false) }
    }

    /// From now on the gateway is not ready: it is about to leave.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    async fn answer(&self, request: Request<Incoming>, local: Option<SocketAddr>) -> Answer {
        let (parts, body) = request.into_parts();
        let (method, path) = (&parts.method, parts.uri.path());
        if let Err(refused) = self.api.hosts().admit(&parts, local) {
            return refused.answer();
        }
        if let Some(asked) = path.strip_prefix("/v1/") {
            // Whoever may not ask need not be listened to.
            if let Err(refused) = self.api.admits(method, &parts.headers) {
                return *refused;
            }
            let Ok(body) = Limited::new(body, LARGEST).collect().await else {
                return api::too_large();
            };
            // There may be thousands of overrides to go through, and this thread accepts connections.
            let (api, method, asked) = (self.api.clone(), method.clone(), asked.to_owned());
            let runtime = tokio::runtime::Handle::current();
            let body = body.to_bytes();
            let answered = move || runtime.block_on(api.answer(&method, &asked, body));
            return tokio::task::spawn_blocking(answered).await.unwrap_or_else(|error| {
                tracing::error!(%error, "a question to /v1 was not answered");
                json(StatusCode::INTERNAL_SERVER_ERROR, r#"{"error":"internal_error"}"#)
            });
        }
        if !matches!(path, "/metrics" | "/healthz" | "/readyz") {
            return json(StatusCode::NOT_FOUND, r#"{"error":"no_route"}"#);
        }
        if !matches!(*method, Method::GET | Method::HEAD) {
            let mut answer =
                json(StatusCode::METHOD_NOT_ALLOWED, r#"{"error":"method_not_allowed"}"#);
            answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return answer;
        }
        match path {
            "/metrics" => self.metrics().await,
            "/readyz" => self.ready(),
            _ => json(StatusCode::OK, r#"{"status":"ok"}"#),
        }
    }

    /// A gateway that serves by `on_error` is ready: all of them do, when the store fails.
    fn ready(&self) -> Answer {
        let (code, status) = if self.draining.load(Ordering::Acquire) {
            (StatusCode::SERVICE_UNAVAILABLE, "draining")
        } else if self.store.is_degraded() {
            (StatusCode::OK, "degraded")
        } else {
            (StatusCode::OK, "ready")
        };
        let reason = self.store.failure().filter(|_| status == "degraded");
        let reason = reason.map_or(String::new(), |reason| format!(r#","reason":"{reason}""#));
        let text = format!(r#"{{"status":"{status}","store":"{}"{reason}}}"#, self.store.kind());
        answer(code, "application/json", text.into())
    }

    async fn metrics(&self) -> Answer {
        for flushed in self.workers.iter().map(Worker::flush) {
            // One that has no time for it is counted a scrape later.
            let _ = tokio::time::timeout(FLUSH, flushed).await;
        }
        let buckets = self.store.memory().buckets();
        self.metrics.buckets.set(gauge(buckets.own + buckets.overflow));
        self.metrics.buckets_overflow.set(gauge(buckets.overflow));
        self.metrics.connections.set(gauge(self.workers.iter().map(Worker::load).sum()));
        // Thousands of limits make megabytes of text, and this thread accepts connections.
        let metrics = self.metrics.clone();
        match tokio::task::spawn_blocking(move || metrics.render()).await {
            Ok(Ok(text)) => answer(StatusCode::OK, "text/plain; version=0.0.4", text.into()),
            Ok(Err(error)) => unrendered(&error),
            Err(panicked) => unrendered(&panicked),
        }
    }
}

fn unrendered(error: &(dyn std::error::Error + 'static)) -> Answer {
    tracing::error!(error, "metrics cannot be rendered");
    json(StatusCode::INTERNAL_SERVER_ERROR, r#"{"error":"internal_error"}"#)
}

fn gauge(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn json(status: StatusCode, text: &'static str) -> Answer {
    answer(status, "application/json", Bytes::from_static(text.as_bytes()))
}

fn answer(status: StatusCode, kind: &'static str, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// The running listener.
#[derive(Debug)]
pub struct Admin {
    stop: oneshot::Sender<()>,
    ended: tokio::task::JoinHandle<()>,
}

impl Admin {
    /// Ends it once the answers under way are out, or after a moment without.
    pub async fn stop(self) {
        let _ = self.stop.send(());
        let _ = tokio::time::timeout(Duration::from_secs(1), self.ended).await;
    }
}

/// Serves on the current runtime.
///
/// # Errors
/// If the listener cannot be watched.
pub fn start(listener: TcpListener, status: Arc<Status>) -> io::Result<Admin> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let (stop, mut stopped) = oneshot::channel();
    let respond = tower::service_fn(move |(request, local): (Request<Incoming>, _)| {
        let status = status.clone();
        async move { Ok::<_, Infallible>(status.answer(request, local).await) }
    });
    let shielded = ServiceBuilder::new()
        .load_shed()
        .concurrency_limit(AT_ONCE)
        .timeout(TIMEOUT)
        .service(respond);
    let shielded = BoxCloneSyncService::new(shielded);
    let answered = move |request, local| {
        let answer = shielded.clone().oneshot((request, local));
        let busy = |_| json(StatusCode::SERVICE_UNAVAILABLE, r#"{"error":"overloaded"}"#);
        let answer = async move { Ok::<_, Infallible>(answer.await.unwrap_or_else(busy)) };
        Box::pin(answer) as Pin<Box<dyn Future<Output = _> + Send>>
    };
    let ended = tokio::spawn(async move {
        // Who has to be told versions apart may keep silent for ever: no timer covers that.
        let mut server = auto::Builder::new(TokioExecutor::new()).http1_only();
        server.http1().timer(TokioTimer::new()).header_read_timeout(TIMEOUT);
        let connections = GracefulShutdown::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = &mut stopped => break,
            };
            match accepted {
                Ok((stream, _)) => {
                    let (answered, local) = (answered.clone(), stream.local_addr().ok());
                    let service =
                        hyper::service::service_fn(move |request| answered(request, local));
                    let served = server.serve_connection(TokioIo::new(stream), service);
                    let served = connections.watch(served.into_owned());
                    tokio::spawn(async move {
                        if let Err(error) = served.await {
                            tracing::debug!(error, "an admin connection failed");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "the admin listener cannot accept");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
        drop(listener);
        connections.shutdown().await;
    });
    Ok(Admin { stop, ended })
}
