//! The tree of the file with the tenants of run time in it: as many as fit, the oldest first.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use super::RunTimeTenant;
use crate::limit::tenants::{Allocation, TenantFault, TenantFaultKind, TenantSpec, TenantTree};

#[derive(Debug, Clone, PartialEq, Default)]
pub struct MergedTenants {
    pub tree: Arc<TenantTree>,
    /// What of the tenants of run time does not fit.
    pub set_aside: Vec<SetAside>,
}

/// A tenant that is stored and does not hold: its callers are as good as unknown.
#[derive(Debug, Clone, PartialEq)]
pub struct SetAside {
    pub tenant: RunTimeTenant,
    /// Why, in words that begin in lower case and have no full stop.
    pub fault: String,
}

impl MergedTenants {
    /// Why a tenant does not hold, if it does not.
    pub fn fault(&self, name: &str) -> Option<&str> {
        let set_aside = self.set_aside.iter().find(|it| it.tenant.name == name);
        set_aside.map(|it| it.fault.as_str())
    }
}

/// Goes by the file first, and then by the order of the tenants. Nothing else decides, so all gateways
/// with the same file and the same tenants come to the same tree.
pub fn merge(file: &Arc<TenantTree>, tenants: &[RunTimeTenant]) -> MergedTenants {
    let mut candidates = Candidates::new(file, tenants);
    loop {
        if candidates.held.is_empty() {
            return MergedTenants { tree: file.clone(), set_aside: candidates.finish() };
        }
        match TenantTree::build(candidates.specs(file)) {
            Ok((tree, _)) => {
                return MergedTenants { tree: Arc::new(tree), set_aside: candidates.finish() };
            }
            // At least one is set aside each time.
            Err(faults) => candidates.set_aside_for(&faults),
        }
    }
}

/// All that may still hold.
struct Candidates {
    /// The oldest first.
    held: Vec<(RunTimeTenant, TenantSpec)>,
    set_aside: Vec<SetAside>,
}

impl Candidates {
    fn new(file: &TenantTree, tenants: &[RunTimeTenant]) -> Self {
        let mut candidates = Candidates { held: Vec::new(), set_aside: Vec::new() };
        let mut tenants = tenants.to_vec();
        tenants.sort_by(|one, other| (one.order, &one.name).cmp(&(other.order, &other.name)));
        for tenant in tenants {
            let fault = match tenant.tenant.spec(&tenant.name) {
                Ok(_) if file.find(tenant.name.as_bytes()).is_some() => {
                    "the configuration has a tenant of this name".to_owned()
                }
                Ok(spec) => {
                    candidates.held.push((tenant, spec));
                    continue;
                }
                Err(fault) => fault.trim_end_matches('.').to_owned(),
            };
            candidates.set_aside.push(SetAside { tenant, fault });
        }
        candidates
    }

    fn specs(&self, file: &TenantTree) -> Vec<TenantSpec> {
        let of_file = file.tenants().iter().map(|tenant| &tenant.spec);
        of_file.chain(self.held.iter().map(|(_, spec)| spec)).cloned().collect()
    }

    fn set_aside_for(&mut self, faults: &[TenantFault]) {
        // Who does not hold for a reason of its own takes no room from others, so sums come last.
        let (sums, own): (Vec<_>, Vec<_>) = faults.iter().partition(|it| is_sum(it));
        let mut unfit = self.unfit(&own);
        if unfit.is_empty() {
            unfit = self.unfit(&sums);
        }
        // The file fits by itself, so whatever this is, the newest has brought it about.
        if let (true, Some(fault)) = (unfit.is_empty(), faults.first()) {
            unfit.insert(self.held.len() - 1, fault.to_string());
        }
        let held = std::mem::take(&mut self.held);
        for (at, (tenant, spec)) in held.into_iter().enumerate() {
            match unfit.remove(&at) {
                Some(fault) => self.set_aside.push(SetAside { tenant, fault }),
                None => self.held.push((tenant, spec)),
            }
        }
    }

    /// Which of them have to go, and why.
    fn unfit(&self, faults: &[&TenantFault]) -> HashMap<usize, String> {
        let at: HashMap<&str, usize> =
            self.held.iter().enumerate().map(|(at, (it, _))| (it.name.as_str(), at)).collect();
        let mut unfit = HashMap::new();
        for fault in faults {
            for name in blamed(fault, &at) {
                unfit.entry(at[name]).or_insert_with(|| fault.to_string());
            }
        }
        unfit
    }

    fn finish(mut self) -> Vec<SetAside> {
        self.set_aside.sort_by_key(|it| it.tenant.order);
        self.set_aside
    }
}

/// Whether it depends on which other children there are.
fn is_sum(fault: &TenantFault) -> bool {
    matches!(fault.kind, TenantFaultKind::Overallocated(_) | TenantFaultKind::NoPool { .. })
}

/// Which tenants of run time have to go because of a fault. `at` has them all, by age.
fn blamed<'f>(fault: &'f TenantFault, at: &HashMap<&str, usize>) -> Vec<&'f str> {
    let of_run_time = |name: &&str| at.contains_key(*name);
    match &fault.kind {
        TenantFaultKind::Overallocated(allocation) => above_budget(allocation, at),
        TenantFaultKind::NoPool { unnamed, .. } => {
            unnamed.iter().map(String::as_str).filter(of_run_time).collect()
        }
        _ => [fault.tenant.as_str()].into_iter().filter(of_run_time).collect(),
    }
}

/// Those children of run time that do not fit into what the file and older ones leave.
fn above_budget<'f>(allocation: &'f Allocation, at: &HashMap<&str, usize>) -> Vec<&'f str> {
    let children = allocation.children.iter().map(|(name, count)| (name.as_str(), *count));
    let (mut younger, file): (Vec<_>, Vec<_>) =
        children.partition(|(name, _)| at.contains_key(name));
    younger.sort_by_key(|(name, _)| at[name]);
    let mut used: u128 = file.iter().map(|(_, count)| u128::from(*count)).sum();
    let most = allocation.most();
    let mut above = Vec::new();
    for (name, count) in younger {
        match used + u128::from(count) {
            sum if sum <= most => used = sum,
            _ => above.push(name),
        }
    }
    above
}

/// The names that are new among what is set aside.
pub(crate) fn newly_set_aside<'m>(
    before: &MergedTenants,
    now: &'m MergedTenants,
) -> impl Iterator<Item = &'m SetAside> {
    let known: HashSet<String> = before.set_aside.iter().map(|it| it.tenant.name.clone()).collect();
    now.set_aside.iter().filter(move |it| !known.contains(&it.tenant.name))
}
