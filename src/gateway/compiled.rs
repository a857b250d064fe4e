//! A configuration, made ready to be served: names resolved, texts written, metrics looked up.

use std::sync::Arc;

use http::{HeaderName, HeaderValue, header};
use prometheus::IntGauge;

use crate::caller::Addresses;
use crate::config::Settings;
use crate::config::settings::{Route, StoreKind};
use crate::limit::{Cost, Limit, Mode, Policy, Source, Strategy};
use crate::respond::rate_headers::PolicyText;
use crate::respond::refusal::RefusalText;
use crate::route::Table;
use crate::store::BucketHasher;
use crate::store::redis::name;
use crate::telemetry::{Lines, Metrics};

/// What all workers share of one configuration.
#[derive(Debug)]
pub struct Compiled {
    pub settings: Arc<Settings>,
    pub table: Table,
    pub addresses: Addresses,
    /// Those of the configuration, in its order, and then their candidates.
    pub limits: Vec<Rule>,
    /// For each route what applies to it.
    pub applied: Vec<Vec<RouteLimit>>,
    /// Whether requests may be marked as degraded, which is not for a client to do.
    pub degrades: bool,
    /// The headers that limits count by.
    pub counted: Vec<HeaderName>,
    /// Those of them that have a `_`, written with `-`.
    pub doubles: Vec<String>,
    /// Whether the host is one of them.
    pub counts_host: bool,
    pub metrics: Metrics,
    pub access_log: Option<Lines>,
}

/// A limit on a route.
#[derive(Debug)]
pub struct RouteLimit {
    /// An index into [`Compiled::limits`].
    pub rule: usize,
    pub cost: Cost,
    /// What it costs is charged when the response is known.
    pub later: bool,
}

/// A limit with everything a request needs of it.
#[derive(Debug)]
pub struct Rule {
    /// Its place in the configuration.
    pub index: usize,
    pub limit: Limit,
    /// What the names of its buckets start from.
    pub prefix: u64,
    /// The same in a store that is shared with other gateways.
    pub shared_prefix: Option<Vec<u8>>,
    /// Whether a request passes depends on it.
    pub enforced: bool,
    pub policy_text: PolicyText,
    pub refusal_text: RefusalText,
    /// Requests that wait because of it.
    pub waiting: IntGauge,
    /// Its name as a header's value.
    pub mark: HeaderValue,
}

impl Compiled {
    #[must_use]
    pub fn new(
        settings: Arc<Settings>,
        hasher: &BucketHasher,
        metrics: &Metrics,
        access_log: Option<Lines>,
    ) -> Self {
        let shared = match &settings.store.kind {
            StoreKind::Memory => None,
            StoreKind::Redis(redis) => Some(redis.prefix.as_str()),
        };
        let candidates: Vec<(usize, Limit)> =
            settings.limits.iter().enumerate().filter_map(candidate).collect();
        let limits = settings.limits.iter().chain(candidates.iter().map(|(_, limit)| limit));
        let limits: Vec<Rule> = limits
            .enumerate()
            .map(|(index, limit)| Rule::new(index, limit, hasher, shared, metrics))
            .collect();
        let rules_of = |index: usize| {
            let beside = candidates.iter().position(|(of, _)| *of == index);
            [Some(index), beside.map(|place| settings.limits.len() + place)].into_iter().flatten()
        };
        let applied = |route: &Route| {
            let enabled = route.limits.iter().filter(|index| settings.limits[**index].enabled);
            enabled.flat_map(|index| rules_of(*index)).map(|rule| limits[rule].on(route)).collect()
        };
        let applied: Vec<Vec<RouteLimit>> = settings.routes.iter().map(applied).collect();
        let keys = settings.limits.iter().flat_map(|limit| &limit.key.0);
        let keys = keys.filter_map(|source| match source {
            Source::Header(name) => Some(name.clone()),
            _ => None,
        });
        let costs = applied.iter().flatten().filter_map(|limit| limit.cost.header().cloned());
        let mut counted: Vec<HeaderName> = Vec::new();
        for name in keys.chain(costs) {
            if !counted.contains(&name) {
                counted.push(name);
            }
        }
        Compiled {
            table: Table::new(&settings.routes),
            addresses: Addresses::new(&settings.identity),
            degrades: limits.iter().any(Rule::degrades),
            limits,
            applied,
            doubles: counted
                .iter()
                .filter(|name| name.as_str().contains('_'))
                .map(|name| name.as_str().replace('_', "-"))
                .collect(),
            counts_host: counted.contains(&header::HOST),
            counted,
            metrics: metrics.clone(),
            access_log,
            settings,
        }
    }
}

impl Rule {
    fn new(
        index: usize,
        limit: &Limit,
        hasher: &BucketHasher,
        shared: Option<&str>,
        metrics: &Metrics,
    ) -> Self {
        // A limit that counts by something else, or in another way, starts afresh.
        let kind = format!("{} {}", limit.policy.kind(), limit.key);
        Rule {
            index,
            prefix: hasher.limit_prefix(&limit.name, &kind),
            shared_prefix: shared.map(|prefix| name::prefix(prefix, &limit.name, &kind)),
            enforced: limit.mode == Mode::Enforce && limit.strategy != Strategy::Degrade,
            policy_text: PolicyText::new(limit),
            refusal_text: RefusalText::new(limit),
            waiting: waiting(limit, metrics),
            mark: HeaderValue::from_str(&limit.name)
                .unwrap_or_else(|_| HeaderValue::from_static("yes")),
            limit: limit.clone(),
        }
    }

    /// Whether requests that it does not admit are forwarded all the same.
    #[must_use]
    pub fn degrades(&self) -> bool {
        self.limit.mode == Mode::Enforce && self.limit.strategy == Strategy::Degrade
    }

    /// The limit as it applies to a route.
    fn on(&self, route: &Route) -> RouteLimit {
        let cost = route.cost.as_ref().unwrap_or(&self.limit.cost).clone();
        RouteLimit { rule: self.index, later: self.limit.charges_later(&cost), cost }
    }
}

/// Only limits that have requests wait are a series.
fn waiting(limit: &Limit, metrics: &Metrics) -> IntGauge {
    let queue = matches!(limit.strategy, Strategy::Queue { .. });
    if limit.mode == Mode::Enforce && (queue || matches!(limit.policy, Policy::LeakyBucket(_))) {
        metrics.queue_depth.with_label_values(&[&limit.name])
    } else {
        metrics.no_queue.clone()
    }
}

/// What a limit's candidate is: a limit beside it that only watches. No limit of the configuration
/// can be called so.
fn candidate((index, limit): (usize, &Limit)) -> Option<(usize, Limit)> {
    let policy = limit.candidate?;
    let candidate = Limit {
        name: format!("{}:candidate", limit.name),
        policy,
        mode: Mode::Shadow,
        strategy: Strategy::Reject,
        response_headers: false,
        candidate: None,
        ..limit.clone()
    };
    Some((index, candidate))
}
