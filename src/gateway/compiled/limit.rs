//! A limit as requests need it: its numbers for each plan, its texts, counters and gauges.

use http::HeaderValue;
use prometheus::IntGauge;

use super::RouteLimit;
use super::variant::{BucketNaming, LimitVariant};
use crate::config::settings::Route;
use crate::limit::trust::Score;
use crate::limit::{Limit, Mode, Policy, Strategy};
use crate::overrides::KeyNumbers;
use crate::respond::refusal::RefusalText;
use crate::store::BucketId;
use crate::telemetry::{LimitCounters, Metrics};

#[derive(Debug, Clone)]
pub struct CompiledLimit {
    /// Its index in [`Compiled::limits`](super::Compiled::limits).
    pub index: usize,
    pub limit: Limit,
    /// Whether a request that it refuses is refused.
    pub enforced: bool,
    pub refusal_text: RefusalText,
    /// For callers of no plan, or of one that it has no other numbers for.
    pub default_variant: LimitVariant,
    /// For callers of a plan, by its name.
    pub plans: Vec<(Vec<u8>, LimitVariant)>,
    pub counters: LimitCounters,
    /// How many requests wait because of it.
    pub queue_depth: IntGauge,
    /// Its name as a header's value.
    pub header_name: HeaderValue,
}

impl CompiledLimit {
    pub(super) fn new(
        index: usize,
        limit: &Limit,
        naming: BucketNaming<'_>,
        overrides: &[KeyNumbers<'_>],
        metrics: &Metrics,
    ) -> Self {
        let plans = limit.plans.iter().map(|(plan, policy)| {
            let variant = LimitVariant::new(limit, Some(plan), policy, naming, overrides);
            (plan.clone().into_bytes(), variant)
        });
        CompiledLimit {
            index,
            enforced: limit.mode == Mode::Enforce && limit.strategy != Strategy::Degrade,
            refusal_text: RefusalText::new(limit),
            default_variant: LimitVariant::new(limit, None, &limit.policy, naming, overrides),
            plans: plans.collect(),
            counters: LimitCounters::new(limit, metrics),
            queue_depth: queue_depth(limit, metrics),
            header_name: HeaderValue::from_str(&limit.name)
                .unwrap_or_else(|_| HeaderValue::from_static("yes")),
            limit: limit.clone(),
        }
    }

    /// What callers of a plan are held to.
    #[inline]
    pub fn variant(&self, plan: Option<&[u8]>) -> &LimitVariant {
        let of_plan = plan.and_then(|name| self.plans.iter().find(|(plan, _)| plan == name));
        of_plan.map_or(&self.default_variant, |(_, variant)| variant)
    }

    /// The numbers that hold by now for a bucket that a check was made on, for a caller of that score.
    /// `None` if no caller has such a bucket any more.
    pub fn policy_of(&self, prefix: u64, bucket: BucketId, score: Score) -> Option<&Policy> {
        let plans = self.plans.iter().map(|(_, variant)| variant);
        let mut variants = std::iter::once(&self.default_variant).chain(plans);
        variants.find_map(|variant| variant.policy_of(prefix, bucket, score))
    }

    /// Takes into account the numbers that other workers or gateways serve at the same time: what
    /// those still count is not clamped here.
    pub(super) fn coexist_with(&mut self, other: &CompiledLimit) {
        self.default_variant.coexist_with(&other.default_variant);
        for (plan, variant) in &mut self.plans {
            if let Some((_, other)) = other.plans.iter().find(|(name, _)| name == plan) {
                variant.coexist_with(other);
            }
        }
    }

    /// Whether requests that it does not admit are forwarded all the same.
    pub fn degrades(&self) -> bool {
        self.limit.mode == Mode::Enforce && self.limit.strategy == Strategy::Degrade
    }

    /// The limit as it applies to a route.
    pub(super) fn on(&self, route: &Route) -> RouteLimit {
        let cost = route.cost.as_ref().unwrap_or(&self.limit.cost).clone();
        RouteLimit { limit: self.index, deferred: self.limit.charges_later(&cost), cost }
    }
}

/// The gauge of a limit that has requests wait. Others have no series.
fn queue_depth(limit: &Limit, metrics: &Metrics) -> IntGauge {
    let queue = matches!(limit.strategy, Strategy::Queue { .. });
    if limit.mode == Mode::Enforce && (queue || matches!(limit.policy, Policy::LeakyBucket(_))) {
        metrics.queue_depth.with_label_values(&[&limit.name])
    } else {
        metrics.no_queue.clone()
    }
}
