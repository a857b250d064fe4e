//! The tree of tenants: a row each, children below their parents.

use super::limits::{condition, numbers};
use super::{count, lines};
use crate::config::settings::{Settings, Tenants};
use crate::config::units::show_rate;
use crate::limit::tenants::{BudgetMode, Sharing, Tenant, TenantIndex, TenantLimit, TenantTree};
use crate::limit::{Missing, Mode, Policy};

/// Up to so many tenants are all shown; of more, the first children of each.
const MOST_SHOWN: usize = 1000;
const FIRST_CHILDREN: usize = 10;

pub(super) fn tenants(settings: &Settings) -> String {
    let Tenants { tree, files, limit } = &*settings.tenants;
    let first = if tree.tenants().len() > MOST_SHOWN { FIRST_CHILDREN } else { MOST_SHOWN };
    let mut shown = ShownTree { tree, first, rows: Vec::new() };
    shown.siblings(tree.roots().collect(), 0);
    let mut text: String =
        lines(&shown.rows).into_iter().flat_map(|line| [line, "\n".to_owned()]).collect();
    for remark in remarks(limit) {
        text.extend(["  ", &remark, "\n"]);
    }
    if !files.is_empty() {
        let files: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
        let all = count(tree.tenants().len(), "tenant");
        text.extend(["  ", &all, ", some from ", &files.join(", "), "\n"]);
    }
    text
}

struct ShownTree<'t> {
    tree: &'t TenantTree,
    /// How many of the tenants below one other are shown.
    first: usize,
    rows: Vec<Vec<String>>,
}

impl ShownTree<'_> {
    fn siblings(&mut self, siblings: Vec<TenantIndex>, depth: usize) {
        for of in siblings.iter().take(self.first) {
            let children: Vec<TenantIndex> = self.tree.children(*of).collect();
            self.rows.push(row(&self.tree[*of], depth, !children.is_empty()));
            self.siblings(children, depth + 1);
        }
        if let Some(more) = siblings.len().checked_sub(self.first).filter(|more| *more > 0) {
            self.rows.push(vec![format!("{}… and {more} more", "  ".repeat(depth))]);
        }
    }
}

fn row(tenant: &Tenant, depth: usize, is_parent: bool) -> Vec<String> {
    let (rate, burst) = numbers(&tenant.effective);
    let own = tenant.spec.rate.map(show_rate).filter(|own| *own != rate);
    let own = own.map(|own| format!("(of its own {own})"));
    let algorithm = match tenant.effective {
        Policy::TokenBucket(_) => "",
        _ => tenant.effective.algorithm(),
    };
    let remarks = [own, budget(tenant), guarantee(tenant)];
    let remarks: Vec<String> = remarks.into_iter().flatten().collect();
    vec![
        format!("{}{}", "  ".repeat(depth), tenant.spec.name),
        rate,
        burst,
        algorithm.to_owned(),
        if is_parent { tenant.spec.sharing.name().to_owned() } else { String::new() },
        remarks.join("; "),
    ]
}

fn budget(tenant: &Tenant) -> Option<String> {
    let Tenant { total, allocated, .. } = tenant;
    let unallocated = tenant.unallocated();
    match &tenant.spec.budget.mode {
        BudgetMode::Unlimited => None,
        BudgetMode::Shared => Some("shared".to_owned()),
        BudgetMode::Allocated => {
            Some(format!("allocated {allocated} of {total}, {unallocated} unallocated"))
        }
        BudgetMode::Guaranteed(_) if tenant.spec.sharing == Sharing::Private => {
            Some("guaranteed, to no effect".to_owned())
        }
        BudgetMode::Guaranteed(_) => {
            let pool = tenant.pool.as_ref().map_or("no pool".to_owned(), |pool| {
                let (rate, burst) = numbers(pool);
                format!("pool {rate} {burst}").trim_end().to_owned()
            });
            Some(format!("guaranteed {allocated} of {total}, {unallocated} unallocated, {pool}"))
        }
    }
}

fn guarantee(tenant: &Tenant) -> Option<String> {
    let (rate, burst) = numbers(tenant.guarantee.as_ref()?);
    Some(format!("has guaranteed {rate} {burst}").trim_end().to_owned())
}

/// What becomes of tenants that are not in the tree, and whatever is not as usual.
fn remarks(limit: &TenantLimit) -> Vec<String> {
    let numbers = limit.unknown.as_ref().map(numbers);
    let numbers = numbers.map(|(rate, burst)| format!("{rate} {burst}")).unwrap_or_default();
    let mut remarks = vec![match limit.missing {
        Missing::Deny => "any other tenant is refused".to_owned(),
        Missing::Skip => "any other tenant is not limited".to_owned(),
        Missing::Ip => format!("any other tenant: {numbers} for each address"),
        Missing::Shared => format!("any other tenant: {numbers} for all of them"),
    }];
    if !limit.enabled {
        remarks.push("disabled".to_owned());
    }
    if limit.mode == Mode::Shadow {
        remarks.push("shadow".to_owned());
    }
    if !limit.when.is_empty() {
        let conditions: Vec<String> = limit.when.iter().map(condition).collect();
        remarks.push(format!("when {}", conditions.join(", ")));
    }
    remarks
}
