//! A tenant as operators see it.

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;

use super::tenants::ServedTenants;
use crate::config::show_rate;
use crate::gateway::CompiledBucket;
use crate::limit::fixed_window::Windows;
use crate::limit::tenants::{BucketPart, BudgetMode, Tenant, TenantBucket, TenantIndex};
use crate::limit::{Policy, Report};
use crate::respond::fault::sentence;
use crate::store::KnownBucket;
use crate::tenants::SetAside;

#[derive(Debug, Serialize)]
pub(super) struct TenantPage {
    pub(super) tenants: Vec<TenantView>,
    /// All that there are, on all pages.
    pub(super) total: usize,
    /// What the next page begins after.
    pub(super) next: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct TenantView {
    name: String,
    parent: Option<String>,
    /// None if it is set aside.
    level: Option<usize>,
    /// `file` or `run_time`.
    origin: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    sharing: String,
    budget: Option<BudgetView>,
    /// What its bucket holds and has left; none if that is split.
    effective: Option<BucketView>,
    /// What is left of its bucket besides the guarantees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<BucketView>,
    /// What its parent guarantees it.
    #[serde(skip_serializing_if = "Option::is_none")]
    guarantee: Option<BucketView>,
    /// Why it does not hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
    /// Only after a change.
    #[serde(skip_serializing_if = "Option::is_none")]
    warnings: Option<Vec<String>>,
}

impl TenantView {
    pub(super) fn with_warnings(mut self, warnings: &[String]) -> Self {
        self.warnings = Some(warnings.iter().map(|it| sentence(it)).collect());
        self
    }
}

#[derive(Debug, Serialize)]
struct BudgetView {
    mode: &'static str,
    total: u64,
    overcommit: f64,
    /// Where that is tracked.
    #[serde(skip_serializing_if = "Option::is_none")]
    allocated: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unallocated: Option<u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    guaranteed: BTreeMap<String, u64>,
}

#[derive(Debug, Serialize)]
struct BucketView {
    algorithm: &'static str,
    rate: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    burst: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    used: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    left: Option<u64>,
}

/// Puts the tenants of a tree into words.
pub(super) struct TenantViews<'s> {
    served: &'s ServedTenants,
    of_run_time: HashSet<String>,
}

impl<'s> TenantViews<'s> {
    pub(super) fn new(
        served: &'s ServedTenants,
        of_run_time: impl IntoIterator<Item = String>,
    ) -> Self {
        TenantViews { served, of_run_time: of_run_time.into_iter().collect() }
    }

