//! The limits that apply to one request, each with the check it asks for.

use http::Method;
use smallvec::SmallVec;

use super::Planner;
use crate::gateway::compiled::{CompiledLimit, LimitVariant, Numbers, RouteLimit};
use crate::limit::key::KeyError;
use crate::limit::source::KeyInput;
use crate::limit::tenants::TenantBucket;
use crate::limit::trust::Score;
use crate::limit::{Condition, Policy, Strategy};
use crate::respond::Fault;
use crate::store::{BucketHasher, BucketId, BucketKeys, Check, KeyRange};

/// Side by side, so that a store sees nothing but checks. A few need no allocation.
#[derive(Debug, Default)]
pub struct PlannedLimits<'a> {
    pub limits: SmallVec<[&'a CompiledLimit; 4]>,
    /// What each of them asks the store.
    pub checks: SmallVec<[Check<'a>; 4]>,
    /// The numbers that hold for this caller, plan, overrides and trust included.
    pub numbers: SmallVec<[&'a Numbers; 4]>,
    /// The score that adaptive limits go by.
    pub score: Score,
    /// The keys of the buckets, where several gateways share them.
    pub keys: BucketKeys<'a>,
    /// The checks whose cost is charged when the response is known.
    pub deferred: SmallVec<[DeferredLimit<'a>; 1]>,
    /// The limits of the route that do not apply.
    pub skipped: SmallVec<[SkippedLimit; 4]>,
    /// Whether some are charged for as long as the request is under way.
    pub holds: bool,
    /// Whether some let admitted requests go one by one.
    pub paces: bool,
    /// Whether some have refused requests wait.
    pub queues: bool,
}

/// A limit whose cost is charged when the response is known.
#[derive(Debug)]
pub struct DeferredLimit<'a> {
    /// An index into [`PlannedLimits::checks`].
    pub check: usize,
    /// The cost, if the response does not say another.
    pub cost: u64,
    pub limit: &'a RouteLimit,
    /// The bucket of a tenant that it is charged to.
    pub tenant: Option<TenantBucket>,
}

/// A limit of the route that does not apply to the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SkippedLimit {
    /// An index into [`Compiled::limits`](crate::gateway::Compiled::limits).
    pub limit: u32,
    pub reason: SkipReason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkipReason {
    /// One of its conditions does not hold.
    Condition,
    /// The request lacks a part of its key, and the limit says to skip those.
    MissingKey,
    /// The request lacks a part of its key, or says it twice. The limit would have refused it for
    /// that, if it refused anything.
    Unkeyed,
}

/// The bucket that a limit charges for a request, and with how much.
pub(super) struct BucketCharge {
    bucket: BucketId,
    key: KeyRange,
    cost: u64,
}

impl<'a> PlannedLimits<'a> {
    /// Adds a check for each limit that applies.
    ///
    /// # Errors
    /// If an enforced limit needs a key that the request lacks, or carries twice.
    pub(super) fn collect(
        &mut self,
        planner: Planner<'a>,
        limits: &'a [RouteLimit],
        method: &Method,
        input: &KeyInput<'_>,
    ) -> Result<(), Fault> {
        for route_limit in limits {
            let limit = &planner.compiled.limits[route_limit.limit];
            let variant = limit.variant(input.who.plan.as_deref());
            let charge = match applies(&limit.limit.when, input, method) {
                Ok(true) => self.charge(planner.hasher, limit, variant, route_limit, input),
                Ok(false) => {
                    self.skip(limit, SkipReason::Condition);
                    continue;
                }
                Err(error) => Err(error),
            };
            match charge {
                Ok(charge) => self.add(limit, variant, route_limit, charge),
                Err(error) => self.without_key(limit, error)?,
            }
        }
        Ok(())
    }

    /// A limit applies, and the request lacks its key.
    ///
    /// # Errors
    /// If the limit is enforced and says not to skip such requests.
    pub(super) fn without_key(
        &mut self,
        limit: &CompiledLimit,
        error: KeyError,
    ) -> Result<(), Fault> {
        match error {
            KeyError::Skipped => self.skip(limit, SkipReason::MissingKey),
            error if limit.enforced => return Err(error.into()),
            // A limit that refuses nobody does not refuse for want of a key either.
            _ => self.skip(limit, SkipReason::Unkeyed),
        }
        Ok(())
    }

    /// The limits that would have refused the request for want of a key, if they were enforced.
    pub fn unkeyed(&self) -> impl Iterator<Item = usize> {
        let unkeyed = self.skipped.iter().filter(|it| it.reason == SkipReason::Unkeyed);
        unkeyed.map(|it| it.limit as usize)
    }

    pub(super) fn add(
        &mut self,
        limit: &'a CompiledLimit,
        variant: &'a LimitVariant,
        route_limit: &'a RouteLimit,
        charge: BucketCharge,
    ) {
        let deferred = route_limit.deferred;
        let effective = variant.effective(charge.bucket, self.score);
        let policy = &effective.numbers.policy;
        let cost = route_limit.cost.within(charge.cost, policy.quota());
        if deferred {
            let check = self.checks.len();
            self.deferred.push(DeferredLimit { check, cost, limit: route_limit, tenant: None });
        }
        let key = effective.name.map_or(charge.key, |name| self.keys.add_known(name));
        let is_held = policy.is_held();
        if deferred || is_held {
            self.keys.write_at_once(key);
        }
        self.holds |= is_held;
        self.paces |= matches!(policy, Policy::LeakyBucket(_));
        self.queues |= matches!(limit.limit.strategy, Strategy::Queue { .. });
        self.limits.push(limit);
        self.numbers.push(effective.numbers);
        // A request that is charged later only has to find something left.
        let cost = if deferred { 1 } else { cost };
        self.checks.push(Check {
            key,
            on_error: limit.limit.on_error,
            enforced: limit.enforced,
            spends: !deferred,
            may_lease: !matches!(limit.limit.strategy, Strategy::Queue { .. }),
            ..Check::new(policy, effective.prefix, effective.bucket, cost)
        });
    }

    pub(super) fn skip(&mut self, limit: &CompiledLimit, reason: SkipReason) {
        self.skipped.push(SkippedLimit { limit: limit.index as u32, reason });
    }

    pub(super) fn charge(
        &mut self,
        hasher: &BucketHasher,
        limit: &CompiledLimit,
        variant: &'a LimitVariant,
        route_limit: &RouteLimit,
        input: &KeyInput<'_>,
    ) -> Result<BucketCharge, KeyError> {
        let limit = &limit.limit;
        let mut bucket = hasher.start(variant.prefix);
        let key = match &variant.shared_prefix {
            None => {
                let part = |kind, bytes: &[u8]| bucket.part(kind as u8, bytes);
                limit.key.parts(input, limit.missing, part)?;
                KeyRange::default()
            }
            Some(prefix) => self.keys.add(prefix, |keys| {
                limit.key.parts(input, limit.missing, |kind, bytes| {
                    bucket.part(kind as u8, bytes);
                    keys.part(kind, bytes);
                })
            })?,
        };
        let cost = route_limit.cost.of_request(input.facts.headers, input.facts.query)?;
        Ok(BucketCharge { bucket: bucket.finish(), key, cost })
    }
}

/// Whether all conditions of a limit or a guard hold.
pub(super) fn applies(
    conditions: &[Condition],
    input: &KeyInput<'_>,
    method: &Method,
) -> Result<bool, KeyError> {
    for condition in conditions {
        if !condition.holds(input, method)? {
            return Ok(false);
        }
    }
    Ok(true)
}
