//! Whether a change of the tenants fits to all others.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::merge::newly_set_aside;
use super::{MAX_RUN_TIME_TENANTS, MergedTenants, RunTimeTenant, TenantBody, TenantChange, merge};
use crate::limit::Policy;
use crate::limit::tenants::{TenantFault, TenantIndex, TenantSpec, TenantTree, is_tenant_name};

/// A change that may be stored.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedChange {
    pub change: TenantChange,
    /// What is probably not meant, in words that begin in lower case and have no full stop.
    pub warnings: Vec<String>,
}

/// Why a change is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// A sentence.
    #[error("{0}")]
    Invalid(String),
    #[error("the tenant {0:?} is in the configuration: change it there")]
    DefinedInFile(String),
    #[error("there is no such tenant")]
    Unknown,
    #[error("the tenant {name:?} has children: {children}")]
    HasChildren { name: String, children: String },
    /// With the sums.
    #[error("{0}")]
    DoesNotFit(String),
    #[error(
        "there are {MAX_RUN_TIME_TENANTS} tenants of run time already: remove some, or use a \
         `tenants_file`"
    )]
    Full,
}

impl ChangeError {
    /// Whether it might not be one beside other tenants of run time.
    pub fn depends_on_others(&self) -> bool {
        !matches!(self, ChangeError::Invalid(_) | ChangeError::DefinedInFile(_))
    }
}

/// Tenants in a message.
const MOST_LISTED: usize = 10;

/// Whether a tenant can be made, or changed, beside all others.
///
/// # Errors
/// If it cannot.
pub fn check_put(
    file: &Arc<TenantTree>,
    tenants: &[RunTimeTenant],
    name: &str,
    body: TenantBody,
) -> Result<CheckedChange, ChangeError> {
    if !is_tenant_name(name) {
        let say = "A tenant's name is 1 to 128 of letters, digits and _ . - @ : ~ +";
        return Err(ChangeError::Invalid(format!("{say}.")));
    }
    let spec = body.spec(name).map_err(ChangeError::Invalid)?;
    if file.find(name.as_bytes()).is_some() {
        return Err(ChangeError::DefinedInFile(name.to_owned()));
    }
    let known = tenants.iter().find(|it| it.name == name);
    if known.is_none() && tenants.len() >= MAX_RUN_TIME_TENANTS {
        return Err(ChangeError::Full);
    }
    let newest = tenants.iter().map(|it| it.order).max().unwrap_or(0);
    let order = known.map_or(newest.saturating_add(1), |it| it.order);
    let entry = RunTimeTenant { name: name.to_owned(), order, tenant: body, announced: None };
    let before = merge(file, tenants);
    let warnings = fits(file, tenants, &before, name, Some(spec))?;
    drives_out_nobody(file, tenants, &before, name, Some(&entry))?;
    Ok(CheckedChange { change: TenantChange::Set(Box::new(entry)), warnings })
}

/// Whether a tenant can be removed.
///
/// # Errors
/// If it cannot.
pub fn check_removal(
    file: &Arc<TenantTree>,
    tenants: &[RunTimeTenant],
    name: &str,
) -> Result<CheckedChange, ChangeError> {
    let change = TenantChange::Remove(name.to_owned());
    if !tenants.iter().any(|it| it.name == name) {
        return Err(match file.find(name.as_bytes()) {
            Some(_) => ChangeError::DefinedInFile(name.to_owned()),
            None => ChangeError::Unknown,
        });
    }
    let before = merge(file, tenants);
    // One that does not hold has nobody below it that does.
    if before.fault(name).is_some() {
        drives_out_nobody(file, tenants, &before, name, None)?;
        return Ok(CheckedChange { change, warnings: Vec::new() });
    }
    let is_child = |it: &&RunTimeTenant| it.tenant.parent.as_deref() == Some(name);
    let children: Vec<&str> = tenants.iter().filter(is_child).map(|it| it.name.as_str()).collect();
    if !children.is_empty() {
        let (name, children) = (name.to_owned(), listed(&children));
        return Err(ChangeError::HasChildren { name, children });
    }
    let warnings = fits(file, tenants, &before, name, None)?;
    drives_out_nobody(file, tenants, &before, name, None)?;
    Ok(CheckedChange { change, warnings })
}

/// Whether all that hold, and the one that is changed, hold after the change: what is set aside may come
/// back with it, and has the precedence of its age.
fn drives_out_nobody(
    file: &Arc<TenantTree>,
    tenants: &[RunTimeTenant],
    before: &MergedTenants,
    name: &str,
    entry: Option<&RunTimeTenant>,
) -> Result<(), ChangeError> {
    if before.set_aside.is_empty() {
        return Ok(());
    }
    let others = tenants.iter().filter(|it| it.name != name);
    let all: Vec<_> = others.chain(entry).cloned().collect();
    let after = merge(file, &all);
    if let Some(fault) = after.fault(name) {
        return Err(ChangeError::DoesNotFit(fault.to_owned()));
    }
    let Some(driven_out) = newly_set_aside(before, &after).next() else { return Ok(()) };
    let back = before.set_aside.iter().map(|it| it.tenant.name.as_str());
    let back: Vec<_> = back.filter(|it| *it != name && after.fault(it).is_none()).collect();
    let (other, fault) = (&driven_out.tenant.name, &driven_out.fault);
    let back = if back.is_empty() { "none".to_owned() } else { listed(&back) };
    Err(ChangeError::DoesNotFit(format!(
        "the tenant {other:?} would be set aside (of those that are set aside now, there would come \
         back: {back}): {fault}"
    )))
}

