//! What a tenant has for its children, and whether that is enough.

use std::time::Duration;

use hashbrown::{HashMap, HashSet};

use super::build::{Draft, Findings};
use super::fault::{Allocation, TenantFaultKind, TenantWarningKind};
use super::numbers::{Numbers, SplitBucket, count_in, is_faster};
use super::order::Place;
use super::{BudgetMode, Overcommit, Sharing, TenantSpec};
use crate::limit::policy::Policy;
use crate::limit::rate::{MAX_COUNT, Rate};

/// The budget of a tenant.
pub(super) struct CheckedBudget {
    pub(super) total: u64,
    pub(super) allocated: u64,
    pub(super) pool: Option<Policy>,
    /// The children that have one, by their places.
    pub(super) guarantees: Vec<(usize, Policy)>,
}

/// A tenant and its children.
struct Family<'t> {
    spec: &'t TenantSpec,
    numbers: Numbers,
    /// In which its budget counts.
    window_us: u64,
    total: u64,
    children: Vec<Child<'t>>,
}

struct Child<'t> {
    place: usize,
    spec: &'t TenantSpec,
    numbers: Option<Numbers>,
}

/// What a tenant's budget comes to; nothing if its numbers are not known or the budget has faults.
pub(super) fn check_budget(
    specs: &[TenantSpec],
    place: &Place,
    numbers: Option<Numbers>,
    places: &[Place],
    drafts: &[Draft],
    findings: &mut Findings,
) -> Option<CheckedBudget> {
    let spec = &specs[place.spec];
    warn_of_unused_keys(spec, findings);
    let numbers = numbers?;
    let rate = spec.rate.unwrap_or(numbers.rate);
    let total = spec.budget.total.unwrap_or(rate.count());
    if !(1..=MAX_COUNT).contains(&total) {
        findings.fault(spec, TenantFaultKind::Total { total });
        return None;
    }
    let mut budget = CheckedBudget { total, allocated: 0, pool: None, guarantees: Vec::new() };
    if !spec.budget.mode.is_tracked() {
        return Some(budget);
    }
    let usable = count_in(numbers.rate, rate.period_us());
    if u128::from(total) > usable {
        let usable = usable as u64;
        findings.warning(spec, TenantWarningKind::TotalAbove { total, usable });
    }
    let children = place.children.clone().map(|at| {
        let place = at as usize;
        Child { place, spec: &specs[places[place].spec], numbers: drafts[place].numbers }
    });
    let (window_us, children) = (rate.period_us(), children.collect());
    let family = Family { spec, numbers, window_us, total, children };
    match &spec.budget.mode {
        BudgetMode::Guaranteed(guarantees) => {
            let guaranteed = guarantees.iter().map(|(_, it)| *it);
            budget.allocated = guaranteed.fold(0, u64::saturating_add);
            family.guarantee(guarantees, &mut budget, findings)?;
        }
        _ => budget.allocated = family.allocate(findings)?,
    }
    Some(budget)
}

fn warn_of_unused_keys(spec: &TenantSpec, findings: &mut Findings) {
    let mode = &spec.budget.mode;
    let drawn_on = matches!(mode, BudgetMode::Shared | BudgetMode::Guaranteed(_));
    if drawn_on && spec.sharing == Sharing::Private {
        findings.warning(spec, TenantWarningKind::PrivateBudget { mode: mode.name() });
        return;
    }
    let total = spec.budget.total.filter(|total| spec.rate.map(Rate::count) != Some(*total));
    if total.is_some() && !mode.is_tracked() {
        findings.warning(spec, TenantWarningKind::Total { mode: mode.name() });
    }
    if spec.budget.overcommit > Overcommit::default() && *mode != BudgetMode::Allocated {
        findings.warning(spec, TenantWarningKind::Overcommit { mode: mode.name() });
    }
}

