//! From what is written of each tenant to a tree, or to all that is wrong with it.

use hashbrown::HashMap;

use super::budget::check_budget;
use super::fault::{TenantFault, TenantFaultKind, TenantWarning, TenantWarningKind};
use super::numbers::Numbers;
use super::order::{Place, order};
use super::{Sharing, Tenant, TenantAlgorithm, TenantIndex, TenantSpec, TenantTree};
use crate::limit::policy::Policy;

pub(super) fn build(
    mut specs: Vec<TenantSpec>,
) -> Result<(TenantTree, Vec<TenantWarning>), Vec<TenantFault>> {
    let mut findings = Findings::default();
    let places = order(&specs, &mut findings);
    let mut drafts = Vec::with_capacity(places.len());
    for place in &places {
        drafts.push(Draft::new(&specs[place.spec], place, &drafts, &specs, &mut findings));
    }
    let mut budgets = Vec::with_capacity(places.len());
    for (place, draft) in places.iter().zip(&drafts) {
        budgets.push(check_budget(&specs, place, draft.numbers, &places, &drafts, &mut findings));
    }
    if !findings.faults.is_empty() {
        return Err(findings.faults);
    }
    // What each parent guarantees comes to its children.
    let mut guarantees = vec![None; places.len()];
    for (at, policy) in budgets.iter_mut().flatten().flat_map(|it| it.guarantees.drain(..)) {
        guarantees[at] = Some(policy);
    }
    let mut tenants = Vec::with_capacity(places.len());
    for (((place, draft), budget), guarantee) in
        places.into_iter().zip(drafts).zip(budgets).zip(guarantees)
    {
        // Without faults, every tenant has numbers and a budget.
        let (Some(effective), Some(budget)) = (draft.policy, budget) else { continue };
        tenants.push(Tenant {
            spec: std::mem::replace(&mut specs[place.spec], TenantSpec::new("")),
            parent: place.parent.map(TenantIndex),
            root: TenantIndex(place.root),
            level: place.level,
            algorithm: draft.algorithm,
            effective,
            pool: budget.pool,
            guarantee,
            total: budget.total,
            allocated: budget.allocated,
            children: place.children,
        });
    }
    let names = tenants.iter().map(|tenant| Box::from(tenant.spec.name.as_bytes()));
    let by_name: HashMap<Box<[u8]>, _> = names.zip((0..).map(TenantIndex)).collect();
    Ok((TenantTree { tenants, by_name }, findings.warnings))
}

#[derive(Default)]
pub(super) struct Findings {
    faults: Vec<TenantFault>,
    warnings: Vec<TenantWarning>,
}

impl Findings {
    pub(super) fn fault(&mut self, tenant: &TenantSpec, kind: TenantFaultKind) {
        self.faults.push(TenantFault { tenant: tenant.name.clone(), kind });
    }

    pub(super) fn fault_count(&self) -> usize {
        self.faults.len()
    }

    pub(super) fn warning(&mut self, tenant: &TenantSpec, kind: TenantWarningKind) {
        self.warnings.push(TenantWarning { tenant: tenant.name.clone(), kind });
    }
}

/// A tenant without its budget.
pub(super) struct Draft {
    algorithm: TenantAlgorithm,
    /// Not known if something is wrong with it or above it.
    pub(super) numbers: Option<Numbers>,
    policy: Option<Policy>,
}

impl Draft {
    /// Its parent is among those before it.
    fn new(
        spec: &TenantSpec,
        place: &Place,
        before: &[Draft],
        specs: &[TenantSpec],
        findings: &mut Findings,
    ) -> Self {
        let parent = place.parent.map(|at| &before[at as usize]);
        let above = place.parent_spec.map(|at| &specs[at]);
        let algorithm = spec.algorithm.or(parent.map(|it| it.algorithm)).unwrap_or_default();
        if algorithm.is_window() && spec.burst.is_some() {
            findings.warning(spec, TenantWarningKind::Burst);
        }
        let sharing = above.map(|above| above.sharing);
        let is_root = spec.parent.is_none();
        if spec.rate.is_none() && (is_root || sharing == Some(Sharing::Private)) {
            let private_parent = above.map(|above| above.name.clone());
            findings.fault(spec, TenantFaultKind::NoRate { private_parent });
        }
        let numbers = match (sharing, parent.map(|it| it.numbers)) {
            (Some(sharing), Some(Some(numbers))) => {
                Numbers::effective(spec, algorithm, Some((sharing, numbers)))
            }
            // Of what is above it nothing is known.
            (Some(Sharing::Inherit | Sharing::Enforce), _) => None,
            _ => Numbers::effective(spec, algorithm, None),
        };
        let policy = numbers.and_then(|numbers| {
            let fault = |why| TenantFaultKind::Bucket { burst: numbers.burst, why };
            numbers.policy().map_err(|why| findings.fault(spec, fault(why))).ok()
        });
        Draft { algorithm, numbers: numbers.filter(|_| policy.is_some()), policy }
    }
}
