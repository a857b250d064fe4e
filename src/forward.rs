//! Sending an admitted request to its upstream, and the response back.
//!
//! One attempt after another, whichever version of HTTP the servers speak: a [`Link`] is what a
//! request is sent over, a [`Transport`] has it until the head of the response is there.

mod connection_sharing;
pub(crate) mod echo;
pub(crate) mod field_rules;
pub(crate) mod headers;
mod http2_head;
pub(crate) mod tunnel;

use std::future::poll_fn;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, Method, StatusCode, header};
use tokio::time::Instant;

use crate::body::Body;
use crate::gateway::RequestSignals;
use crate::http1::{BufferedStream, Framing, HeadFlags, StatusLine, encode};
use crate::respond::{Content, Fault};
use crate::telemetry::Failure;
use crate::upstream::{
    ActiveRequest, ConnectionSharing, Exchange, ExchangeError, FailureScope, Http2Exchange,
    KeyDigest, Link, LinkRequest, OpenError, PickRequest, PooledConnection, Server, Transport,
    Upstream,
};
use headers::OutboundHeaders;
use tunnel::Tunnel;

/// One admitted request, ready to be sent.
#[derive(Debug)]
pub(crate) struct UpstreamRequest<'a> {
    pub upstream: &'a Upstream,
    pub method: &'a Method,
    /// Who sent it, as limits count addresses: its failures may hold against nobody else.
    pub client: IpAddr,
    /// What the request is hashed by, where the upstream's servers are chosen by that.
    pub affinity: Option<KeyDigest>,
    /// Path and query for the upstream.
    pub target: &'a [u8],
    pub outbound: &'a OutboundHeaders<'a>,
    /// Where it is noted that the request was sent, and what the upstream says before its response.
    pub signals: &'a RequestSignals,
    /// From the end of the request to the head of the response.
    pub response_timeout: Duration,
    /// How long a body may stand still.
    pub stall_timeout: Duration,
}

/// What was answered to a forwarded request. Its headers are in the map that held the request's: it is
/// large, and not to be moved for each request.
#[derive(Debug)]
pub(crate) struct ForwardedResponse {
    pub status: StatusCode,
    pub content: Content,
}

