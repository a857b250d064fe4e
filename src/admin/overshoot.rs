//! `weir_overshoot_bound`: what each limit may admit beyond its promise.

use crate::config::settings::Settings;
use crate::limit::{Limit, OnError};
use crate::store::StoreControl;
use crate::telemetry::Metrics;

/// Brings the gauges up to date. A store that no other gateway shares always keeps its promise, and has
/// none.
pub(super) fn update(metrics: &Metrics, store: &dyn StoreControl, settings: &Settings) {
    if !store.is_shared() {
        return;
    }
    let alone = store.alone_among();
    for limit in settings.limits.iter().filter(|limit| limit.enabled) {
        let gauge = metrics.overshoot_bound.with_label_values(&[&limit.name]);
        gauge.set(alone.map_or(0.0, |nodes| bound(limit, nodes)));
    }
}

/// What one of so many gateways that decide alone may admit on top of what the store has counted: its
/// share of the burst, or of the window's count.
fn bound(limit: &Limit, nodes: u64) -> f64 {
    let plans = limit.plans.iter().map(|(_, policy)| policy.quota());
    let quota = plans.fold(limit.policy.quota(), u64::max);
    match limit.on_error {
        OnError::Local => (quota / nodes.max(1)).max(1) as f64,
        OnError::Allow => f64::INFINITY,
        OnError::Deny => 0.0,
    }
}
