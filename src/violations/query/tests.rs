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
fn a_tree_of_tenants_goes_by_its_own_name_and_by_that_of_each_level() {
    let mut ring = ViolationRing::default();
    for (time, limit) in
        ["tenants/acme", "tenants", "tenants-of-old", "tenants/partner"].iter().enumerate()
    {
        let event = ViolationEvent::RateLimitExceeded;
        let mut it = Violation::new(event, "a1".to_owned(), "token_bucket");
        (it.time, it.limit) = (time as f64, Some((*limit).to_owned()));
        add(&mut ring, &it);
    }
    let of = |limit: &str| {
        let limit = Some(limit.to_owned());
        times(&asked(&ring, &ViolationQuery { limit, max: 100, ..ViolationQuery::default() }))
    };
    assert_eq!(of("tenants"), [3.0, 1.0, 0.0]);
    assert_eq!(of("tenants/acme"), [0.0]);
    assert_eq!(of("tenants/a"), [0.0; 0]);
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