impl UpstreamRequest<'_> {
    /// Sends the request and returns the response's status with its body to come. `headers` are
    /// replaced by those of the response.
    ///
    /// # Errors
    /// If no server gave a usable answer. If the body is still there, nothing was sent to any.
    pub(crate) async fn send(
        &self,
        headers: &mut HeaderMap,
        body: &mut Option<Body>,
        mut started: Instant,
    ) -> Result<ForwardedResponse, Fault> {
        let upgrade = self.outbound.upgrade;
        let pass = self.upstream.admit(self.client, started).map_err(Fault::BreakerOpen)?;
        self.upstream.earn_retries();
        let bodiless = body.as_ref().is_none_or(Body::is_empty);
        let repeatable = bodiless && is_idempotent(self.method);
        let mut failed: Option<Rc<Server>> = None;
        let (mut attempts, mut fresh) = (0, false);
        let mut was_connected = false;
        let mut sharing = match upgrade {
            true => ConnectionSharing::Tunnel,
            false => ConnectionSharing::Shared,
        };
        loop {
            if attempts > 0 {
                started = Instant::now();
            }
            let server = self.upstream.pick(PickRequest {
                key: self.affinity,
                failed: failed.as_ref(),
                client: self.client,
                pass,
                now: started,
            });
            let mut active = server.begin_request(started);
            let no_idle = fresh || server.shares_connections(upgrade);
            let idle = if no_idle { None } else { active.reuse(started, self.method) };
            if sharing == ConnectionSharing::Shared && server.shares_connections(upgrade) {
                sharing = self.sharing(headers, bodiless);
            }
            let (method, signals) = (self.method, self.signals);
            let client = self.client;
            let wanted = LinkRequest { method, client, has_body: !bodiless, sharing, signals };
            let link = match idle {
                Some(idle) => Link::Http1(idle),
                None => match self.upstream.open(&mut active, wanted).await {
                    Ok(link) => link,
                    // Nothing was sent, so another server may be tried even for requests that are not
                    // idempotent; and since no upstream did any work, the retry budget is not charged.
                    Err(OpenError { error, .. })
                        if !error.is_ours()
                            && self.upstream.has_others()
                            && self.has_attempt_left(&mut attempts) =>
                    {
                        failed = Some(server);
                        continue;
                    }
                    Err(failed) => return Err(self.connect_failed(failed, was_connected)),
                },
            };
            let (reused, announced) = link.history();
            // One that was idle may lead to a server that is gone by now.
            was_connected |= !reused;
            // A malformed head may overwrite the headers before it is seen to be malformed.
            let kept = (announced && repeatable).then(|| headers.clone());
            let whole = body.take().unwrap_or_else(Body::empty);
            let sent = if reused { started } else { Instant::now() };
            let mut exchange = self.begin(link, active, headers, whole, sent)?;
            self.signals.note_sent();
            let pass_hints = |fields: &mut HeaderMap, flags| self.pass_hints(fields, flags);
            match poll_fn(|cx| exchange.poll_head(cx, headers, upgrade, pass_hints)).await {
                Ok(line) => return self.response(&server, exchange, line, headers, started),
                // The idle connection was closed before anything was written: no server has seen
                // the request, so this was no attempt.
                Err(ExchangeError::Closed(_)) if reused && bodiless && exchange.is_unsent() => {
                    fresh = true;
                }
                // Not a response to this request, but a body that belongs to the one before it.
                Err(error) if announced && error.is_malformed() => {
                    server.note_forbidden_body();
                    let kept = kept.filter(|_| self.may_retry(&mut attempts, repeatable));
                    let Some(kept) = kept else {
                        return Err(self.failed(&server, error, self.own_scope()));
                    };
                    *headers = kept;
                    fresh = true;
                }
                // No server has looked at it, and servers may end connections at any time: the first
                // time this was no attempt. Other streams or connections may be ending as well.
                Err(error @ ExchangeError::Unprocessed) => {
                    let again = !fresh || self.has_attempt_left(&mut attempts);
                    *body = exchange.take_back_body().filter(|_| again);
                    if body.is_none() {
                        let scope = exchange.failure_scope(self.client);
                        return Err(self.failed(&server, error, scope));
                    }
                    fresh = true;
                }
                // The server may have closed an idle connection just when it was used again, or have
                // died over the request; that cannot be told. Other idle connections are likely
                // closed as well, so the next attempt is made on a new one.
                Err(error @ (ExchangeError::Closed(_) | ExchangeError::Reset(_)))
                    if self.may_retry(&mut attempts, repeatable) =>
                {
                    if !reused
                        && let FailureScope::Client(client) = exchange.failure_scope(self.client)
                    {
                        self.upstream.note_failed(&server, client);
                    }
                    (failed, fresh) = (Some(server), true);
                    // If the connection has ended over this request, no further one with others on it
                    // is to do so.
                    let has_ended = matches!(error, ExchangeError::Closed(_));
                    if has_ended && sharing == ConnectionSharing::Shared {
                        sharing = ConnectionSharing::PreferablyAlone;
                    }
                }
                // It has had its time and has not begun to answer: another may.
                Err(ExchangeError::TimedOut)
                    if self.upstream.has_others()
                        && exchange.is_unanswered()
                        && self.may_retry(&mut attempts, repeatable) =>
                {
                    self.upstream.note_failed(&server, self.client);
                    failed = Some(server);
                }
                Err(error) => {
                    let scope = exchange.failure_scope(self.client);
                    return Err(self.failed(&server, error, scope));
                }
            }
        }
    }

    /// Puts the request on its way.
    #[inline]
    fn begin(
        &self,
        link: Link,
        active: ActiveRequest,
        headers: &HeaderMap,
        body: Body,
        sent: Instant,
    ) -> Result<Transport, Fault> {
        let max_fields = self.upstream.max_response_headers;
        match link {
            Link::Http1(PooledConnection { mut io, .. }) => {
                self.write_head(&mut io, active.server(), headers, &body);
                let mut exchange = Exchange::new(io, active, body, sent, self.response_timeout);
                exchange.max_fields = max_fields;
                Ok(Transport::Http1(exchange))
            }
            Link::Http2(stream) => {
                let sends_trailers = stream.is_exclusive() && !body.is_empty();
                let head = self.http2_head(active.server(), headers, sends_trailers)?;
                stream.set_sender(self.client);
                let fields = self.outbound.fields.clone();
                let mut exchange = Http2Exchange::new(stream, active, head, body, fields);
                exchange.max_fields = max_fields;
                exchange.set_response_timeout(sent, self.response_timeout);
                Ok(Transport::Http2(Box::new(exchange)))
            }
        }
    }

    /// What is passed on, once the head of the response is there.
    #[inline]
    fn response(
        &self,
        server: &Server,
        exchange: Transport,
        line: StatusLine,
        headers: &mut HeaderMap,
        started: Instant,
    ) -> Result<ForwardedResponse, Fault> {
        let upgraded = line.status == StatusCode::SWITCHING_PROTOCOLS;
        let content = match exchange {
            Transport::Http1(exchange) if upgraded => {
                Content::Tunnel(Box::new(Tunnel::new(exchange.into_upgraded(headers))))
            }
            exchange => {
                // What becomes of the body of a 5xx is not counted as well.
                let cut_off = (!line.status.is_server_error()).then_some(&self.upstream.failures);
                let stall = self.stall_timeout;
                let body = exchange.into_body(self.method, line, headers, stall, cut_off);
                // A head that does not say where the response ends is no response.
                let body = body.map_err(|error| self.failed(server, error, self.own_scope()))?;
                if line.status.is_server_error() {
                    self.upstream.failures.count(Failure::Status5xx);
                }
                Content::Body(body)
            }
        };
        self.upstream.note_answered(server, self.client);
        self.upstream.seconds.observe(started.elapsed().as_secs_f64());
        headers::clean_response(headers, line.flags, upgraded);
        Ok(ForwardedResponse { status: line.status, content })
    }

    /// Passes a `103 Early Hints` on to a client that can take it.
    fn pass_hints(&self, fields: &mut HeaderMap, flags: HeadFlags) {
        if self.signals.hints.is_wanted() {
            headers::clean_hints(fields, flags, &self.outbound.fields.response_edits);
            self.signals.hints.push(std::mem::take(fields));
        }
    }

    /// `was_connected`: an earlier attempt has had a connection. It failed there, maybe for what is in the
    /// request, and that the next server is down does not make it the failure of others.
    fn connect_failed(&self, OpenError { error, scope }: OpenError, was_connected: bool) -> Fault {
        if let Some(failure) = error.failure() {
            let scope = if was_connected { self.own_scope() } else { scope };
            self.upstream.count_failed(failure, scope);
        }
        error.into()
    }

    /// A request may have failed for what is in it.
    fn own_scope(&self) -> FailureScope {
        FailureScope::Client(self.client)
    }

    /// Counts what was the upstream's failure, and holds it against the server.
    fn failed(&self, server: &Server, error: ExchangeError, scope: FailureScope) -> Fault {
        if let Some(failure) = error.failure() {
            if let FailureScope::Client(client) = scope {
                self.upstream.note_failed(server, client);
            }
            self.upstream.count_failed(failure, scope);
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
        let mut write =
            |name: &HeaderName, value: &[u8]| encode::field(io.write_buf(), name, value);
        self.outbound.write_to(headers, &mut write);
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
