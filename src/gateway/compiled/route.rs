//! A route, made ready: which limits and guards apply to it, and what its upstream sees of the path.

use std::sync::Arc;

use super::CompiledLimit;
use crate::config::settings::{EncodedSlash, ForwardPath, Route};
use crate::gateway::plan::RouteAffinity;
use crate::limit::Cost;
use crate::route::PathTemplate;

/// A route, as planning needs it.
#[derive(Debug)]
pub struct CompiledRoute {
    pub limits: Vec<RouteLimit>,
    /// The limit named `tenants`, if it is one of them.
    pub tenants: Option<RouteLimit>,
    /// Indexes into [`Compiled::guards`](super::Compiled::guards).
    pub guards: Vec<usize>,
    /// By what the servers of its upstreams are chosen, if by something of the request.
    pub affinity: Option<RouteAffinity>,
    /// Whether its requests are passed on, in any case.
    pub is_forwarded: bool,
    pub upstream_path: UpstreamPath,
    /// Whether an escaped slash is part of its segment.
    pub keeps_slashes: bool,
}

/// What the upstream sees of a path.
#[derive(Debug)]
pub enum UpstreamPath {
    /// All of it, in its normal spelling.
    Normalized,
    /// All of it, as it came.
    AsReceived,
    /// What follows so many leading segments.
    Stripped(usize),
    Rewritten(PathTemplate),
}

/// A limit on a route.
#[derive(Debug)]
pub struct RouteLimit {
    /// An index into [`Compiled::limits`](super::Compiled::limits).
    pub limit: usize,
    pub cost: Cost,
    /// Its cost is charged when the response is known.
    pub deferred: bool,
}

impl CompiledRoute {
    pub(super) fn new<'a>(
        route: &Route,
        limits: impl Iterator<Item = &'a CompiledLimit>,
        tenants: Option<&Arc<CompiledLimit>>,
        affinity: Option<RouteAffinity>,
    ) -> Self {
        let upstream_path = match (&route.rewrite, &route.strip_prefix, route.forward_path) {
            (Some(template), ..) => UpstreamPath::Rewritten(template.clone()),
            (None, Some(prefix), _) => UpstreamPath::Stripped(prefix.matches('/').count()),
            (None, None, ForwardPath::AsReceived) => UpstreamPath::AsReceived,
            (None, None, ForwardPath::Normalized) => UpstreamPath::Normalized,
        };
        CompiledRoute {
            limits: limits.map(|it| it.on(route)).collect(),
            tenants: tenants.map(|it| it.on(route)),
            guards: route.guards.clone(),
            affinity,
            is_forwarded: route.target.is_upstream(),
            upstream_path,
            keeps_slashes: route.encoded_slash == EncodedSlash::Keep,
        }
    }
}
