//! What is wrong with a tree of tenants, in whole sentences with every number in them.

use std::fmt;
use std::time::Duration;

use super::{MAX_LEVELS, MAX_NAME_LENGTH, Overcommit};
use crate::limit::token_bucket::BurstError;

/// Names and numbers in a message, so that it stays one that can be read.
const MOST_LISTED: usize = 10;

/// Why there is no tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantFault {
    /// Whom it is about.
    pub tenant: String,
    pub kind: TenantFaultKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TenantFaultKind {
    Name,
    Duplicate,
    UnknownParent {
        parent: String,
    },
    /// From this tenant up to itself.
    Cycle {
        through: Vec<String>,
    },
    TooDeep,
    /// Neither it nor its parent has a rate.
    NoRate {
        private_parent: Option<String>,
    },
    Bucket {
        burst: u64,
        why: BurstError,
    },
    Total {
        total: u64,
    },
    Overallocated(Allocation),
    /// It is no child.
    Stranger {
        child: String,
    },
    GuaranteedTwice {
        child: String,
    },
    Guarantees {
        guarantees: Vec<(String, u64)>,
        total: u64,
    },
    /// The budget has enough, the tenant itself or an ancestor does not.
    GuaranteesAbove {
        guarantees: Vec<(String, u64)>,
        total: u64,
        effective: u64,
    },
    GuaranteeTooSmall {
        child: String,
        guarantee: u64,
        burst: u64,
        total: u64,
    },
    GuaranteeTooSlow {
        child: Option<String>,
        why: BurstError,
    },
    NoPool {
        total: u64,
        unnamed: Vec<String>,
    },
}

/// What is probably not meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantWarning {
    pub tenant: String,
    pub kind: TenantWarningKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TenantWarningKind {
    Overcommitted(Allocation),
    /// A window has no burst.
    Burst,
    /// Nothing is drawn on a private tenant.
    PrivateBudget {
        mode: &'static str,
    },
    Total {
        mode: &'static str,
    },
    Overcommit {
        mode: &'static str,
    },
    /// Its own or an ancestor's rate leaves it less than the total.
    TotalAbove {
        total: u64,
        usable: u64,
    },
    /// More than the child may use in the same window.
    LargeGuarantee {
        child: String,
        guarantee: u64,
        usable: u64,
    },
}

/// The rates of children against the budget that they are to fit into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    pub children: Vec<(String, u64)>,
    /// The children's sum.
    pub allocated: u64,
    pub total: u64,
    pub overcommit: Overcommit,
    pub window: Duration,
}

