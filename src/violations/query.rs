//! What operators ask of violations: by whom, by which limit, when. Newest first, in pages.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::Serialize;

use super::{KeptViolation, Violation, ViolationId};

/// What is asked for. Everything that is set has to fit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ViolationQuery {
    pub user: Option<String>,
    pub ip: Option<AddressFilter>,
    pub client: Option<String>,
    /// What the limit or guard counts by, as people spell it.
    pub key: Option<String>,
    /// The name of a limit or of a guard. `tenants` is all levels of a tree, `tenants/acme` one of them.
    pub limit: Option<String>,
    pub route: Option<String>,
    /// Unix seconds, both included.
    pub since: Option<f64>,
    pub until: Option<f64>,
    /// Only those that stand before this one: where the page before ended.
    pub before: Option<ViolationId>,
    /// How many at the most.
    pub max: usize,
}

/// An address or a network, or an address by its hash where logs have only that.
#[derive(Debug, Clone, PartialEq)]
pub enum AddressFilter {
    Network(IpNet),
    Text(String),
}

/// Some violations, newest first.
#[derive(Debug, Default, Serialize)]
pub struct ViolationPage {
    pub violations: Vec<ViolationView>,
    /// What to ask for next as `before`; `None` if there are no more.
    pub before: Option<String>,
}

/// A violation as operators see it.
#[derive(Debug, Serialize)]
pub struct ViolationView {
    pub id: String,
    #[serde(flatten)]
    pub violation: Violation,
}

impl AddressFilter {
    fn fits(&self, ip: &str) -> bool {
        match self {
            AddressFilter::Network(network) => {
                ip.parse().is_ok_and(|ip: IpAddr| network.contains(&ip))
            }
            AddressFilter::Text(text) => text == ip,
        }
    }
}

impl ViolationQuery {
    pub fn fits(&self, violation: &Violation) -> bool {
        let same =
            |wanted: &Option<String>, found: &Option<String>| wanted.is_none() || wanted == found;
        let has_level = |name: &str, found: &str| {
            found.strip_prefix(name).is_some_and(|level| level.is_empty() || level.starts_with('/'))
        };
        let named = self.limit.as_ref().is_none_or(|name| {
            violation.limit.as_ref().is_some_and(|it| has_level(name, it))
                || violation.guard.as_ref() == Some(name)
        });
        let from_there = |ip: &AddressFilter| violation.ip.as_deref().is_some_and(|it| ip.fits(it));
        named
            && self.key.as_ref().is_none_or(|key| *key == violation.identifier)
            && same(&self.user, &violation.user)
            && same(&self.client, &violation.client)
            && same(&self.route, &violation.route)
            && self.ip.as_ref().is_none_or(from_there)
            && self.since.is_none_or(|since| violation.time >= since)
            && self.until.is_none_or(|until| violation.time <= until)
    }

    /// The page that is asked for, of entries that come newest first.
    pub fn page(&self, newest_first: impl IntoIterator<Item = KeptViolation>) -> ViolationPage {
        let mut page = ViolationPage::default();
        for entry in newest_first {
            if page.offer(self, entry) {
                break;
            }
        }
        page
    }
}

impl ViolationPage {
    /// Takes the next entry if it is asked for. True once the page is complete.
    pub fn offer(&mut self, query: &ViolationQuery, entry: KeptViolation) -> bool {
        if query.before.is_some_and(|before| entry.id >= before) || !query.fits(&entry.violation) {
            return false;
        }
        if self.violations.len() == query.max {
            self.before = self.violations.last().map(|it| it.id.clone());
            return true;
        }
        let KeptViolation { id, violation } = entry;
        self.violations.push(ViolationView { id: id.to_string(), violation });
        false
    }
}

#[cfg(test)]
mod tests;
