//! What is said of a tenant, with the keys that it has in a configuration, and what that means.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::config;
use crate::limit::rate::MAX_COUNT;
use crate::limit::tenants::{Budget, BudgetMode, Overcommit, Sharing, TenantAlgorithm, TenantSpec};
use crate::limit::token_bucket::MAX_BURST;

/// A tenant as it was written.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// As a configuration has it: `1000/minute`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetBody>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overcommit: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guaranteed: Option<BTreeMap<String, u64>>,
}

/// As much of a description as anybody reads.
const MAX_DESCRIPTION_CHARS: usize = 500;

impl TenantBody {
    /// What it means for a tenant of that name.
    ///
    /// # Errors
    /// If a value means nothing: a sentence that says which.
    pub fn spec(&self, name: &str) -> Result<TenantSpec, String> {
        let description = self.description.clone();
        if description.as_ref().is_some_and(|it| it.chars().count() > MAX_DESCRIPTION_CHARS) {
            return Err("The description has more than 500 characters.".to_owned());
        }
        let rate = self.rate.as_deref().map(|text| {
            config::parse_rate(text)
                .ok_or("The rate is none: write one such as \"1000/minute\".".to_owned())
        });
        let sharing = self.sharing.as_deref();
        let sharing = sharing.map(|name| named("sharing", name, &Sharing::NAMES)).transpose()?;
        let algorithm = self.algorithm.as_deref();
        let algorithm = algorithm.map(|name| named("algorithm", name, &TenantAlgorithm::NAMES));
        Ok(TenantSpec {
            parent: self.parent.clone(),
            rate: rate.transpose()?,
            burst: in_range("burst", self.burst, MAX_BURST)?,
            algorithm: algorithm.transpose()?,
            sharing: sharing.unwrap_or_default(),
            budget: self.budget.as_ref().map(BudgetBody::budget).transpose()?.unwrap_or_default(),
            description,
            ..TenantSpec::new(name)
        })
    }
}

impl BudgetBody {
    fn budget(&self) -> Result<Budget, String> {
        let overcommit = self.overcommit.map(|factor| {
            let hundredths = (factor * 100.0).round();
            let exact = (factor * 100.0 - hundredths).abs() < 1e-6;
            let hundredths = if exact { hundredths as u16 } else { 0 };
            Overcommit::of_hundredths(hundredths)
                .ok_or("The overcommit must be 1.0 to 2.0, with at most two decimals.".to_owned())
        });
        let guarantees = self.guaranteed.as_ref();
        let mode = match (self.mode.as_deref().unwrap_or("unlimited"), guarantees) {
            ("unlimited", None) => BudgetMode::Unlimited,
            ("allocated", None) => BudgetMode::Allocated,
            ("shared", None) => BudgetMode::Shared,
            ("guaranteed", Some(guarantees)) => {
                let mut each = Vec::with_capacity(guarantees.len());
                for (child, guarantee) in guarantees {
                    in_range("guarantee", Some(*guarantee), MAX_COUNT)?;
                    each.push((child.clone(), *guarantee));
                }
                BudgetMode::Guaranteed(each)
            }
            ("guaranteed", None) => {
                return Err("A guaranteed budget needs guarantees, such as \
                            \"guaranteed\": {\"a1\": 1000}."
                    .to_owned());
            }
            ("unlimited" | "allocated" | "shared", Some(_)) => {
                return Err("Guarantees go with the mode \"guaranteed\".".to_owned());
            }
            _ => {
                return Err("The mode of a budget must be unlimited, allocated, shared or \
                            guaranteed."
                    .to_owned());
            }
        };
        let total = in_range("total", self.total, MAX_COUNT)?;
        Ok(Budget { mode, total, overcommit: overcommit.transpose()?.unwrap_or_default() })
    }
}

fn named<T: Copy>(key: &str, name: &str, names: &[(&str, T)]) -> Result<T, String> {
    let found = names.iter().find(|(it, _)| *it == name).map(|(_, it)| *it);
    found.ok_or_else(|| {
        let known: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        format!("The {key} must be one of {}.", known.join(", "))
    })
}

fn in_range(key: &str, number: Option<u64>, most: u64) -> Result<Option<u64>, String> {
    match number {
        Some(number) if !(1..=most).contains(&number) => {
            Err(format!("The {key} must be 1 to {most}."))
        }
        number => Ok(number),
    }
}
