//! One worker's hold on the configuration it serves: what is shared, and its own connections.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use prometheus::Histogram;

use super::compiled::Compiled;
use crate::config::settings::{self, Target};
use crate::telemetry::RouteMeter;
use crate::upstream::{Servers, Upstream};

#[derive(Debug)]
pub struct Live {
    pub shared: Arc<Compiled>,
    pub routes: Vec<LiveRoute>,
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
    Upstream { upstream: Rc<Upstream>, seconds: Histogram, patience: Duration },
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
                        .with_label_values(&[settings.upstreams[index].name.as_str()]),
                },
            },
            meter: Rc::new(RouteMeter::new(&route.name, &shared.metrics)),
            stripped: route.strip_prefix.as_ref().map_or(0, |prefix| prefix.matches('/').count()),
        };
        Live {
            routes: settings.routes.iter().map(live).collect(),
            unrouted: Rc::new(RouteMeter::new("none", &shared.metrics)),
            shared: shared.clone(),
        }
    }
}