impl TenantFault {
    /// The key of the tenant that is wrong; empty if it is the tenant as such.
    pub fn key(&self) -> &'static str {
        match &self.kind {
            TenantFaultKind::Name | TenantFaultKind::Duplicate => "",
            TenantFaultKind::UnknownParent { .. }
            | TenantFaultKind::Cycle { .. }
            | TenantFaultKind::TooDeep => "parent",
            TenantFaultKind::NoRate { .. } => "rate",
            TenantFaultKind::Bucket { .. } => "burst",
            _ => "budget",
        }
    }

    /// The child that is wrong in the tenant's `guaranteed`.
    pub fn guaranteed_child(&self) -> Option<&str> {
        match &self.kind {
            TenantFaultKind::Stranger { child }
            | TenantFaultKind::GuaranteedTwice { child }
            | TenantFaultKind::GuaranteeTooSmall { child, .. }
            | TenantFaultKind::GuaranteeTooSlow { child: Some(child), .. } => Some(child),
            _ => None,
        }
    }

    /// What is wrong.
    pub fn message(&self) -> String {
        let tenant = &self.tenant;
        match &self.kind {
            TenantFaultKind::Name => format!("`{}` is no name for a tenant", tenant.escape_debug()),
            TenantFaultKind::Duplicate => format!("there is more than one tenant `{tenant}`"),
            TenantFaultKind::UnknownParent { parent } => {
                format!(
                    "the parent of tenant `{tenant}`, `{}`, is no tenant",
                    parent.escape_debug()
                )
            }
            TenantFaultKind::Cycle { through } => {
                let way = chain(through.iter().chain([tenant]).map(|name| format!("`{name}`")));
                format!("tenant `{tenant}` is its own ancestor: by `parent` it leads to {way}")
            }
            TenantFaultKind::TooDeep => {
                format!(
                    "tenant `{tenant}` is on level {}, and there are {MAX_LEVELS}",
                    MAX_LEVELS + 1
                )
            }
            TenantFaultKind::NoRate { private_parent: None } => {
                format!("tenant `{tenant}` has no `rate` and no parent to give it one")
            }
            TenantFaultKind::NoRate { private_parent: Some(parent) } => format!(
                "tenant `{tenant}` has no `rate`, and its parent `{parent}`, whose sharing is \
                 `private`, gives it none"
            ),
            TenantFaultKind::Bucket { burst, why } => {
                format!("tenant `{tenant}` has a burst of {burst}: {why}")
            }
            TenantFaultKind::Total { total } => {
                format!("the budget of tenant `{tenant}` has a `total` of {total}")
            }
            TenantFaultKind::Overallocated(allocation) => {
                format!("the budget of tenant `{tenant}` does not fit: {allocation}")
            }
            TenantFaultKind::Stranger { child } => format!(
                "tenant `{tenant}` guarantees something to `{}`, which is no child of it",
                child.escape_debug()
            ),
            TenantFaultKind::GuaranteedTwice { child } => {
                format!("tenant `{tenant}` has two guarantees for `{child}`")
            }
            TenantFaultKind::Guarantees { guarantees, total } => format!(
                "tenant `{tenant}` guarantees {}, and its total is {total}",
                summed(guarantees)
            ),
            TenantFaultKind::GuaranteesAbove { guarantees, total, effective } => format!(
                "tenant `{tenant}` guarantees {} of a total of {total}, and by its own and its \
                 ancestors' rates it has {effective}",
                summed(guarantees)
            ),
            TenantFaultKind::GuaranteeTooSmall { child, guarantee, burst, total } => format!(
                "the guarantee of {guarantee} of {total} that tenant `{tenant}` gives to `{child}` \
                 is too small: its part of the {burst} that may come at once is less than 1"
            ),
            TenantFaultKind::GuaranteeTooSlow { child, why } => match child {
                Some(child) => {
                    format!("tenant `{tenant}` guarantees too little to `{child}`: {why}")
                }
                None => format!("tenant `{tenant}` leaves too little for the pool: {why}"),
            },
            TenantFaultKind::NoPool { total, unnamed } => format!(
                "tenant `{tenant}` guarantees all of its {total}, so nothing is left for {} without \
                 a guarantee: {}",
                if unnamed.len() == 1 {
                    "a child".to_owned()
                } else {
                    format!("{} children", unnamed.len())
                },
                listed(unnamed.iter().map(|name| format!("`{name}`")))
            ),
        }
    }

    /// A way out.
    pub fn help(&self) -> String {
        match &self.kind {
            TenantFaultKind::Name => format!(
                "write 1 to {MAX_NAME_LENGTH} of letters, digits and `_`, `.`, `-`, `@`, `:`, `~`, `+`"
            ),
            TenantFaultKind::Duplicate => "remove one of them, or give it another name".to_owned(),
            TenantFaultKind::UnknownParent { parent } if parent.is_empty() => {
                "leave it out for a root".to_owned()
            }
            TenantFaultKind::UnknownParent { parent } => {
                format!(
                    "add `[tenants.{}]`, or leave `parent` out for a root",
                    parent.escape_debug()
                )
            }
            TenantFaultKind::Cycle { .. } => {
                "leave out `parent` in the one that is the root".to_owned()
            }
            TenantFaultKind::TooDeep => "give it a parent that is higher up".to_owned(),
            TenantFaultKind::NoRate { private_parent: None } => {
                "add a line such as `rate = \"1000/minute\"`".to_owned()
            }
            TenantFaultKind::NoRate { private_parent: Some(parent) } => format!(
                "add a line such as `rate = \"1000/minute\"`, or write `sharing = \"inherit\"` for \
                 `{parent}`"
            ),
            TenantFaultKind::Bucket { .. } => "write another `burst` or a higher `rate`".to_owned(),
            TenantFaultKind::Total { .. } => "write 1 to 1000000000".to_owned(),
            TenantFaultKind::Overallocated(allocation) => allocation.help(),
            TenantFaultKind::Stranger { child } => format!(
                "leave it out, or write `parent = \"{}\"` for `{}`",
                self.tenant,
                child.escape_debug()
            ),
            TenantFaultKind::GuaranteedTwice { .. } => "remove one of them".to_owned(),
            TenantFaultKind::Guarantees { guarantees, total } => {
                let above = sum(guarantees).saturating_sub(u128::from(*total));
                format!("guarantee {above} less, or raise the `total`")
            }
            TenantFaultKind::GuaranteesAbove { guarantees, effective, .. } => {
                let above = sum(guarantees).saturating_sub(u128::from(*effective));
                format!("guarantee {above} less, or raise the rates above")
            }
            TenantFaultKind::GuaranteeTooSmall { guarantee, total, .. } => {
                let at_once = total.div_ceil((*guarantee).max(1));
                format!("guarantee more, or let at least {at_once} come at once")
            }
            TenantFaultKind::GuaranteeTooSlow { .. } => {
                "write other guarantees, or a smaller `burst`".to_owned()
            }
            TenantFaultKind::NoPool { .. } => {
                "guarantee less in all, or something to every child".to_owned()
            }
        }
    }
}

