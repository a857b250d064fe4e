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
    /// The name of a limit or of a guard.
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
        let named =
            self.limit.is_none() || self.limit == violation.limit || self.limit == violation.guard;
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
mod tests {
    use super::*;
    use crate::violations::{KeptLine, ViolationEvent, ViolationRing};

    fn add(ring: &mut ViolationRing, violation: &Violation) {
        ring.push(violation.time, serde_json::to_string(violation).unwrap().into());
    }

    fn ring(count: usize) -> ViolationRing {
        let mut ring = ViolationRing::default();
        for number in 0..count {
            let event = ViolationEvent::RateLimitExceeded;
            let mut it = Violation::new(event, format!("key-{}", number % 5), "token_bucket");
            it.time = number as f64;
            it.user = Some(if number % 2 == 0 { "ann" } else { "ben" }.to_owned());
            it.ip = Some(format!("192.0.2.{}", number % 4));
            it.limit = (number % 3 > 0).then(|| "calls".to_owned());
            it.guard = (number % 3 == 0).then(|| "flood".to_owned());
            add(&mut ring, &it);
        }
        ring
    }

    fn times(page: &ViolationPage) -> Vec<f64> {
        page.violations.iter().map(|it| it.violation.time).collect()
    }

    fn asked(ring: &ViolationRing, query: &ViolationQuery) -> ViolationPage {
        query.page(ring.all().iter().rev().filter_map(KeptLine::parse))
    }

    #[test]
    fn filters_have_to_fit_all_together() {
        let ring = ring(12);
        let any = ViolationQuery { max: 100, ..ViolationQuery::default() };
        let ann = ViolationQuery { user: Some("ann".to_owned()), ..any.clone() };
        assert_eq!(times(&asked(&ring, &ann)), [10.0, 8.0, 6.0, 4.0, 2.0, 0.0]);
        let flood = ViolationQuery { limit: Some("flood".to_owned()), ..ann.clone() };
        assert_eq!(times(&asked(&ring, &flood)), [6.0, 0.0], "a guard goes by its name, too");
        let key = ViolationQuery { key: Some("key-1".to_owned()), ..any.clone() };
        assert_eq!(times(&asked(&ring, &key)), [11.0, 6.0, 1.0]);
        let network = AddressFilter::Network("192.0.2.2/31".parse().unwrap());
        let there = ViolationQuery { ip: Some(network), ..any.clone() };
        assert_eq!(times(&asked(&ring, &there)), [11.0, 10.0, 7.0, 6.0, 3.0, 2.0]);
        let then = ViolationQuery { since: Some(3.0), until: Some(5.0), ..any.clone() };
        assert_eq!(times(&asked(&ring, &then)), [5.0, 4.0, 3.0]);
        let nobody = ViolationQuery { client: Some("app".to_owned()), ..any };
        assert!(asked(&ring, &nobody).violations.is_empty());
    }

    #[test]
    fn pages_follow_each_other_without_gap_or_double_while_more_comes() {
        let mut ring = ring(10);
        let user = Some("ann".to_owned());
        let mut query = ViolationQuery { user, max: 2, ..ViolationQuery::default() };
        let mut seen = Vec::new();
        loop {
            let page = asked(&ring, &query);
            seen.extend(times(&page));
            let Some(before) = page.before else { break };
            query.before = before.parse().ok();
            let first = ring.all()[0].parse().unwrap();
            add(&mut ring, &first.violation);
        }
        assert_eq!(seen, [8.0, 6.0, 4.0, 2.0, 0.0]);
    }
}