fn listed(names: &[&str]) -> String {
    let shown = names.iter().take(MOST_LISTED).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST_LISTED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// What would be warned of about a tenant and its parent if it were this, or gone, beside all that
/// hold.
fn fits(
    file: &TenantTree,
    tenants: &[RunTimeTenant],
    held: &MergedTenants,
    name: &str,
    spec: Option<TenantSpec>,
) -> Result<Vec<String>, ChangeError> {
    let known = tenants.iter().find(|it| it.name == name);
    let parent = match &spec {
        Some(spec) => spec.parent.clone(),
        None => known.and_then(|it| it.tenant.parent.clone()),
    };
    let of_file = file.tenants().iter().map(|tenant| tenant.spec.clone());
    let others = tenants.iter().filter(|it| it.name != name && held.fault(&it.name).is_none());
    let others = others.filter_map(|it| it.tenant.spec(&it.name).ok());
    match TenantTree::build(of_file.chain(others).chain(spec).collect()) {
        Ok((tree, warnings)) => {
            let about = |it: &str| it == name || parent.as_deref() == Some(it);
            let warnings = warnings.iter().filter(|warning| about(&warning.tenant));
            let warnings = warnings.map(ToString::to_string);
            Ok(warnings.chain(starts_afresh(&held.tree, &tree, name)).collect())
        }
        Err(faults) => {
            let faults: Vec<String> = faults.iter().map(TenantFault::to_string).collect();
            Err(ChangeError::DoesNotFit(faults.join("; ")))
        }
    }
}

/// What is to be said of a tenant and all below it whose buckets are others after a change than before.
/// Of a tenant that is new nothing is said: nobody expects it to have used anything.
fn starts_afresh(before: &TenantTree, after: &TenantTree, name: &str) -> Option<String> {
    let (mut changes, mut afresh) = (BTreeSet::new(), Vec::new());
    let mut below = vec![after.find(name.as_bytes())?];
    let mut at = 0;
    while let Some(of) = below.get(at).copied() {
        below.extend(after.children(of));
        at += 1;
        let tenant = after[of].spec.name.as_str();
        let Some(old) = before.find(tenant.as_bytes()) else { continue };
        let old = BucketNames::of(before, old);
        let found = BucketNames::of(after, of).other_than(&old);
        if !found.is_empty() {
            changes.extend(found);
            afresh.push(tenant);
        }
    }
    let noun = if afresh.len() == 1 { "tenant" } else { "tenants" };
    let tenants = afresh.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>();
    let tenants = listed(&tenants.iter().map(String::as_str).collect::<Vec<_>>());
    let changes = changes.into_iter().map(BucketChange::text).collect::<Vec<_>>().join(" and ");
    (!afresh.is_empty()).then(|| {
        format!(
            "the buckets of {noun} {tenants} are others from now on, full or as they were last \
             left: this changes {changes}"
        )
    })
}

/// Why another bucket is charged than before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum BucketChange {
    Algorithm,
    Root,
    Split,
    Guarantee,
}

impl BucketChange {
    const fn text(self) -> &'static str {
        match self {
            BucketChange::Algorithm => "the algorithm",
            BucketChange::Root => "the root",
            BucketChange::Split => "how the bucket is split",
            BucketChange::Guarantee => "who has a guarantee",
        }
    }
}

/// What the buckets are called by which a tenant is counted.
#[derive(Debug)]
struct BucketNames<'t> {
    root: &'t str,
    /// The algorithm of its own bucket, of its pool, and of its guarantee.
    own: Option<&'static str>,
    pool: Option<&'static str>,
    guarantee: Option<&'static str>,
    /// Who guarantees it something.
    guaranteed_by: Option<&'t str>,
}

impl<'t> BucketNames<'t> {
    fn of(tree: &'t TenantTree, of: TenantIndex) -> Self {
        let tenant = &tree[of];
        let guarantor = tenant.parent.filter(|_| tenant.guarantee.is_some());
        BucketNames {
            root: &tree[tenant.root].spec.name,
            own: (!tenant.is_split()).then(|| tenant.effective.algorithm()),
            pool: tenant.pool.as_ref().map(Policy::algorithm),
            guarantee: tenant.guarantee.as_ref().map(Policy::algorithm),
            guaranteed_by: guarantor.map(|parent| tree[parent].spec.name.as_str()),
        }
    }

    /// Why some of these are not among others. Nothing, if all of them are.
    fn other_than(&self, old: &BucketNames<'_>) -> Vec<BucketChange> {
        let parts = [(self.own, old.own), (self.pool, old.pool), (self.guarantee, old.guarantee)];
        let algorithm = parts.iter().any(|(new, old)| new.is_some() && old.is_some() && new != old);
        let is_new = |(new, old): &(Option<_>, Option<_>)| new.is_some() && old.is_none();
        let split = parts[..2].iter().any(is_new);
        let guarantee = self.guarantee.is_some() && self.guaranteed_by != old.guaranteed_by;
        let root = self.root != old.root && parts.iter().any(|(new, _)| new.is_some());
        let changes = [
            (BucketChange::Algorithm, algorithm),
            (BucketChange::Root, root),
            (BucketChange::Split, split),
            (BucketChange::Guarantee, guarantee),
        ];
        changes.into_iter().filter(|(_, changed)| *changed).map(|(change, _)| change).collect()
    }
}