    /// The buckets whose reports [`TenantViews::of`] needs, in that order.
    pub(super) fn buckets(&self, names: &[&str]) -> Vec<KnownBucket<'s>> {
        let found = names.iter().filter_map(|name| self.find(name));
        let buckets = found.flat_map(|of| self.parts(of).into_iter().flatten());
        let known = |it: &'s CompiledBucket| KnownBucket {
            bucket: it.bucket,
            limit_prefix: it.prefix,
            key: &it.key,
            policy: &it.numbers.policy,
        };
        buckets.map(known).collect()
    }

    /// Tenants with what they use. Names that are unknown are left out.
    pub(super) fn of(
        &self,
        names: &[&str],
        reports: &mut impl Iterator<Item = Report>,
    ) -> Vec<TenantView> {
        let view = |name: &&str| match self.find(name) {
            Some(of) => {
                let parts = self.parts(of);
                let parts = parts.map(|part| part.map(|bucket| (bucket, reports.next())));
                Some(self.view(of, parts))
            }
            None => self.set_aside(name).map(|it| self.view_set_aside(it)),
        };
        names.iter().filter_map(view).collect()
    }

    /// Tenants without what they use.
    pub(super) fn without_use(&self, names: &[&str]) -> Vec<TenantView> {
        self.of(names, &mut std::iter::empty())
    }

    fn find(&self, name: &str) -> Option<TenantIndex> {
        self.served.compiled.tree().find(name.as_bytes())
    }

    fn set_aside(&self, name: &str) -> Option<&SetAside> {
        self.served.merged.set_aside.iter().find(|it| it.tenant.name == name)
    }

    /// The buckets of a tenant: its own unless that is split, the pool, its guarantee.
    fn parts(&self, of: TenantIndex) -> [Option<&'s CompiledBucket>; 3] {
        let compiled = &self.served.compiled;
        let tenant = &compiled.tree()[of];
        let part = |of, part| Some(compiled.bucket(TenantBucket { of, part }));
        let guarantee = tenant.guarantee.and(tenant.parent);
        [
            if tenant.is_split() { None } else { part(of, BucketPart::Own) },
            tenant.pool.and_then(|_| part(of, BucketPart::Pool)),
            guarantee.and_then(|parent| part(parent, BucketPart::Guarantee(of))),
        ]
    }

    fn view(
        &self,
        of: TenantIndex,
        parts: [Option<(&CompiledBucket, Option<Report>)>; 3],
    ) -> TenantView {
        let tree = self.served.compiled.tree();
        let tenant = &tree[of];
        let [effective, pool, guarantee] =
            parts.map(|it| it.map(|(bucket, report)| bucket_view(&bucket.numbers.policy, report)));
        let name = tenant.spec.name.clone();
        // The file wins over one of run time.
        let fault = self.set_aside(&name).map(|it| sentence(&it.fault));
        let of_run_time = self.of_run_time.contains(&name) && fault.is_none();
        TenantView {
            parent: tenant.spec.parent.clone(),
            level: Some(tenant.level),
            origin: if of_run_time { "run_time" } else { "file" },
            description: tenant.spec.description.clone(),
            sharing: tenant.spec.sharing.name().to_owned(),
            budget: Some(budget_view(tenant)),
            effective,
            pool,
            guarantee,
            fault,
            warnings: None,
            name,
        }
    }

    fn view_set_aside(&self, it: &SetAside) -> TenantView {
        let body = &it.tenant.tenant;
        TenantView {
            name: it.tenant.name.clone(),
            parent: body.parent.clone(),
            level: None,
            origin: "run_time",
            description: body.description.clone(),
            sharing: body.sharing.clone().unwrap_or_else(|| "enforce".to_owned()),
            budget: None,
            effective: None,
            pool: None,
            guarantee: None,
            fault: Some(sentence(&it.fault)),
            warnings: None,
        }
    }
}

fn budget_view(tenant: &Tenant) -> BudgetView {
    let budget = &tenant.spec.budget;
    let tracked = budget.mode.is_tracked();
    BudgetView {
        mode: budget.mode.name(),
        total: tenant.total,
        overcommit: f64::from(budget.overcommit.hundredths()) / 100.0,
        allocated: tracked.then_some(tenant.allocated),
        unallocated: tracked.then(|| tenant.unallocated()),
        guaranteed: match &budget.mode {
            BudgetMode::Guaranteed(each) => each.iter().cloned().collect(),
            _ => BTreeMap::new(),
        },
    }
}

fn bucket_view(policy: &Policy, report: Option<Report>) -> BucketView {
    let (rate, burst) = match policy {
        Policy::TokenBucket(it) => (Some(it.rate()), Some(it.burst())),
        Policy::SlidingWindow(it) => (Some(it.rate()), None),
        Policy::FixedWindow(it) => match it.windows() {
            Windows::Every(rate) => (Some(rate), None),
            Windows::Calendar(_) => (None, None),
        },
        _ => (None, None),
    };
    BucketView {
        algorithm: policy.algorithm(),
        rate: rate.map(show_rate).unwrap_or_default(),
        burst,
        used: report.map(|it| policy.quota().saturating_sub(it.remaining)),
        left: report.map(|it| it.remaining),
    }
}
