//! Where routes and limits come together: costs, debts and what is degraded.

use super::faults::{each_refused, each_warned};
use super::good;
use crate::config::settings::{Settings, Target};
use crate::limit::{Cost, CostSource};

/// Two limits, two upstreams, and a route with more keys that has them all.
fn text(limit: &str, route: &str) -> String {
    format!(
        "[[routes]]\nname = \"r\"\npath = \"/*\"\nupstream = \"main\"\nlimits = [\"a\", \"b\"]\n\
         {route}\n[limits.a]\nkey = \"ip\"\nrate = \"10/second\"\n{limit}\n[limits.b]\n\
         key = \"ip\"\nrate = \"20/second\"\n[upstreams.main]\nservers = [\"http://a\"]\n\
         [upstreams.spare]\nservers = [\"http://b\"]\n[[routes]]\nname = \"s\"\npath = \"/s\"\n\
         upstream = \"spare\"\n"
    )
}

fn means(limit: &str, route: &str) -> Settings {
    let loaded = good(&text(limit, route));
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    loaded.settings
}

#[test]
fn a_route_has_a_cost_of_its_own() {
    let cost = |written: &str| means("", written).routes[0].cost.clone();
    assert_eq!(cost(""), None);
    assert_eq!(cost("cost = 5"), Some(Cost::Fixed(5)));
    let from = CostSource::Query("n".to_owned());
    let told = Cost::Dynamic { from, default: 1, max: Some(1_000_000_000) };
    assert_eq!(cost("cost = { from = \"query:n\" }"), Some(told));
}

#[test]
fn the_limits_of_a_route_have_room_for_the_larger_debt() {
    let debts = |limit: &str, route: &str| {
        let settings = means(limit, route);
        [0, 1].map(|at| settings.limits[at].policy.deepest() - settings.limits[at].policy.quota())
    };
    let told = |most| format!("cost = {{ from = \"response:x-cost\", max = {most} }}");
    assert_eq!(debts("", "cost = 5"), [0, 0]);
    assert_eq!(debts("", &told(7)), [7, 7]);
    assert_eq!(debts(&told(9), &told(7)), [9, 7]);
    assert_eq!(debts(&told(5), &told(7)), [7, 7]);
    assert_eq!(debts("count = \"4xx\"", "cost = 5"), [10, 0]);
    assert_eq!(debts("", "cost = { from = \"response:x-cost\" }"), [10, 20]);
}

#[test]
fn what_is_degraded_goes_to_another_upstream() {
    let degrade = |keys: &str| means("strategy = \"degrade\"", keys).routes[0].degrade.clone();
    assert_eq!(degrade(""), None);
    assert_eq!(degrade("degrade = { upstream = \"spare\" }"), Some(Target::Upstream(1)));
    assert_eq!(degrade("degrade.upstream = \"echo\""), Some(Target::Echo));
}

#[test]
fn a_limit_that_is_switched_off_is_still_named() {
    assert!(!means("enabled = false", "").limits[0].enabled);
}

#[test]
fn what_does_not_go_together_is_refused() {
    let slots = text("", "cost = { from = \"response:x-cost\" }")
        .replace("rate = \"10/second\"", "algorithm = \"concurrency\"\nlimit = 5");
    each_refused(&[
        (
            slots,
            "6:8: `cost` comes with the response, and limit `a` counts requests in flight; tell it",
        ),
        (
            text(
                "candidate = { algorithm = \"concurrency\", limit = 5 }",
                "cost = { from = \"response:x-cost\" }",
            ),
            "`cost` comes with the response, and the candidate of limit `a` counts requests in",
        ),
        (
            text("strategy = \"degrade\"", "degrade = { upstream = \"spar\" }"),
            "there is no upstream `spar`; did you mean `spare`?",
        ),
        // Whether it would degrade cannot be told.
        (text("burst = 0", "degrade = { upstream = \"spare\" }"), "`burst` is out of range: `0`"),
    ]);
}

#[test]
fn what_does_nothing_together_is_warned_of() {
    each_warned(&[
        (
            text("", "cost = 15"),
            "6:8: warning: `cost` is 15, and limit `a` never holds more than 10: every request is",
        ),
        (
            text("", "cost = { from = \"query:n\", default = 15 }"),
            "6:38: warning: `default` is 15, and limit `a` never holds more than 10; write at most",
        ),
        (
            text("", "degrade = { upstream = \"spare\" }"),
            "6:11: warning: `degrade` of `[[routes]]` has no effect: no limit of this route has the \
             strategy `degrade`; remove it, or write `strategy = \"degrade\"` in one of them",
        ),
    ]);
}
