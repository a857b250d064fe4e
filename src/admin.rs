//! The admin listener: `/metrics`, `/healthz`, `/readyz`, and [`/v1`](api).
//!
//! It stands apart from the workers, on the main thread, so that neither can slow the other down;
//! what may take long is done on threads for that. It is shielded by tower's layers: a scraper that
//! hangs, or a hundred of them, cost an error for themselves.

mod api;
mod api_error;
mod held_answers;
mod hosts;
mod json_body;
mod override_request;
mod overshoot;
mod page_size;
mod path_parts;
mod penalties;
mod query;
mod scrape;
mod server;
mod shared_port;
mod stored_keys;
mod tenant_request;
mod tenant_view;
mod tenants;
mod upstreams;
mod violations;
mod written_time;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tower::BoxError;

pub(crate) use api::AdminApi;
use api::ApiTarget;
pub(crate) use server::{AdminServer, start};
pub(crate) use shared_port::bind;

use crate::listen::worker::Worker;
use crate::store::StoreControl;
use crate::telemetry::Metrics;

type AdminBody = UnsyncBoxBody<Bytes, Infallible>;
type AdminResponse = Response<AdminBody>;

const TIMEOUT: Duration = Duration::from_secs(10);
/// Requests under way at a time, for `/v1` and for the rest each: a change whose body does not come
/// holds up no health check.
const MAX_CONCURRENT: usize = 32;
/// Answers to questions that are made at a time: a list takes several times its length meanwhile.
const MAX_CONCURRENT_READS: usize = 8;
/// The largest body of a question.
const MAX_BODY_BYTES: usize = 64 * 1024;
/// How long a scrape waits for a worker to add up its counts.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(200);

/// What the admin listener can tell.
#[derive(Debug)]
pub(crate) struct AdminService {
    metrics: Metrics,
    store: Arc<dyn StoreControl>,
    workers: Arc<Vec<Worker>>,
    api: Arc<AdminApi>,
    /// One for each request to `/v1` that is under way.
    api_permits: Arc<Semaphore>,
    read_permits: Arc<Semaphore>,
    draining: AtomicBool,
}

impl AdminService {
    pub(crate) fn new(
        metrics: Metrics,
        store: Arc<dyn StoreControl>,
        workers: Arc<Vec<Worker>>,
        api: Arc<AdminApi>,
    ) -> Self {
        let api_permits = Arc::new(Semaphore::new(MAX_CONCURRENT));
        let read_permits = Arc::new(Semaphore::new(MAX_CONCURRENT_READS));
        let draining = AtomicBool::new(false);
        AdminService { metrics, store, workers, api, api_permits, read_permits, draining }
    }

    /// From now on the gateway is not ready: it is about to leave.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Answers what is asked below `/v1/`.
    ///
    /// A change that has not begun in time is not made, and one that has begun is waited for: what its
    /// answer says has happened, whichever it is.
    async fn answer_api(
        &self,
        request: Request<Incoming>,
        local: Option<SocketAddr>,
    ) -> AdminResponse {
        let (parts, body) = request.into_parts();
        if let Err(refused) = self.api.hosts().admit(&parts, local) {
            return refused.answer();
        }
        // Checked before the body is read.
        if let Err(refused) = self.api.authorize(&parts.method, &parts.headers) {
            return *refused;
        }
        let begin_by = Instant::now() + TIMEOUT;
        let Ok(permit) = self.api_permits.clone().try_acquire_owned() else {
            return api_error::too_many();
        };
        let body = match timeout_at(begin_by, read_body(&parts.method, body)).await {
            Ok(Ok(body)) => body,
            Ok(Err(_)) => return api_error::too_large(),
            Err(_) => return api_error::no_body(),
        };
        let (api, reading) = (self.api.clone(), hosts::is_reading(&parts.method));
        let mut read_permit = None;
        if reading {
            let turn = timeout_at(begin_by, self.read_permits.clone().acquire_owned()).await;
            let Ok(Ok(permit)) = turn else { return api_error::not_read_in_time() };
            read_permit = Some(permit);
        }
        let runtime = tokio::runtime::Handle::current();
        let answered = move || {
            // Goes with the thread, whether somebody still waits for its answer or not.
            let _permits = (permit, read_permit);
            let path = parts.uri.path().strip_prefix("/v1/").unwrap_or_default();
            let query = parts.uri.query().unwrap_or_default();
            let target = ApiTarget { path, query, begin_by };
            runtime.block_on(api.answer(&parts.method, target, body))
        };
        // There may be thousands of overrides to go through, and this thread accepts connections.
        let answering = tokio::task::spawn_blocking(answered);
        let answered = match reading {
            true => timeout_at(begin_by, answering).await,
            false => Ok(answering.await),
        };
        answered.map_or_else(
            |_| api_error::not_read_in_time(),
            |answered| {
                answered.unwrap_or_else(|error| {
                    tracing::error!(%error, "a question to /v1 was not answered");
                    api_error::internal()
                })
            },
        )
    }

