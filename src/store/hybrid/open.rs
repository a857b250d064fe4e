//! Opening the store: everything but deciding is that of `kind = "redis"`.

use std::sync::Arc;

use prometheus::IntGauge;

use super::HybridStore;
use super::lease_table::LeaseStats;
use super::timing::LeaseTiming;
use crate::config::settings::{self, StoreKind};
use crate::store::redis::{self, RedisShared, StoreShape};
use crate::store::{AnyStore, OpenedStore, StoreContext};
use crate::telemetry::Metrics;

pub(in crate::store) fn open(
    settings: &settings::Store,
    context: StoreContext<'_>,
) -> Result<OpenedStore, getrandom::Error> {
    let StoreKind::Hybrid(hybrid) = &settings.kind else {
        unreachable!("the kind has chosen this store")
    };
    let timing = LeaseTiming::new(hybrid.sync_interval);
    let metrics = LeaseMetrics::new(context.metrics);
    let worker_store = move |shared: &Arc<RedisShared>| {
        AnyStore::Hybrid(HybridStore::start(shared, timing, metrics.clone()))
    };
    let shape = StoreShape { kind: "hybrid", worker_store: Box::new(worker_store) };
    redis::open_as(shape, &hybrid.redis, settings, context)
}

/// What all workers together hold.
#[derive(Debug, Clone)]
pub(super) struct LeaseMetrics {
    active: IntGauge,
    dry: IntGauge,
    tokens: IntGauge,
}

impl LeaseMetrics {
    fn new(metrics: &Metrics) -> Self {
        let leases = |state| metrics.leases.with_label_values(&[state]);
        LeaseMetrics {
            active: leases("active"),
            dry: leases("dry"),
            tokens: metrics.lease_tokens.clone(),
        }
    }

    /// A worker holds something else than it did.
    pub(super) fn update(&self, before: LeaseStats, after: LeaseStats) {
        let add = |gauge: &IntGauge, before: u64, after: u64| {
            gauge.add(after.cast_signed().wrapping_sub(before.cast_signed()));
        };
        add(&self.active, before.active, after.active);
        add(&self.dry, before.dry, after.dry);
        add(&self.tokens, before.tokens, after.tokens);
    }
}