impl fmt::Display for TenantFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.message(), self.help())
    }
}

impl TenantWarning {
    /// The key of the tenant that it is about.
    pub fn key(&self) -> &'static str {
        if self.kind == TenantWarningKind::Burst { "burst" } else { "budget" }
    }

    pub fn message(&self) -> String {
        let tenant = &self.tenant;
        match &self.kind {
            TenantWarningKind::Overcommitted(allocation) => {
                format!("the budget of tenant `{tenant}` is overcommitted: {allocation}")
            }
            TenantWarningKind::Burst => {
                format!("the `burst` of tenant `{tenant}` has no effect: windows have none")
            }
            TenantWarningKind::PrivateBudget { mode } => format!(
                "the budget of tenant `{tenant}` has no effect: its sharing is `private`, so nobody \
                 draws on what is `{mode}`"
            ),
            TenantWarningKind::Total { mode } => format!(
                "the `total` of tenant `{tenant}` has no effect: the budget is `{mode}`, and its \
                 rate decides"
            ),
            TenantWarningKind::Overcommit { mode } => format!(
                "the `overcommit` of tenant `{tenant}` has no effect: the budget is `{mode}`"
            ),
            TenantWarningKind::TotalAbove { total, usable } => {
                format!("the `total` of tenant `{tenant}` is {total}, and it can use {usable}")
            }
            TenantWarningKind::LargeGuarantee { child, guarantee, usable } => format!(
                "tenant `{tenant}` guarantees {guarantee} to `{child}`, which may use {usable}"
            ),
        }
    }

    pub fn help(&self) -> String {
        match &self.kind {
            TenantWarningKind::Overcommitted(_) => {
                "children that use all of theirs at once are refused by it".to_owned()
            }
            TenantWarningKind::Burst => {
                "remove it, or write `algorithm = \"token_bucket\"`".to_owned()
            }
            TenantWarningKind::PrivateBudget { .. } => {
                "remove it, or write `sharing = \"enforce\"`".to_owned()
            }
            TenantWarningKind::Total { .. } | TenantWarningKind::Overcommit { .. } => {
                "remove it, or write `mode = \"allocated\"`".to_owned()
            }
            TenantWarningKind::TotalAbove { usable, .. } => {
                format!("write `total = {usable}`, or raise its rate and those above it")
            }
            TenantWarningKind::LargeGuarantee { child, .. } => {
                format!("guarantee less, or raise the `rate` of `{child}`")
            }
        }
    }
}

impl fmt::Display for TenantWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.message(), self.help())
    }
}

impl Allocation {
    /// The most that may be allocated.
    pub fn most(&self) -> u128 {
        self.overcommit.most(self.total)
    }

    fn help(&self) -> String {
        let most = self.most();
        let above = u128::from(self.allocated).saturating_sub(most);
        let needed = (u128::from(self.allocated) * 100).div_ceil(u128::from(self.total.max(1)));
        let overcommit = u16::try_from(needed).ok().and_then(Overcommit::of_hundredths);
        match overcommit {
            Some(needed) => format!(
                "allocate {above} less, raise the `total`, or write `overcommit = {needed}` or more"
            ),
            None => format!("allocate {above} less, or raise the `total`"),
        }
    }
}

impl fmt::Display for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Allocation { children, allocated, total, overcommit, window } = self;
        let each = listed(children.iter().map(|(name, rate)| format!("`{name}` {rate}")));
        write!(
            f,
            "its children have {allocated} in {window:?} ({each}), and its total is {total}"
        )?;
        if *overcommit > Overcommit::default() {
            write!(f, ", {} with an overcommit of {overcommit}", overcommit.most(*total))?;
        }
        Ok(())
    }
}

fn sum(guarantees: &[(String, u64)]) -> u128 {
    guarantees.iter().map(|(_, guarantee)| u128::from(*guarantee)).sum()
}

fn summed(guarantees: &[(String, u64)]) -> String {
    let each = listed(guarantees.iter().map(|(name, it)| format!("`{name}` {it}")));
    format!("{} ({each})", sum(guarantees))
}

fn listed(names: impl ExactSizeIterator<Item = String>) -> String {
    let more = names.len().saturating_sub(MOST_LISTED);
    let shown: Vec<String> = names.take(MOST_LISTED).collect();
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{}{more}", shown.join(", "))
}

/// A way from one to the next; a long one without its middle.
fn chain(names: impl Iterator<Item = String>) -> String {
    let mut names: Vec<String> = names.collect();
    if names.len() > MOST_LISTED {
        names.splice(MOST_LISTED / 2..names.len() - MOST_LISTED / 2, ["…".to_owned()]);
    }
    names.join(" → ")
}
