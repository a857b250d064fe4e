//! Room for debts, where limits and routes come together.
//!
//! What is charged once the response is known cannot be refused any more, so a limit that is
//! charged so must be able to owe it.

use crate::config::settings::Route;
use crate::limit::tenants::TenantLimit;
use crate::limit::{Cost, Limit};

pub(super) fn reserve_debts(limits: &mut [Limit], routes: &[Route]) {
    let mut debts: Vec<u64> = limits.iter().map(|limit| debt(limit, &limit.cost)).collect();
    for route in routes {
        let Some(cost) = &route.cost else { continue };
        for &at in &route.limits {
            debts[at] = debts[at].max(debt(&limits[at], cost));
        }
    }
    for (limit, debt) in limits.iter_mut().zip(debts).filter(|(_, debt)| *debt > 0) {
        limit.policy = limit.policy.with_debt(debt);
        for (_, policy) in &mut limit.plans {
            *policy = policy.with_debt(debt);
        }
        limit.candidate = limit.candidate.map(|it| it.with_debt(debt));
    }
}

/// What requests of any route charge to the buckets of tenants once their response is known.
pub(super) fn tenant_costs_after(limit: &TenantLimit, routes: &[Route]) -> Vec<Cost> {
    let own = routes.iter().filter(|route| route.tenants);
    let costs = own.map(|route| route.cost.as_ref().unwrap_or(&limit.cost));
    let mut after: Vec<Cost> = Vec::new();
    for cost in costs.filter(|cost| cost.is_of_response()) {
        if !after.contains(cost) {
            after.push(cost.clone());
        }
    }
    after
}

/// How far below zero requests of that cost may push a limit.
fn debt(limit: &Limit, cost: &Cost) -> u64 {
    match cost {
        _ if !limit.charges_later(cost) => 0,
        Cost::Fixed(_) => limit.policy.quota(),
        Cost::Dynamic { .. } => cost.most(limit.policy.quota()),
    }
}
