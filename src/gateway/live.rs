//! One worker's hold on the configuration it serves: what is shared, and its own connections.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use prometheus::local::LocalHistogram;

use super::compiled::Compiled;
use crate::config::settings::{self, StoreKind, Target};
use crate::telemetry::{AccessMeter, LimitMeter, RouteMeter};
use crate::upstream::{Servers, Upstream};

#[derive(Debug)]
pub struct Live {
    pub shared: Arc<Compiled>,
    pub routes: Vec<LiveRoute>,
    pub upstreams: Vec<Upstream>,
    /// One for each of [`Compiled::limits`].
    pub limit_meters: Vec<LimitMeter>,
    pub access_meter: AccessMeter,
    pub decision_seconds: LocalHistogram,
    /// Decisions that this node took alone.
    pub alone_seconds: LocalHistogram,
    /// Counts requests that match no route.
    pub unrouted: Rc<RouteMeter>,
}

#[derive(Debug)]
pub struct LiveRoute {
    pub target: LiveTarget,
    /// Where requests go that are marked as degraded.
    pub degraded: LiveTarget,
    pub meter: Rc<RouteMeter>,
    /// How many segments of the path the upstream does not see.
    pub stripped: usize,
}

#[derive(Debug, Clone, Copy)]
pub enum LiveTarget {
    Echo,
    /// An index into [`Live::upstreams`], and how long that upstream may take to answer.
    Upstream(usize, Duration),
}

/// What requests without a route are counted under: no name that a route can have.
pub(super) const NO_ROUTE: &str = "(none)";

impl Live {
    #[must_use]
    pub fn new(shared: Arc<Compiled>, servers: &Servers) -> Self {
        let settings = &shared.settings;
        let metrics = Rc::new(shared.metrics.clone());
        let target = |route: &settings::Route, target| match target {
            Target::Echo => LiveTarget::Echo,
            Target::Upstream(index) => {
                let usual = settings.upstreams[index].response_timeout;
                LiveTarget::Upstream(index, route.timeout.unwrap_or(usual))
            }
        };
        let live = |route: &settings::Route| LiveRoute {
            target: target(route, route.target),
            degraded: target(route, route.degrade.unwrap_or(route.target)),
            meter: Rc::new(RouteMeter::new(&route.name, &metrics)),
            stripped: route.strip_prefix.as_ref().map_or(0, |prefix| prefix.matches('/').count()),
        };
        let kind = match settings.store.kind {
            StoreKind::Memory => "memory",
            StoreKind::Redis(_) => "redis",
        };
        let decisions = |kind| metrics.decision_seconds.with_label_values(&[kind]).local();
        let upstreams = settings.upstreams.iter();
        let rules = shared.limits.iter();
        Live {
            routes: settings.routes.iter().map(live).collect(),
            upstreams: upstreams.map(|it| Upstream::new(it, servers, &metrics)).collect(),
            limit_meters: rules.map(|rule| LimitMeter::new(&rule.counters)).collect(),
            access_meter: AccessMeter::new(&metrics),
            decision_seconds: decisions(kind),
            alone_seconds: decisions("local"),
            unrouted: Rc::new(RouteMeter::new(NO_ROUTE, &metrics)),
            shared: shared.clone(),
        }
    }

    /// Adds what was counted here to the metrics everybody sees.
    pub fn flush_meters(&self) {
        self.unrouted.flush();
        self.access_meter.flush();
        self.decision_seconds.flush();
        self.alone_seconds.flush();
        self.limit_meters.iter().for_each(LimitMeter::flush);
        self.routes.iter().for_each(|route| route.meter.flush());
        self.upstreams.iter().for_each(Upstream::flush_meters);
    }
}
