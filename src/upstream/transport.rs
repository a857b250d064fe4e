//! A request on its way, over whichever version of HTTP.

use std::net::IpAddr;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderMap, Method};

use super::{Exchange, ExchangeError, FailureScope, Http2Exchange};
use crate::body::Body;
use crate::http1::{HeadFlags, StatusLine};
use crate::telemetry::FailureMeter;

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "HTTP/1.1 costs no allocation")]
pub(crate) enum Transport {
    Http1(Exchange),
    Http2(Box<Http2Exchange>),
}

impl Transport {
    /// Drives the request out and the head of the response in, into `headers`. `on_hints` gets what
    /// comes before it over HTTP/1.1.
    ///
    /// # Errors
    /// If there is no usable response. Nothing more is to be done here then.
    #[inline]
    pub(crate) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        headers: &mut HeaderMap,
        upgrade: bool,
        on_hints: impl Fn(&mut HeaderMap, HeadFlags),
    ) -> Poll<Result<StatusLine, ExchangeError>> {
        match self {
            Transport::Http1(exchange) => exchange.poll_head(cx, headers, upgrade, on_hints),
            Transport::Http2(exchange) => exchange.poll_head(cx, headers),
        }
    }

    /// Whether no part of a response has come.
    pub(crate) fn is_unanswered(&self) -> bool {
        match self {
            Transport::Http1(exchange) => exchange.is_unanswered(),
            // Over HTTP/2 there is no part of a head.
            Transport::Http2(_) => true,
        }
    }

    /// Whether nothing of the request was written.
    pub(crate) fn is_unsent(&self) -> bool {
        matches!(self, Transport::Http1(exchange) if exchange.is_unsent())
    }

    /// Against whom it holds that there is no response to a request of that client.
    pub(crate) fn failure_scope(&self, client: IpAddr) -> FailureScope {
        match self {
            Transport::Http1(_) => FailureScope::Client(client),
            Transport::Http2(exchange) => exchange.failure_scope(client),
        }
    }

    /// The body of a request that no server has looked at, if it can be sent again.
    pub(crate) fn take_back_body(&mut self) -> Option<Body> {
        match self {
            Transport::Http1(_) => None,
            Transport::Http2(exchange) => exchange.take_back_body(),
        }
    }

    /// What follows the head. If it is cut off, that is counted in `failures`.
    ///
    /// # Errors
    /// If the head leaves its length open to interpretation.
    #[inline]
    pub(crate) fn into_body(
        self,
        method: &Method,
        line: StatusLine,
        headers: &mut HeaderMap,
        stall_timeout: Duration,
        failures: Option<&Rc<FailureMeter>>,
    ) -> Result<Body, ExchangeError> {
        match self {
            Transport::Http1(exchange) => {
                let mut body = exchange.into_body(method, line, headers, stall_timeout)?;
                if let Some(failures) = failures {
                    body.count_in(failures);
                }
                Ok(Body::upstream(body))
            }
            Transport::Http2(exchange) => {
                let body = exchange.into_body(method, line, headers, stall_timeout);
                Ok(body.map_or_else(Body::empty, |mut body| {
                    if let Some(failures) = failures {
                        body.count_in(failures);
                    }
                    Body::upstream_http2(Box::new(body))
                }))
            }
        }
    }
}
