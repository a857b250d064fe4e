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
    /// How far below zero charges after the fact may push a bucket, on any route.
    pub debt: u64,
    pub mode: Mode,
    pub refusal: Refusal,
    /// Whether answers may name it.
    pub response_headers: bool,
    /// What becomes of requests while the store cannot be asked.
    pub on_error: OnError,
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
            debt: 0,
            mode: Mode::default(),
            refusal: Refusal::default(),
            response_headers: true,
            on_error: OnError::default(),
        }
    }
}
