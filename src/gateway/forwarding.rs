//! Where an admitted request goes, and how it gets there.

use http::{HeaderMap, HeaderName, Response};
use tokio::time::Instant;

use super::RequestContext;
use super::outcomes::LimitOutcomes;
use super::plan::RouteMatch;
use super::signals::RequestSignals;
use super::worker_config::{RouteTarget, WorkerConfig};
use crate::body::Body;
use crate::caller::Caller;
use crate::forward::headers::{self, OutboundHeaders};
use crate::forward::{UpstreamRequest, echo};
use crate::respond::{Content, Fault};

/// Names the limits that did not admit a request which is forwarded all the same.
const DEGRADED: HeaderName = HeaderName::from_static("x-weir-degraded");

/// An admitted request that is to be forwarded.
#[derive(Debug)]
pub(super) struct Outgoing<'a> {
    pub request: &'a RequestContext<'a>,
    pub route: &'a RouteMatch<'a>,
    pub caller: &'a Caller,
    pub via: &'a str,
    pub signals: &'a RequestSignals,
}

/// Where an admitted request goes. One that a limit with the strategy `degrade` did not admit is
/// marked, and may go elsewhere.
pub(super) fn target(
    config: &WorkerConfig,
    route: &RouteMatch<'_>,
    limits: &LimitOutcomes<'_, '_>,
    headers: &mut HeaderMap,
) -> RouteTarget {
    let route = &config.routes[route.index];
    if !config.compiled.degrades {
        return route.target;
    }
    headers.remove(DEGRADED);
    match limits.degraded() {
        None => route.target,
        Some(limits) => {
            headers.insert(DEGRADED, limits);
            route.degraded
        }
    }
}

impl Outgoing<'_> {
    pub(super) async fn forward(
        &self,
        target: RouteTarget,
        headers: HeaderMap,
        body: Body,
        admitted_at: Instant,
    ) -> Result<Response<Content>, Fault> {
        let RequestContext { config, peer, parts, protocol, .. } = *self.request;
        let compiled = &*config.compiled;
        let upgrade = protocol.can_upgrade() && body.is_empty() && headers::wants_upgrade(&headers);
        let outbound = OutboundHeaders {
            peer,
            caller: self.caller,
            host: self.route.host(),
            via: self.via,
            protocol,
            has_via: self.route.has_via,
            edits: &self.route.settings.request_headers,
            address_header: compiled.addresses.header(),
            key_headers: &compiled.counted,
            key_header_aliases: &compiled.doubles,
            by_method: compiled.by_method,
            degrades: compiled.degrades,
            warns: !compiled.guards.is_empty(),
            upgrade,
        };
        match target {
            RouteTarget::Echo => {
                echo::echo(&parts.method, &self.route.target, &outbound, &headers, body).await
            }
            RouteTarget::Upstream(index, patience) => {
                let upstream_request = UpstreamRequest {
                    upstream: &config.upstreams[index],
                    method: &parts.method,
                    target: self.route.target.as_bytes(),
                    outbound: &outbound,
                    signals: self.signals,
                    response_timeout: patience,
                    stall_timeout: compiled.settings.server.request_timeout,
                };
                upstream_request.send(headers, body, admitted_at).await
            }
        }
    }
}
