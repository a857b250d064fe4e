//! The configuration as one worker serves it: what all workers share, and the worker's own upstream
//! connections and meters.

use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use prometheus::local::LocalHistogram;

use super::compiled::Compiled;
use crate::config::settings::{self, Target};
use crate::forward::field_rules::RouteFields;
use crate::limit::tenants::TenantTree;
use crate::telemetry::{AccessMeter, GuardMeter, LimitMeter, RouteMeter};
use crate::upstream::{Servers, Upstream};

#[derive(Debug)]
pub(super) struct WorkerConfig {
    pub compiled: Arc<Compiled>,
    pub routes: Rc<[WorkerRoute]>,
    pub upstreams: Rc<[Upstream]>,
    /// One for each of [`Compiled::limits`].
    pub limit_meters: Rc<[LimitMeter]>,
    /// One for each of [`Compiled::guards`].
    pub guard_meters: Rc<[GuardMeter]>,
    pub access_meter: AccessMeter,
    pub decision_seconds: LocalHistogram,
    /// Decisions that this gateway took without its shared store.
    pub alone_seconds: LocalHistogram,
    /// Counts requests that match no route.
    pub unrouted: Rc<RouteMeter>,
}

/// The tenants of a configuration. Requests of one worker share it among themselves, so that they do not
/// write to a counter that all workers have in common.
#[derive(Debug)]
pub(super) struct WorkerTree(pub(super) Arc<TenantTree>);

impl Deref for WorkerTree {
    type Target = TenantTree;

    fn deref(&self) -> &TenantTree {
        &self.0
    }
}

#[derive(Debug)]
pub(super) struct WorkerRoute {
    pub target: RouteTarget,
    /// Where requests go that are marked as degraded, if that is elsewhere.
    pub degraded: Option<RouteTarget>,
    /// Which fields pass on it. Routes that edit none share one.
    pub fields: Rc<RouteFields>,
    pub meter: Rc<RouteMeter>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum RouteTarget {
    Echo,
    /// An index into [`WorkerConfig::upstreams`], and how long that upstream may take to answer.
    Upstream(usize, Duration),
    /// The answer is in the settings of the route.
    Configured,
}

/// The route label of requests that match no route. No route can have this name.
pub(super) const NO_ROUTE: &str = "(none)";

impl WorkerConfig {
    pub(super) fn new(compiled: Arc<Compiled>, servers: &Servers) -> Self {
        let settings = &compiled.settings;
        let metrics = Rc::new(compiled.metrics.clone());
        let target = |route: &settings::Route, target: &Target| match target {
            Target::Echo => RouteTarget::Echo,
            Target::Upstream(index) => {
                let usual = settings.upstreams[*index].response_timeout;
                RouteTarget::Upstream(*index, route.timeout.unwrap_or(usual))
            }
            Target::Redirect(_) | Target::Respond(_) => RouteTarget::Configured,
        };
        let rules = &compiled.field_rules;
        let unedited = Rc::new(RouteFields { rules: rules.clone(), ..RouteFields::default() });
        let fields = |route: &settings::Route| {
            let (request, response) = (&route.request_headers, &route.response_headers);
            match request.is_empty() && response.is_empty() {
                true => unedited.clone(),
                false => Rc::new(RouteFields {
                    rules: rules.clone(),
                    request_edits: request.clone(),
                    response_edits: response.clone(),
                }),
            }
        };
        let worker_route = |route: &settings::Route| WorkerRoute {
            target: target(route, &route.target),
            degraded: route.degrade.as_ref().map(|it| target(route, it)),
            fields: fields(route),
            meter: Rc::new(RouteMeter::new(&route.name, &metrics)),
        };
        let decisions = |kind| metrics.decision_seconds.with_label_values(&[kind]).local();
        let upstreams = settings.upstreams.iter();
        let (limits, guards) = (compiled.limits.iter(), compiled.guards.iter());
        WorkerConfig {
            routes: settings.routes.iter().map(worker_route).collect(),
            upstreams: upstreams.map(|it| Upstream::new(it, servers, &metrics)).collect(),
            limit_meters: limits.map(|limit| LimitMeter::new(&limit.counters)).collect(),
            guard_meters: guards.map(|guard| GuardMeter::new(&guard.counters)).collect(),
            access_meter: AccessMeter::new(&metrics),
            decision_seconds: decisions(settings.store.kind.name()),
            alone_seconds: decisions("local"),
            unrouted: Rc::new(RouteMeter::new(NO_ROUTE, &metrics)),
            compiled: compiled.clone(),
        }
    }

    /// What serves another configuration after this one. Overrides come and go while the settings
    /// stay, and a worker with thousands of routes must not stand still to build them all anew.
    pub(super) fn replaced_by(&self, compiled: Arc<Compiled>, servers: &Servers) -> Self {
        if !Arc::ptr_eq(&self.compiled.settings, &compiled.settings) {
            return WorkerConfig::new(compiled, servers);
        }
        // There may be more or fewer levels of tenants than before. A series is the same in all meters.
        let limits = &compiled.limits;
        let limit_meters = match self.limit_meters.len() == limits.len() {
            true => self.limit_meters.clone(),
            false => limits.iter().map(|limit| LimitMeter::new(&limit.counters)).collect(),
        };
        WorkerConfig {
            compiled,
            routes: self.routes.clone(),
            upstreams: self.upstreams.clone(),
            limit_meters,
            guard_meters: self.guard_meters.clone(),
            // Clones of these begin at zero, so nothing is counted twice.
            access_meter: self.access_meter.clone(),
            decision_seconds: self.decision_seconds.clone(),
            alone_seconds: self.alone_seconds.clone(),
            unrouted: self.unrouted.clone(),
        }
    }

    /// Adds what was counted here to the shared metrics.
    pub(super) fn flush_meters(&self) {
        self.unrouted.flush();
        self.access_meter.flush();
        self.decision_seconds.flush();
        self.alone_seconds.flush();
        self.limit_meters.iter().for_each(LimitMeter::flush);
        self.guard_meters.iter().for_each(GuardMeter::flush);
        self.routes.iter().for_each(|route| route.meter.flush());
        self.upstreams.iter().for_each(Upstream::flush_meters);
    }
}

#[cfg(test)]
mod tests;
