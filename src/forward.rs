//! Sending an admitted request to its upstream, and the response back.
//!
//! HTTP/1.1 is all that is spoken to upstreams. HTTP/2 would attach in [`UpstreamRequest::send`]: a
//! server whose connections speak it gets the same method, target, [`OutboundHeaders`] and body, and
//! its response becomes the same `Response<Content>`.

pub(crate) mod echo;
pub(crate) mod headers;
pub(crate) mod tunnel;

use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

use http::{HeaderMap, Method, Response, StatusCode, header};
use tokio::time::Instant;

use crate::body::Body;
use crate::gateway::RequestSignals;
use crate::http1::{BufferedStream, Framing, StatusLine, encode};
use crate::respond::{Content, Fault};
use crate::telemetry::Failure;
use crate::upstream::{ConnectError, Exchange, ExchangeError, Server, Upstream};
use headers::OutboundHeaders;
use tunnel::Tunnel;

/// One admitted request, ready to be sent.
#[derive(Debug)]
pub(crate) struct UpstreamRequest<'a> {
    pub upstream: &'a Upstream,
    pub method: &'a Method,
    /// Path and query for the upstream.
    pub target: &'a [u8],
    pub outbound: &'a OutboundHeaders<'a>,
    /// Where it is noted that the request was sent.
    pub signals: &'a RequestSignals,
    /// From the end of the request to the head of the response.
    pub response_timeout: Duration,
    /// How long a body may stand still.
    pub stall_timeout: Duration,
}

impl UpstreamRequest<'_> {
    /// Sends the request and returns the response's head with its body to come. The map that
    /// held the request's headers is used again for the response's.
    ///
    /// # Errors
    /// If no server gave a usable answer.
    pub(crate) async fn send(
        &self,
        mut headers: HeaderMap,
        body: Body,
        mut started: Instant,
    ) -> Result<Response<Content>, Fault> {
        let upgrade = self.outbound.upgrade;
        self.upstream.earn_retries();
        let bodiless = body.is_empty();
        let repeatable = bodiless && is_idempotent(self.method);
        let mut body = Some(body);
        let mut failed: Option<Rc<Server>> = None;
        let (mut attempts, mut fresh) = (0, false);
        loop {
            if attempts > 0 {
                started = Instant::now();
            }
            let server = self.upstream.pick(failed.as_ref(), started);
            let active = server.begin_request(started);
            let idle = if fresh { None } else { server.reuse(started, self.method) };
            let reused = idle.is_some();
            let announced = idle.as_ref().is_some_and(|idle| idle.announced);
            let mut io = match idle {
                Some(idle) => idle.io,
                None => match self.upstream.connect(&server).await {
                    Ok(io) => io,
                    // Nothing was sent, so another server may be tried even for requests that are not
                    // idempotent; and since no upstream did any work, the retry budget is not charged.
                    Err(error)
                        if !error.is_ours()
                            && self.upstream.has_others()
                            && self.has_attempt_left(&mut attempts) =>
                    {
                        failed = Some(server);
                        continue;
                    }
                    Err(error) => return Err(self.connect_failed(error)),
                },
            };
            // A malformed head may overwrite the headers before it is seen to be malformed.
            let kept = (announced && repeatable).then(|| headers.clone());
            let body = body.take().unwrap_or_else(Body::empty);
            self.write_head(&mut io, &server, &headers, &body);
            let sent = if reused { started } else { Instant::now() };
            self.signals.note_sent();
            let mut exchange = Exchange::new(io, active, body, sent, self.response_timeout);
            match poll_fn(|cx| exchange.poll_head(cx, &mut headers, upgrade)).await {
                Ok(line) => return self.response(exchange, line, headers, started),
                // The idle connection was closed before anything was written: no server has seen
                // the request, so this was no attempt.
                Err(ExchangeError::Closed(_)) if reused && bodiless && exchange.is_unsent() => {
                    fresh = true;
                }
                // Not a response to this request, but a body that belongs to the one before it.
                Err(error) if announced && error.is_malformed() => {
                    server.note_forbidden_body();
                    let kept = kept.filter(|_| self.may_retry(&mut attempts, repeatable));
                    let Some(kept) = kept else { return Err(self.failed(error)) };
                    (headers, fresh) = (kept, true);
                }
                // The server may have closed an idle connection just when it was used again, or have
                // died over the request; that cannot be told. Other idle connections are likely
                // closed as well, so the next attempt is made on a new one.
                Err(ExchangeError::Closed(_)) if self.may_retry(&mut attempts, repeatable) => {
                    (failed, fresh) = (Some(server), true);
                }
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    /// What is passed on, once the head of the response is there.
    #[inline]
    fn response(
        &self,
        exchange: Exchange,
        line: StatusLine,
        mut headers: HeaderMap,
        started: Instant,
    ) -> Result<Response<Content>, Fault> {
        let upgraded = line.status == StatusCode::SWITCHING_PROTOCOLS;
        let content = if upgraded {
            Content::Tunnel(Box::new(Tunnel::new(exchange.into_upgraded(&mut headers))))
        } else {
            let body = exchange.into_body(self.method, line, &mut headers, self.stall_timeout);
            let mut body = body.map_err(|error| self.failed(error))?;
            if line.status.is_server_error() {
                self.upstream.failures.count(Failure::Status5xx);
            } else {
                body.count_in(&self.upstream.failures);
            }
            Content::Body(Body::upstream(Box::new(body)))
        };
        self.upstream.seconds.observe(started.elapsed().as_secs_f64());
        headers::clean_response(&mut headers, line.flags, upgraded);
        let mut response = Response::new(content);
        *response.status_mut() = line.status;
        *response.headers_mut() = headers;
        Ok(response)
    }

    fn connect_failed(&self, error: ConnectError) -> Fault {
        if let Some(failure) = error.failure() {
            self.upstream.failures.count(failure);
        }
        error.into()
    }

    /// Counts what was the upstream's failure.
    fn failed(&self, error: ExchangeError) -> Fault {
        if let Some(failure) = error.failure() {
            self.upstream.failures.count(failure);
        }
        error.into()
    }

    /// Whether there is another attempt left.
    fn has_attempt_left(&self, attempts: &mut u32) -> bool {
        *attempts += 1;
        *attempts <= self.upstream.retries
    }

    fn may_retry(&self, attempts: &mut u32, possible: bool) -> bool {
        possible && self.has_attempt_left(attempts) && self.upstream.spend_retry()
    }

    fn write_head(
        &self,
        io: &mut BufferedStream,
        server: &Server,
        headers: &HeaderMap,
        body: &Body,
    ) {
        encode::request_line(io.write_buf(), self.method, self.target);
        if self.outbound.host.is_empty() {
            // HTTP/1.0 clients need not send it, but HTTP/1.1 requires it.
            encode::field(io.write_buf(), &header::HOST, server.authority.as_bytes());
        }
        let write = |name: &_, value: &_| encode::field(io.write_buf(), name, value);
        self.outbound.for_each(headers, write);
        match body.framing() {
            Framing::Length(length) => encode::content_length(io.write_buf(), length),
            Framing::Chunked | Framing::UntilClose => {
                io.write_buf().extend_from_slice(b"Transfer-Encoding: chunked\r\n");
            }
            Framing::Empty => {}
        }
        encode::end_of_head(io.write_buf());
    }
}

/// RFC 9110 section 9.2.2.
fn is_idempotent(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::PUT | Method::DELETE)
}