impl Family<'_> {
    /// The sum of the children's rates, if it fits.
    fn allocate(&self, findings: &mut Findings) -> Option<u64> {
        let count =
            |child: &Child<'_>| child.spec.rate.map_or(0, |rate| count_in(rate, self.window_us));
        let allocated: u128 = self.children.iter().map(count).sum();
        if allocated <= u128::from(self.total) {
            return Some(allocated as u64);
        }
        let overcommit = self.spec.budget.overcommit;
        let saturated = |it| u64::try_from(it).unwrap_or(u64::MAX);
        let children = self.children.iter().map(|it| (it.spec.name.clone(), saturated(count(it))));
        let allocation = Allocation {
            children: children.collect(),
            allocated: saturated(allocated),
            total: self.total,
            overcommit,
            window: Duration::from_micros(self.window_us),
        };
        let allocated = allocation.allocated;
        if u128::from(allocated) <= overcommit.most(self.total) {
            findings.warning(self.spec, TenantWarningKind::Overcommitted(allocation));
            Some(allocated)
        } else {
            findings.fault(self.spec, TenantFaultKind::Overallocated(allocation));
            None
        }
    }

    /// The buckets of the guarantees and of the pool, if they fit.
    fn guarantee(
        &self,
        guarantees: &[(String, u64)],
        budget: &mut CheckedBudget,
        findings: &mut Findings,
    ) -> Option<()> {
        let named = self.named(guarantees, findings)?;
        let sum: u128 = guarantees.iter().map(|(_, it)| u128::from(*it)).sum();
        let total = self.total;
        if sum > u128::from(total) {
            let guarantees = guarantees.to_vec();
            findings.fault(self.spec, TenantFaultKind::Guarantees { guarantees, total });
            return None;
        }
        if !self.spec.is_split() {
            return Some(());
        }
        let bucket = SplitBucket::new(self.numbers, self.window_us, total);
        if sum > u128::from(bucket.total) || bucket.total == 0 {
            let (guarantees, effective) = (guarantees.to_vec(), bucket.total);
            let fault = TenantFaultKind::GuaranteesAbove { guarantees, total, effective };
            findings.fault(self.spec, fault);
            return None;
        }
        let before = findings.fault_count();
        for (child, guarantee) in &named {
            let policy = self.guarantee_of(child, *guarantee, bucket, findings);
            budget.guarantees.extend(policy.map(|policy| (child.place, policy)));
        }
        let each: Vec<u64> = guarantees.iter().map(|(_, it)| *it).collect();
        match bucket.pool(&each) {
            Ok(pool) => budget.pool = pool,
            Err(why) => {
                let fault = TenantFaultKind::GuaranteeTooSlow { child: None, why };
                findings.fault(self.spec, fault);
            }
        }
        if budget.pool.is_none() && sum == u128::from(bucket.total) {
            self.need_no_pool(&named, bucket.total, findings);
        }
        (findings.fault_count() == before).then_some(())
    }

    /// The children that are guaranteed something, if all of them are children.
    fn named(
        &self,
        guarantees: &[(String, u64)],
        findings: &mut Findings,
    ) -> Option<Vec<(&Child<'_>, u64)>> {
        let children: HashMap<&str, &Child<'_>> =
            self.children.iter().map(|child| (child.spec.name.as_str(), child)).collect();
        let mut seen = HashSet::new();
        let mut named = Vec::with_capacity(guarantees.len());
        for (name, guarantee) in guarantees {
            if !seen.insert(name) {
                let child = name.clone();
                findings.fault(self.spec, TenantFaultKind::GuaranteedTwice { child });
            } else if let Some(child) = children.get(name.as_str()) {
                named.push((*child, *guarantee));
            } else {
                let child = name.clone();
                findings.fault(self.spec, TenantFaultKind::Stranger { child });
            }
        }
        (named.len() == guarantees.len()).then_some(named)
    }

    fn guarantee_of(
        &self,
        child: &Child<'_>,
        guarantee: u64,
        bucket: SplitBucket,
        findings: &mut Findings,
    ) -> Option<Policy> {
        let name = || child.spec.name.clone();
        if bucket.guaranteed_at_once(guarantee) == 0 {
            let (burst, total) = (bucket.at_once(), bucket.total);
            let child = name();
            let fault = TenantFaultKind::GuaranteeTooSmall { child, guarantee, burst, total };
            findings.fault(self.spec, fault);
            return None;
        }
        let usable = child.numbers.map(|numbers| numbers.rate);
        let rate = Rate::new(guarantee, Duration::from_micros(self.window_us)).ok();
        if let Some((usable, rate)) = usable.zip(rate)
            && is_faster(rate, usable)
        {
            let usable = count_in(usable, self.window_us) as u64;
            let warning = TenantWarningKind::LargeGuarantee { child: name(), guarantee, usable };
            findings.warning(self.spec, warning);
        }
        let fault = |why| TenantFaultKind::GuaranteeTooSlow { child: Some(name()), why };
        bucket.guarantee(guarantee).map_err(|why| findings.fault(self.spec, fault(why))).ok()
    }

    /// Everything is guaranteed: then every child needs a guarantee.
    fn need_no_pool(&self, named: &[(&Child<'_>, u64)], total: u64, findings: &mut Findings) {
        let named: HashSet<usize> = named.iter().map(|(child, _)| child.place).collect();
        let unnamed = self.children.iter().filter(|child| !named.contains(&child.place));
        let unnamed: Vec<String> = unnamed.map(|child| child.spec.name.clone()).collect();
        if !unnamed.is_empty() {
            findings.fault(self.spec, TenantFaultKind::NoPool { total, unnamed });
        }
    }
}
