//! The limit named `tenants`: how routes use the tree.

use super::super::{Condition, Cost, Missing, Mode, OnError, Policy, Refusal};

/// The name by which routes ask for it.
pub const TENANTS: &str = "tenants";

/// `[limits.tenants]`. It has no algorithm of its own: the tree has the numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantLimit {
    /// For people.
    pub description: Option<String>,
    /// Switched off, it is checked and applies to nothing.
    pub enabled: bool,
    /// What becomes of requests whose tenant the tree does not have.
    pub missing: Missing,
    /// The numbers for these, if they are counted by address or all together.
    pub unknown: Option<Policy>,
    /// It applies if all of these hold.
    pub when: Vec<Condition>,
    /// What one request costs, unless its route says otherwise.
    pub cost: Cost,
    /// What requests of any route charge after the fact.
    pub costs_after: Vec<Cost>,
    pub mode: Mode,
    pub refusal: Refusal,
    /// Whether answers may name it.
    pub response_headers: bool,
    /// What becomes of requests while the store cannot be asked.
    pub on_error: OnError,
}

impl TenantLimit {
    /// The same numbers with room for what is charged after the fact, by what they hold.
    pub fn with_debt(&self, policy: Policy) -> Policy {
        let quota = policy.quota();
        let debts = self.costs_after.iter().map(|cost| cost.most(quota));
        policy.with_debt(debts.max().unwrap_or(0))
    }
}

impl Default for TenantLimit {
    fn default() -> Self {
        TenantLimit {
            description: None,
            enabled: true,
            missing: Missing::Deny,
            unknown: None,
            when: Vec::new(),
            cost: Cost::Fixed(1),
            costs_after: Vec::new(),
            mode: Mode::default(),
            refusal: Refusal::default(),
            response_headers: true,
            on_error: OnError::default(),
        }
    }
}
