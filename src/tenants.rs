//! Tenants that operators make while the gateway runs.
//!
//! They stand in the tree beside those of the configuration, by the same rules: all of them together
//! must fit. Where gateways share a store they share these as well, and the embedded store keeps them
//! in its snapshot. They are part of the configuration that workers serve, so a request pays for them
//! no more than for those of the file.
//!
//! **Which tree it is.** A change is checked against all that hold, and stored only if nobody has
//! changed them meanwhile: of two that do not fit together, the second is refused, whichever gateways
//! they came to. Files differ and are reloaded, so some may not fit all the same. Every gateway with
//! the same file then comes to the same tree, because [`merge()`] goes by the order in which they were
//! made: the file first, then the oldest; what does not fit is set aside, and comes back when it fits.

mod announce;
mod change;
mod merge;
mod spec;
mod table;

use serde::{Deserialize, Serialize};

pub use announce::{announcement, with_announced};
pub use change::{ChangeError, CheckedChange, check_put, check_removal};
pub use merge::{MergedTenants, SetAside, merge};
pub use spec::{BudgetBody, TenantBody};
pub use table::{TableState, TenantTable};

/// More than anybody makes by hand: for more there are files.
pub const MAX_RUN_TIME_TENANTS: usize = 10_000;

/// A tenant that was made at run time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunTimeTenant {
    pub name: String,
    /// When it was made, among all that were. A change keeps it.
    pub order: u64,
    pub tenant: TenantBody,
    /// What it is about to become: see [`announcement`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub announced: Option<TenantBody>,
}

/// A change of the table.
#[derive(Debug, Clone, PartialEq)]
pub enum TenantChange {
    Set(Box<RunTimeTenant>),
    Remove(String),
}

impl TenantChange {
    pub fn name(&self) -> &str {
        match self {
            TenantChange::Set(tenant) => &tenant.name,
            TenantChange::Remove(name) => name,
        }
    }
}

#[cfg(test)]
mod tests;
