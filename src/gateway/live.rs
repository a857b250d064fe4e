//! One worker's hold on the configuration it serves: what is shared, and its own connections.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use prometheus::local::LocalHistogram;

use super::compiled::Compiled;
use crate::config::settings::{self, Target};
use crate::telemetry::{LimitMeter, RouteMeter};
use crate::upstream::{Servers, Upstream};

#[derive(Debug)]
pub struct Live {
    pub shared: Arc<Compiled>,
    pub routes: Vec<LiveRoute>,
    /// One for each limit of the configuration.
    pub limit_meters: Vec<LimitMeter>,
    pub decision_seconds: LocalHistogram,
    /// Counts requests that match no route.
    pub unrouted: Rc<RouteMeter>,
}

#[derive(Debug)]
pub struct LiveRoute {
    pub target: LiveTarget,
    pub meter: Rc<RouteMeter>,
    /// How many segments of the path the upstream does not see.
    pub stripped: usize,
}

#[derive(Debug)]
pub enum LiveTarget {
    Echo,
    Upstream { upstream: Rc<Upstream>, seconds: LocalHistogram, patience: Duration },
}

impl Live {
    #[must_use]
    pub fn new(shared: Arc<Compiled>, servers: &Servers) -> Self {
        let settings = &shared.settings;
        let upstreams: Vec<_> = settings
            .upstreams
            .iter()
            .map(|upstream| Rc::new(Upstream::new(upstream, servers)))
            .collect();
        let live = |route: &settings::Route| LiveRoute {
            target: match route.target {
                Target::Echo => LiveTarget::Echo,
                Target::Upstream(index) => LiveTarget::Upstream {
                    patience: route.timeout.unwrap_or(upstreams[index].response_timeout),
                    upstream: upstreams[index].clone(),
                    seconds: shared
                        .metrics
                        .upstream_seconds
                        .with_label_values(&[settings.upstreams[index].name.as_str()])
                        .local(),
                },
            },
            meter: Rc::new(RouteMeter::new(&route.name, &shared.metrics)),
            stripped: route.strip_prefix.as_ref().map_or(0, |prefix| prefix.matches('/').count()),
        };
        Live {
            routes: settings.routes.iter().map(live).collect(),
            limit_meters: settings
                .limits
                .iter()
                .map(|limit| LimitMeter::new(&limit.name, &shared.metrics))
                .collect(),
            decision_seconds: shared
                .metrics
                .decision_seconds
                .with_label_values(&["memory"])
                .local(),
            unrouted: Rc::new(RouteMeter::new("none", &shared.metrics)),
            shared: shared.clone(),
        }
    }

    /// Adds what was counted here to the metrics everybody sees.
    pub fn flush_meters(&self) {
        self.unrouted.flush();
        self.decision_seconds.flush();
        self.limit_meters.iter().for_each(LimitMeter::flush);
        for route in &self.routes {
            route.meter.flush();
            if let LiveTarget::Upstream { seconds, .. } = &route.target {
                seconds.flush();
            }
        }
    }
}
