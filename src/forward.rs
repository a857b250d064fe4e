//! The way of an admitted request to its upstream and of the response back.

pub mod echo;
pub mod headers;
pub mod tunnel;

use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

use http::{HeaderMap, Method, Response, StatusCode, header};
use tokio::time::Instant;

use crate::body::Body;
use crate::http1::{Framing, Wire, encode};
use crate::respond::Fault;
use crate::telemetry::Failure;
use crate::upstream::{Exchange, ExchangeError, Server, Upstream};
use headers::Outbound;

/// One admitted request, ready to go.
#[derive(Debug)]
pub struct Passage<'a> {
    pub upstream: &'a Upstream,
    pub method: &'a Method,
    /// Path and query for the upstream.
    pub target: &'a [u8],
    pub outbound: &'a Outbound<'a>,
    /// How long the upstream may take to answer, and how long a body may stand still.
    pub patience: Duration,
    pub stall: Duration,
}

impl Passage<'_> {
    /// Sends the request and returns the response's head with its body to come. The map that
    /// held the request's headers is used again for the response's.
    ///
    /// # Errors
    /// If no server gave a usable answer.
    pub async fn run(
        &self,
        mut headers: HeaderMap,
        body: Body,
        mut started: Instant,
    ) -> Result<Response<Body>, Fault> {
        let upgrade = self.outbound.upgrade;
        self.upstream.earn_retries();
        let repeatable = body.is_empty() && is_idempotent(self.method);
        let mut body = Some(body);
        let mut failed: Option<Rc<Server>> = None;
        let (mut attempts, mut fresh) = (0, false);
        loop {
            if attempts > 0 {
                started = Instant::now();
            }
            let server = self.upstream.pick(failed.as_ref(), started);
            let slot = server.occupy(started);
            let idle = if fresh { None } else { server.reuse(started, self.method) };
            let reused = idle.is_some();
            let announced = idle.as_ref().is_some_and(|idle| idle.announced);
            let mut wire = match idle {
                Some(idle) => idle.wire,
                None => match self.upstream.connect(&server).await {
                    Ok(wire) => wire,
                    // Nothing was sent, so another server may be tried whatever the request is, and
                    // no upstream has more to do for it.
                    Err(error)
                        if !error.is_ours()
                            && self.upstream.has_others()
                            && self.is_left(&mut attempts) =>
                    {
                        failed = Some(server);
                        continue;
                    }
                    Err(error) => {
                        if let Some(failure) = error.failure() {
                            self.upstream.failures.count(failure);
                        }
                        return Err(error.into());
                    }
                },
            };
            // A malformed head may have taken their place before that shows.
            let kept = (announced && repeatable).then(|| headers.clone());
            let body = body.take().unwrap_or_else(Body::empty);
            self.write_head(&mut wire, &server, &headers, &body);
            let sent = if reused { started } else { Instant::now() };
            self.outbound.peer.note_sent();
            let mut exchange = Exchange::new(wire, slot, body, sent, self.patience);
            let line = match poll_fn(|cx| exchange.poll_head(cx, &mut headers, upgrade)).await {
                Ok(line) => line,
                // An idle connection that the server closed just now says nothing about it, once.
                Err(ExchangeError::Closed(_)) if repeatable && reused => {
                    fresh = true;
                    continue;
                }
                // Not an answer to this request, but a body that belongs to the one before it.
                Err(error) if announced && error.is_malformed() => {
                    server.note_unasked();
                    let Some(kept) = kept else { return Err(self.failed(error)) };
                    (headers, fresh) = (kept, true);
                    continue;
                }
                Err(ExchangeError::Closed(_)) if self.may_retry(&mut attempts, repeatable) => {
                    failed = Some(server);
                    continue;
                }
                Err(error) => return Err(self.failed(error)),
            };
            let upgraded = line.status == StatusCode::SWITCHING_PROTOCOLS;
            let body = if upgraded {
                let (wire, slot) = exchange.into_tunnel(&mut headers);
                Body::tunnel(wire, slot)
            } else {
                let body = exchange.into_body(self.method, line, &mut headers, self.stall);
                let mut body = body.map_err(|error| self.failed(error))?;
                if line.status.is_server_error() {
                    self.upstream.failures.count(Failure::Status5xx);
                } else {
                    body.count_in(&self.upstream.failures);
                }
                Body::upstream(Box::new(body))
            };
            self.upstream.seconds.observe(started.elapsed().as_secs_f64());
            headers::clean_response(&mut headers, line.noted, upgraded);
            let mut response = Response::new(body);
            *response.status_mut() = line.status;
            *response.headers_mut() = headers;
            return Ok(response);
        }
    }

    /// Counts what an upstream has done wrong.
    fn failed(&self, error: ExchangeError) -> Fault {
        if let Some(failure) = error.failure() {
            self.upstream.failures.count(failure);
        }
        error.into()
    }

    /// Whether there is another attempt left.
    fn is_left(&self, attempts: &mut u32) -> bool {
        *attempts += 1;
        *attempts <= self.upstream.retries
    }

    fn may_retry(&self, attempts: &mut u32, possible: bool) -> bool {
        possible && self.is_left(attempts) && self.upstream.spend_retry()
    }

    fn write_head(&self, wire: &mut Wire, server: &Server, headers: &HeaderMap, body: &Body) {
        encode::request_line(wire.outbox(), self.method, self.target);
        if self.outbound.host.is_empty() {
            // An HTTP/1.0 client may do without; the HTTP/1.1 that we speak may not.
            encode::field(wire.outbox(), &header::HOST, server.authority.as_bytes());
        }
        let write = |name: &_, value: &_| encode::field(wire.outbox(), name, value);
        self.outbound.visit(headers, write);
        match body.framing() {
            Framing::Length(length) => encode::content_length(wire.outbox(), length),
            Framing::Chunked | Framing::UntilClose => {
                wire.outbox().extend_from_slice(b"Transfer-Encoding: chunked\r\n");
            }
            Framing::Empty => {}
        }
        encode::end_of_head(wire.outbox());
    }
}

/// RFC 9110 section 9.2.2.
fn is_idempotent(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::PUT | Method::DELETE)
}