    /// Answers everything else.
    async fn answer(&self, request: Request<Incoming>, local: Option<SocketAddr>) -> AdminResponse {
        let (parts, _) = request.into_parts();
        let (method, path) = (&parts.method, parts.uri.path());
        if let Err(refused) = self.api.hosts().admit(&parts, local) {
            return refused.answer();
        }
        if !matches!(path, "/metrics" | "/healthz" | "/readyz") {
            return json(StatusCode::NOT_FOUND, r#"{"error":"no_route"}"#);
        }
        if !hosts::is_reading(method) {
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
    fn ready(&self) -> AdminResponse {
        let (code, status) = if self.draining.load(Ordering::Acquire) {
            (StatusCode::SERVICE_UNAVAILABLE, "draining")
        } else if self.store.is_degraded() {
            (StatusCode::OK, "degraded")
        } else {
            (StatusCode::OK, "ready")
        };
        let reason = self.store.degraded_reason().filter(|_| status == "degraded");
        let reason = reason.map_or(String::new(), |reason| format!(r#","reason":"{reason}""#));
        let text = format!(r#"{{"status":"{status}","store":"{}"{reason}}}"#, self.store.kind());
        answer(code, "application/json", text.into())
    }

    async fn metrics(&self) -> AdminResponse {
        for flushed in self.workers.iter().map(Worker::flush) {
            // One that has no time for it is counted a scrape later.
            let _ = tokio::time::timeout(FLUSH_TIMEOUT, flushed).await;
        }
        let buckets = self.store.local_buckets().buckets();
        self.metrics.buckets.set(gauge(buckets.own + buckets.overflow));
        self.metrics.buckets_overflow.set(gauge(buckets.overflow));
        self.metrics.connections.set(gauge(self.workers.iter().map(Worker::load).sum()));
        let (store, settings) = (self.store.clone(), self.api.settings());
        let metrics = self.metrics.clone();
        let update = move |metrics: &Metrics| overshoot::update(metrics, &*store, &settings);
        scrape::answer(metrics, update).await
    }
}

/// The body of a change. Questions and removals have none that would matter, so it is not waited for.
async fn read_body(method: &Method, body: Incoming) -> Result<Bytes, BoxError> {
    if hosts::is_reading(method) || *method == Method::DELETE {
        return Ok(Bytes::new());
    }
    Ok(Limited::new(body, MAX_BODY_BYTES).collect().await?.to_bytes())
}

fn gauge(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn json(status: StatusCode, text: &'static str) -> AdminResponse {
    answer(status, "application/json", Bytes::from_static(text.as_bytes()))
}

fn answer(status: StatusCode, kind: &'static str, body: Bytes) -> AdminResponse {
    let mut answer = Response::new(Full::new(body).boxed_unsync());
    *answer.status_mut() = status;
    own_headers(&mut answer, kind);
    answer
}

/// What each answer has.
fn own_headers(answer: &mut AdminResponse, kind: &'static str) {
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
}
