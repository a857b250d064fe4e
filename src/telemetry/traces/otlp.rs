//! Spans to a collector: OTLP over HTTP, as JSON, from a thread of their own.
//!
//! What waits is sent in batches. A batch that the collector does not take is tried once more and then
//! dropped and counted: traces are for people, and requests are not held up for them.

mod encode;

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use prometheus::IntCounter;
use tokio::net::TcpStream;
use tokio::sync::mpsc::Receiver;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::request_trace::FinishedTrace;
use super::span_sink::{ExportGuard, SpanSink};
use crate::config::settings::OtlpEndpoint;
pub use encode::Resource;

/// Requests whose spans go together, and how long the first of them waits for others.
const BATCH_TRACES: usize = 256;
const BATCH_TIME: Duration = Duration::from_secs(1);
/// How long a collector may take for one batch.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// Before a batch is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// What is left when the process ends has this long.
const END_TIME: Duration = Duration::from_secs(2);
/// More of an answer is not read.
const MAX_ANSWER: usize = 64 * 1024;

/// Starts the thread.
///
/// # Errors
/// If the thread or its runtime cannot be had.
pub fn start(
    endpoint: &OtlpEndpoint,
    resource: Resource,
    dropped: &IntCounter,
) -> io::Result<(SpanSink, ExportGuard)> {
    let (sink, waiting) = SpanSink::new(dropped.clone());
    let (stop, stopped) = watch::channel(false);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let exporter = Exporter {
        endpoint: endpoint.clone(),
        resource,
        dropped: dropped.clone(),
        connection: None,
        failing: false,
    };
    let thread = std::thread::Builder::new().name("weir-traces".to_owned()).spawn(move || {
        runtime.block_on(exporter.run(waiting, stopped));
        runtime.shutdown_background();
    })?;
    Ok((sink, ExportGuard::new(stop, thread)))
}

struct Exporter {
    endpoint: OtlpEndpoint,
    resource: Resource,
    dropped: IntCounter,
    connection: Option<SendRequest<Full<Bytes>>>,
    failing: bool,
}

#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error("it cannot be reached: {0}")]
    Connect(#[from] io::Error),
    #[error("{0}")]
    Http(#[from] hyper::Error),
    #[error("it answered {0}")]
    Status(http::StatusCode),
    #[error("the request cannot be made: {0}")]
    Request(#[from] http::Error),
    #[error("it did not answer in {SEND_TIMEOUT:?}")]
    Timeout,
}

impl Exporter {
    async fn run(
        mut self,
        mut waiting: Receiver<FinishedTrace>,
        mut stopped: watch::Receiver<bool>,
    ) {
        let mut batch = Vec::with_capacity(BATCH_TRACES);
        loop {
            tokio::select! {
                count = waiting.recv_many(&mut batch, BATCH_TRACES) => if count == 0 { return },
                _ = stopped.wait_for(|stopped| *stopped) => break,
            }
            let full_at = Instant::now() + BATCH_TIME;
            while batch.len() < BATCH_TRACES && !*stopped.borrow() {
                let room = BATCH_TRACES - batch.len();
                tokio::select! {
                    more = timeout_at(full_at, waiting.recv_many(&mut batch, room)) => {
                        if more.is_err() || more == Ok(0) {
                            break;
                        }
                    }
                    _ = stopped.wait_for(|stopped| *stopped) => break,
                }
            }
            tokio::select! {
                () = self.export(&mut batch) => {}
                () = sleep_after_stop(&mut stopped) => break,
            }
        }
        let rest = async {
            while !batch.is_empty()
                || waiting.try_recv().is_ok_and(|it| {
                    batch.push(it);
                    true
                })
            {
                while batch.len() < BATCH_TRACES
                    && let Ok(more) = waiting.try_recv()
                {
                    batch.push(more);
                }
                self.export(&mut batch).await;
            }
        };
        let _ = timeout(END_TIME, rest).await;
    }

    /// Sends a batch, or counts it as dropped.
    async fn export(&mut self, batch: &mut Vec<FinishedTrace>) {
        let body = Bytes::from(encode::request(&self.resource, batch));
        let mut sent = self.send(body.clone()).await;
        if sent.is_err() {
            sleep(RETRY_PAUSE).await;
            sent = self.send(body).await;
        }
        match sent {
            Ok(()) if std::mem::take(&mut self.failing) => {
                tracing::info!("traces are exported again")
            }
            Ok(()) => {}
            Err(error) => {
                self.dropped.inc_by(batch.iter().map(FinishedTrace::spans).sum());
                if !std::mem::replace(&mut self.failing, true) {
                    let collector = &self.endpoint.authority;
                    tracing::warn!("traces are dropped: the collector {collector} fails: {error}");
                }
            }
        }
        batch.clear();
    }

    async fn send(&mut self, body: Bytes) -> Result<(), SendError> {
        let sent = timeout(SEND_TIMEOUT, self.try_send(body)).await;
        let sent = sent.unwrap_or(Err(SendError::Timeout));
        if sent.is_err() {
            self.connection = None;
        }
        sent
    }

    async fn try_send(&mut self, body: Bytes) -> Result<(), SendError> {
        let idle = self.connection.take().filter(|it| !it.is_closed());
        let mut connection = match idle {
            Some(connection) => connection,
            None => connect(&self.endpoint).await?,
        };
        connection.ready().await?;
        let request = Request::post(self.endpoint.path.as_str())
            .header(header::HOST, self.endpoint.authority.as_str())
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))?;
        let answer = connection.send_request(request).await?;
        let status = answer.status();
        let whole = Limited::new(answer.into_body(), MAX_ANSWER).collect().await.is_ok();
        if !status.is_success() {
            return Err(SendError::Status(status));
        }
        self.connection = Some(connection).filter(|_| whole);
        Ok(())
    }
}

/// Once the process ends, a batch under way has a while left.
async fn sleep_after_stop(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stopped| *stopped).await;
    sleep(END_TIME).await;
}

async fn connect(endpoint: &OtlpEndpoint) -> Result<SendRequest<Full<Bytes>>, SendError> {
    let stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Ends with the connection.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(sender)
}

#[cfg(test)]
#[path = "otlp/tests.rs"]
mod tests;
