//! The limit named `tenants`: a check for the caller's tenant, and one for each ancestor that it has to
//! pass.

use http::Method;

use super::Planner;
use super::limits::{DeferredLimit, PlannedLimits, SkipReason, applies};
use crate::gateway::compiled::{CompiledBucket, CompiledLimit, RouteLimit};
use crate::limit::key::KeyError;
use crate::limit::source::KeyInput;
use crate::limit::tenants::{TenantBucket, TenantIndex, TenantStep, TenantTree};
use crate::limit::{Missing, Source};
use crate::respond::Fault;
use crate::store::{Check, Choice};

/// A bucket that the caller has to pass.
#[derive(Clone, Copy)]
struct PlannedBucket<'a> {
    bucket: TenantBucket,
    compiled: &'a CompiledBucket,
}

impl<'a> PlannedLimits<'a> {
    /// Adds the checks of the caller's tenant, or what holds for callers without one.
    ///
    /// # Errors
    /// If the limit is enforced and the tenant is not known or said twice.
    pub(super) fn collect_tenants(
        &mut self,
        planner: Planner<'a>,
        tree: &TenantTree,
        route_limit: &'a RouteLimit,
        method: &Method,
        input: &KeyInput<'_>,
    ) -> Result<(), Fault> {
        let limit = &planner.compiled.limits[route_limit.limit];
        match applies(&limit.limit.when, input, method) {
            Ok(true) => {}
            Ok(false) => {
                self.skip(limit, SkipReason::Condition);
                return Ok(());
            }
            Err(error) => return self.without_key(limit, error),
        }
        let tenant = input.who.tenant.as_deref().and_then(|name| tree.find(name));
        let planned = match tenant {
            Some(tenant) => self.add_tenant(planner, tree, route_limit, tenant, input),
            None => Ok(false),
        };
        let planned = planned.and_then(|planned| match planned {
            true => Ok(()),
            false => self.add_unknown(planner, limit, route_limit, input),
        });
        planned.or_else(|error| self.without_key(limit, error))
    }

    /// Whoever is not in the tree is counted in a bucket of the limit itself, if at all.
    fn add_unknown(
        &mut self,
        planner: Planner<'a>,
        limit: &'a CompiledLimit,
        route_limit: &'a RouteLimit,
        input: &KeyInput<'_>,
    ) -> Result<(), KeyError> {
        match limit.limit.missing {
            Missing::Skip => return Err(KeyError::Skipped),
            Missing::Deny if input.who.unknown_key => return Err(KeyError::UnknownKey),
            Missing::Deny if input.who.tenant.is_some() => return Err(KeyError::UnknownTenant),
            Missing::Deny => return Err(KeyError::Missing(Source::Tenant)),
            Missing::Ip | Missing::Shared => {}
        }
        let variant = &limit.default_variant;
        let charge = self.charge(planner.hasher, limit, variant, route_limit, input)?;
        self.add(limit, variant, route_limit, charge);
        Ok(())
    }

    /// False if the tenant has nothing for its own callers: they are as good as unknown.
    fn add_tenant(
        &mut self,
        planner: Planner<'a>,
        tree: &TenantTree,
        route_limit: &'a RouteLimit,
        tenant: TenantIndex,
        input: &KeyInput<'_>,
    ) -> Result<bool, KeyError> {
        let cost = route_limit.cost.of_request(input.facts.headers, input.facts.query)?;
        let before = self.checks.len();
        let tenants = &planner.compiled.tenants;
        let planned = |bucket| PlannedBucket { bucket, compiled: tenants.bucket(bucket) };
        let quota = |it: &PlannedBucket<'_>| it.compiled.numbers.policy.quota();
        for step in tree.steps(tenant) {
            match step {
                TenantStep::One(bucket) => {
                    let own = planned(bucket);
                    let cost = route_limit.cost.within(cost, quota(&own));
                    self.add_bucket(planner, tree, route_limit, own, cost, Choice::Alone);
                }
                // The two agree in their cost, and the larger of them may take all of it.
                TenantStep::FirstOf(guarantee, pool) => {
                    let (first, second) = (planned(guarantee), planned(pool));
                    let cost = route_limit.cost.within(cost, quota(&first).max(quota(&second)));
                    self.add_bucket(planner, tree, route_limit, first, cost, Choice::First);
                    self.add_bucket(planner, tree, route_limit, second, cost, Choice::Second);
                }
            }
        }
        Ok(self.checks.len() > before)
    }

    fn add_bucket(
        &mut self,
        planner: Planner<'a>,
        tree: &TenantTree,
        route_limit: &'a RouteLimit,
        planned: PlannedBucket<'a>,
        cost: u64,
        choice: Choice,
    ) {
        let PlannedBucket { bucket, compiled: of_tenant } = planned;
        let compiled = planner.compiled;
        let limit = &compiled.limits[compiled.first_level() + tree[bucket.of].level - 1];
        if route_limit.deferred {
            let (check, tenant) = (self.checks.len(), Some(bucket));
            self.deferred.push(DeferredLimit { check, cost, limit: route_limit, tenant });
        }
        self.limits.push(limit);
        self.numbers.push(&of_tenant.numbers);
        // A request that is charged later only has to find something left.
        let cost = if route_limit.deferred { 1 } else { cost };
        let policy = &of_tenant.numbers.policy;
        self.checks.push(Check {
            key: self.keys.add_known(&of_tenant.key),
            on_error: limit.limit.on_error,
            enforced: limit.enforced,
            spends: !route_limit.deferred,
            together: true,
            choice,
            ..Check::new(policy, of_tenant.prefix, of_tenant.bucket, cost)
        });
    }
}
