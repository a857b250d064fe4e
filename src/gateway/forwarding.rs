//! Where an admitted request goes, and how it gets there.

use http::HeaderMap;
use tokio::time::Instant;

use super::RequestContext;
use super::outcomes::LimitOutcomes;
use super::plan::{IdentityFields, RequestAffinity, RouteMatch};
use super::signals::RequestSignals;
use super::worker_config::{RouteTarget, WorkerConfig};
use crate::body::Body;
use crate::caller::Caller;
use crate::config::settings::Target;
use crate::field_class::DEGRADED;
use crate::forward::headers::{self, OutboundHeaders};
use crate::forward::{ForwardedResponse, UpstreamRequest, echo};
use crate::respond::{Fault, route_answer};
use crate::upstream::KeyDigest;

/// An admitted request that is to be forwarded.
#[derive(Debug)]
pub(super) struct Outgoing<'a> {
    pub request: &'a RequestContext<'a>,
    pub route: &'a RouteMatch<'a>,
    pub caller: &'a Caller,
    /// What the upstream is told of the caller's names.
    pub identity: &'a IdentityFields,
    pub via: &'a str,
    pub signals: &'a RequestSignals,
    pub affinity: RequestAffinity,
}

/// Where an admitted request goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Destination {
    /// Where a degraded request goes first, if that is elsewhere.
    degraded: Option<RouteTarget>,
    target: RouteTarget,
}

impl Destination {
    /// The upstream that is asked first, as the configuration calls it; empty if none is.
    pub(super) fn name<'a>(&self, config: &'a WorkerConfig) -> &'a str {
        match self.degraded.unwrap_or(self.target) {
            RouteTarget::Echo => "echo",
            RouteTarget::Upstream(index, _) => &config.compiled.settings.upstreams[index].name,
            RouteTarget::Configured => "",
        }
    }
}

/// Where an admitted request goes. One that a limit with the strategy `degrade` did not admit is
/// marked, and may go elsewhere.
pub(super) fn destination(
    config: &WorkerConfig,
    route: &RouteMatch<'_>,
    limits: &LimitOutcomes<'_, '_>,
    headers: &mut HeaderMap,
) -> Destination {
    let route = &config.routes[route.index];
    let usual = Destination { degraded: None, target: route.target };
    if !route.fields.rules.degrades {
        return usual;
    }
    headers.remove(DEGRADED);
    match limits.degraded() {
        None => usual,
        Some(limits) => {
            headers.insert(DEGRADED, limits);
            Destination { degraded: route.degraded, ..usual }
        }
    }
}

impl Outgoing<'_> {
    /// A degraded request whose upstream cannot be reached goes where all others do: it is admitted,
    /// and a better answer than it was to get is better than none.
    pub(super) async fn forward(
        &self,
        destination: Destination,
        headers: &mut HeaderMap,
        body: Body,
        admitted_at: Instant,
    ) -> Result<ForwardedResponse, Fault> {
        let RequestContext { config, peer, protocol, .. } = *self.request;
        let upgrade = protocol.can_upgrade() && body.is_empty() && headers::wants_upgrade(headers);
        let outbound = OutboundHeaders {
            peer,
            caller: self.caller,
            host: self.route.host(),
            via: self.via,
            protocol,
            has_via: self.route.has_via,
            identity: self.identity,
            upgrade,
            fields: &config.routes[self.route.index].fields,
        };
        let mut body = Some(body);
        let RequestAffinity { target, degraded } = self.affinity;
        if let Some(to) = destination.degraded {
            let attempt = Attempt { to, affinity: degraded, outbound: &outbound, at: admitted_at };
            match self.send(attempt, headers, &mut body).await {
                Err(fault) if fault.is_unreached() && body.is_some() => {}
                sent => return sent,
            }
        }
        let to = destination.target;
        let attempt = Attempt { to, affinity: target, outbound: &outbound, at: admitted_at };
        self.send(attempt, headers, &mut body).await
    }

    async fn send(
        &self,
        attempt: Attempt<'_>,
        headers: &mut HeaderMap,
        body: &mut Option<Body>,
    ) -> Result<ForwardedResponse, Fault> {
        let RequestContext { config, parts, .. } = *self.request;
        let Attempt { to, affinity, outbound, at } = attempt;
        match to {
            RouteTarget::Configured => self.answer_configured(headers),
            RouteTarget::Echo => {
                let body = body.take().unwrap_or_else(Body::empty);
                echo::echo(&parts.method, &self.route.target, outbound, headers, body).await
            }
            RouteTarget::Upstream(index, patience) => {
                let upstream_request = UpstreamRequest {
                    upstream: &config.upstreams[index],
                    method: &parts.method,
                    client: config.compiled.addresses.counted(self.caller.ip),
                    affinity,
                    target: self.route.target.as_bytes(),
                    outbound,
                    signals: self.signals,
                    response_timeout: patience,
                    stall_timeout: config.compiled.settings.server.request_timeout,
                };
                upstream_request.send(headers, body, at).await
            }
        }
    }

    /// The answer that the configuration has for the route.
    fn answer_configured(&self, headers: &mut HeaderMap) -> Result<ForwardedResponse, Fault> {
        match &self.route.settings.target {
            Target::Redirect(redirect) => {
                route_answer::redirect(redirect, &self.route.target, headers)
            }
            Target::Respond(fixed) => Ok(route_answer::fixed(fixed, headers)),
            Target::Echo | Target::Upstream(_) => Err(Fault::Internal),
        }
    }
}

/// One of the places where a request may go.
struct Attempt<'a> {
    to: RouteTarget,
    affinity: Option<KeyDigest>,
    outbound: &'a OutboundHeaders<'a>,
    at: Instant,
}
