//! Overrides: other numbers or other access for one caller, set by operators at run time.
//!
//! An override changes the numbers of one limit for one key, or lets a caller pass all limits, or
//! keeps it out. Each ends by itself. They are part of the configuration that workers serve, so a
//! request pays nothing for them unless there are some; where gateways share a store, they share
//! these as well, and the embedded store keeps them in its snapshot.

mod table;

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::caller::access::{AccessEntry, AccessList};
use crate::caller::address::unmapped;
use crate::caller::{AccessLists, Addresses};
pub use crate::clock::unix_second as now;
use crate::config;
use crate::limit::adjust::{AdjustError, Numbers};
use crate::limit::spelling::{KeyNormalizer, NormalizedKey};
use crate::limit::trust::Score;
use crate::limit::{Key, Limit, Policy};
use crate::route::bare_host;
pub use table::{OverrideTable, TableFull};

/// One override.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Override {
    #[serde(flatten)]
    pub subject: Subject,
    /// The Unix second at which it ends.
    pub until: u64,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Subject {
    /// Other numbers of a limit for one key, in its [normalized form](normalized_key).
    Override {
        limit: String,
        key: String,
        #[serde(flatten)]
        numbers: NumbersSpec,
    },
    /// A caller that is never limited, or never gets in.
    Access { action: AccessAction, who: CallerKind, value: String },
}

/// The numbers of an override, as they were written.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct NumbersSpec {
    /// As a configuration has it: `600/minute`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// The burst, or how many at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
    /// So many times as much of everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boost: Option<f64>,
}

/// Why a limit cannot be overridden so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OverrideError {
    #[error("`rate` is not a rate: write one such as \"600/minute\"")]
    Rate,
    #[error(transparent)]
    Numbers(#[from] AdjustError),
    #[error("for the plan {plan:?}: {why}")]
    Plan { plan: String, why: AdjustError },
}

impl NumbersSpec {
    /// A policy (the limit's own, or a plan's) with these numbers. What is left out stays as it is.
    ///
    /// # Errors
    /// If it cannot have them.
    pub fn policy(&self, policy: &Policy) -> Result<Policy, OverrideError> {
        Ok(policy.adjusted(&self.numbers()?)?)
    }

    /// The same, read.
    ///
    /// # Errors
    /// If the rate is none.
    pub fn numbers(&self) -> Result<Numbers, OverrideError> {
        let rate = self.rate.as_deref();
        let rate =
            rate.map(|text| config::parse_rate(text).ok_or(OverrideError::Rate)).transpose()?;
        Ok(Numbers { rate, burst: self.burst, boost: self.boost })
    }

    /// Whether a limit can have these numbers, for callers of whichever plan.
    ///
    /// # Errors
    /// If it cannot.
    pub fn suits(&self, limit: &Limit) -> Result<(), OverrideError> {
        let numbers = self.numbers()?;
        // The highest score has the largest numbers.
        let most = if limit.adaptive { Score::FULL } else { Score::ZERO };
        let fits = |policy: &Policy| {
            policy.adjusted(&numbers).and_then(|_| policy.adjusted_for(&numbers, most)).map(|_| ())
        };
        fits(&limit.policy)?;
        for (plan, policy) in &limit.plans {
            if let Err(why) = fits(policy) {
                return Err(OverrideError::Plan { plan: plan.clone(), why });
            }
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccessAction {
    Allow,
    Deny,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallerKind {
    Ip,
    User,
    Client,
}

impl Override {
    /// An override that has ended, to look up others with the same id.
    pub fn about(subject: Subject) -> Self {
        Override { subject, until: 0, reason: None }
    }

    /// Two overrides about the same are one, and the later one holds.
    pub fn id(&self) -> String {
        self.id_with(str::to_owned)
    }

    /// The same, with a caller that is called otherwise.
    pub fn id_with(&self, name: impl Fn(&str) -> String) -> String {
        match &self.subject {
            Subject::Override { limit, key, .. } => format!("override/{limit}/{}", name(key)),
            // Without the action: allowing a caller replaces what denied it, and the other way round.
            Subject::Access { who, value, .. } => {
                let who = match who {
                    CallerKind::Ip => "ip",
                    CallerKind::User => "user",
                    CallerKind::Client => "client",
                };
                format!("access/{who}/{}", name(value))
            }
        }
    }

    fn entry(&self) -> Option<(AccessAction, AccessEntry)> {
        let Subject::Access { action, who, value } = &self.subject else { return None };
        let entry = match who {
            CallerKind::Ip => AccessEntry::Network(network(value)?),
            CallerKind::User => AccessEntry::User(value.clone()),
            CallerKind::Client => AccessEntry::Client(value.clone()),
        };
        Some((*action, entry))
    }
}

/// A key of a limit as an operator writes it, in the form that requests have.
pub fn normalized_key(limit: &Limit, key: &str, addresses: &Addresses) -> Option<NormalizedKey> {
    normalized(&limit.key, key, addresses)
}

/// The same of any key.
pub fn normalized(key: &Key, text: &str, addresses: &Addresses) -> Option<NormalizedKey> {
    struct AsCounted<'a>(&'a Addresses);
    impl KeyNormalizer for AsCounted<'_> {
        fn ip(&self, ip: IpAddr) -> IpAddr {
            self.0.counted(ip)
        }

        fn host(&self, host: &str) -> String {
            bare_host(host).into_owned()
        }
    }
    key.spelled(text, &AsCounted(addresses))
}

/// An address, or a network of them.
pub fn network(text: &str) -> Option<IpNet> {
    let network = text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
    network.map(|network| unmapped(network).trunc())
}

/// Other numbers of a limit for one key, as they were written.
#[derive(Debug, Clone, Copy)]
pub struct KeyNumbers<'a> {
    pub key: &'a str,
    pub numbers: &'a NumbersSpec,
}

/// The overrides that hold, as they were at some instant.
#[derive(Debug, Clone, Default)]
pub struct ActiveOverrides(Vec<Override>);

impl ActiveOverrides {
    /// The lists of callers that are allowed and denied, if there are any.
    pub fn access(&self) -> Option<AccessLists> {
        let of = |wanted: AccessAction| {
            let entries = self.0.iter().filter_map(Override::entry);
            entries.filter(move |(action, _)| *action == wanted).map(|(_, entry)| entry)
        };
        let access = AccessLists {
            allow: AccessList::new(of(AccessAction::Allow)),
            deny: AccessList::new(of(AccessAction::Deny)),
        };
        Some(access).filter(|it| !it.allow.is_empty() || !it.deny.is_empty())
    }

    /// The keys that have other numbers, as they were written, by the names of their limits.
    pub fn overrides(&self) -> HashMap<&str, Vec<KeyNumbers<'_>>> {
        let mut of_limits: HashMap<&str, Vec<_>> = HashMap::new();
        for entry in &self.0 {
            if let Subject::Override { limit, key, numbers } = &entry.subject {
                of_limits.entry(limit).or_default().push(KeyNumbers { key, numbers });
            }
        }
        of_limits
    }
}

#[cfg(test)]
mod tests;
