//! The limit named `tenants`: a check for the caller's tenant, and one for each ancestor that it has to
//! pass.

use http::Method;

use super::Planner;
use super::limits::{DeferredLimit, PlannedLimits, SkipReason, applies};
use crate::gateway::compiled::{CompiledLimit, RouteLimit};
use crate::limit::key::KeyError;
use crate::limit::source::KeyInput;
use crate::limit::tenants::{TenantBucket, TenantIndex, TenantStep, TenantTree};
use crate::limit::{Missing, Source};
use crate::respond::Fault;
use crate::store::{Check, Choice};

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
        let within = |buckets: &[TenantBucket]| {
            let quotas = buckets.iter().map(|it| tenants.bucket(*it).numbers.policy.quota());
            route_limit.cost.within(cost, quotas.max().unwrap_or(0))
        };
        let mut add = |bucket: TenantBucket, cost, choice| {
            let level = tree[bucket.of].level;
            self.add_bucket(planner, route_limit, bucket, level, cost, choice);
        };
        for step in tree.steps(tenant) {
            match step {
                TenantStep::One(bucket) => add(bucket, within(&[bucket]), Choice::Alone),
                // The two agree in their cost, and the larger of them may take all of it.
                TenantStep::FirstOf(guarantee, pool) => {
                    let cost = within(&[guarantee, pool]);
                    add(guarantee, cost, Choice::First);
                    add(pool, cost, Choice::Second);
                }
            }
        }
        Ok(self.checks.len() > before)
    }

    fn add_bucket(
        &mut self,
        planner: Planner<'a>,
        route_limit: &'a RouteLimit,
        bucket: TenantBucket,
        level: usize,
        cost: u64,
        choice: Choice,
    ) {
        let compiled = planner.compiled;
        let limit = &compiled.limits[compiled.first_level() + level - 1];
        let of_tenant = compiled.tenants.bucket(bucket);
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
            key: self.keys.push(&of_tenant.key),
            on_error: limit.limit.on_error,
            enforced: limit.enforced,
            spends: !route_limit.deferred,
            together: true,
            choice,
            ..Check::new(policy, of_tenant.prefix, of_tenant.bucket, cost)
        });
    }
}
