//! Whether a change of the tenants fits to all others.

use std::sync::Arc;

use super::merge::newly_set_aside;
use super::{MAX_RUN_TIME_TENANTS, MergedTenants, RunTimeTenant, TenantBody, TenantChange, merge};
use crate::limit::tenants::{TenantFault, TenantSpec, TenantTree, is_tenant_name};

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

/// Children in a message.
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
    let order = known.map_or(newest + 1, |it| it.order);
    let entry = RunTimeTenant { name: name.to_owned(), order, tenant: body };
    let before = merge(file, tenants);
    let warnings = fits(file, tenants, &before, name, Some(spec))?;
    // What is set aside may come back with this change, and has the precedence of its age.
    if !before.set_aside.is_empty() {
        let others = tenants.iter().filter(|it| it.name != name);
        let all: Vec<_> = others.chain([&entry]).cloned().collect();
        let after = merge(file, &all);
        let own = after.fault(name).map(ToOwned::to_owned);
        let other = || newly_set_aside(&before, &after).next().map(|it| it.fault.clone());
        if let Some(fault) = own.or_else(other) {
            return Err(ChangeError::DoesNotFit(fault));
        }
    }
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
        return Ok(CheckedChange { change, warnings: Vec::new() });
    }
    let is_child = |it: &&RunTimeTenant| it.tenant.parent.as_deref() == Some(name);
    let children: Vec<&str> = tenants.iter().filter(is_child).map(|it| it.name.as_str()).collect();
    if !children.is_empty() {
        let shown = children.iter().take(MOST_LISTED).copied().collect::<Vec<_>>().join(", ");
        let more = children.len().saturating_sub(MOST_LISTED);
        let children = if more == 0 { shown } else { format!("{shown} and {more} more") };
        return Err(ChangeError::HasChildren { name: name.to_owned(), children });
    }
    let warnings = fits(file, tenants, &before, name, None)?;
    Ok(CheckedChange { change, warnings })
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
    let parent = spec.as_ref().and_then(|spec| spec.parent.clone());
    let of_file = file.tenants().iter().map(|tenant| tenant.spec.clone());
    let others = tenants.iter().filter(|it| it.name != name && held.fault(&it.name).is_none());
    let others = others.filter_map(|it| it.tenant.spec(&it.name).ok());
    match TenantTree::build(of_file.chain(others).chain(spec).collect()) {
        Ok((_, warnings)) => {
            let about = |it: &str| it == name || parent.as_deref() == Some(it);
            let warnings = warnings.iter().filter(|warning| about(&warning.tenant));
            Ok(warnings.map(ToString::to_string).collect())
        }
        Err(faults) => {
            let faults: Vec<String> = faults.iter().map(TenantFault::to_string).collect();
            Err(ChangeError::DoesNotFit(faults.join("; ")))
        }
    }
}
