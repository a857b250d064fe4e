//! What the buckets of tenants are charged: by costs that are told, by trees that only watch, and in
//! a table that is full.

use serde_json::json;

use super::tenants::{ask, members, named, passed, tenant, with_tenants};
use crate::support::{
    Config, Response, TestStore, Upstream, Weir, get_with, on_each_store, wait_until,
};

on_each_store!(
    client_that_leaves_owes_no_more_than_each_bucket_holds,
    told_cost_above_what_a_bucket_holds_takes_all_of_it,
    tree_that_only_watches_charges_all_levels_or_none,
);

/// What is used of a tenant's own bucket.
fn used(weir: &Weir, name: &str) -> u64 {
    let tenant = weir.admin(&format!("/v1/tenants/{name}")).json();
    tenant["effective"]["used"].as_u64().unwrap_or_else(|| panic!("{tenant}"))
}

/// A tree that forwards to an upstream.
fn forwarded(tree: &str, upstream: &Upstream, routes: &str) -> Config {
    let servers = format!("servers = [\"http://{}\"]", upstream.address());
    with_tenants(tree).routes(routes).upstream(&servers)
}

fn client_that_leaves_owes_no_more_than_each_bucket_holds(test_store: &TestStore) {
    // Who tells its cost, the limit or the route.
    let cost = "cost = { from = \"response:x-units\" }\n";
    for (case, (of_limit, of_route)) in [(cost, ""), ("", cost)].into_iter().enumerate() {
        let upstream = Upstream::silent();
        let tree = format!("[limits.tenants]\n{of_limit}")
            + &tenant("p", "", 10, "")
            + &tenant("c", "p", 4, "")
            + &tenant("d", "p", 10, "");
        let routes = format!(
            "[[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"api\"\n\
             limits = [\"tenants\"]\n{of_route}"
        );
        let config = forwarded(&tree, &upstream, &routes);
        let weir = Weir::start(&test_store.configure_case(case, config));
        let before = upstream.heads();
        let mut client = weir.connect();
        let part = get_with("/", "X-Tenant: c\r\nContent-Length: 10\r\n").replace("GET", "POST");
        client.send(part + "hello");
        wait_until("it is in flight", || upstream.heads() > before);
        client.wire.reset();
        wait_until("it is charged", || used(&weir, "p") > 0);
        // Each is empty, and none owes.
        assert_eq!(["p", "c", "d"].map(|name| used(&weir, name)), [10, 4, 0]);
        let refused = ask(&weir, "d");
        assert_eq!(refused.json()["violated-policies"], json!(["tenants/p"]));
        let wait = refused.json()["retry_after_ms"].as_u64().unwrap();
        let one_unit = 86_400_000 / 10;
        assert!((1..=one_unit).contains(&wait), "{wait}");
    }
}

fn told_cost_above_what_a_bucket_holds_takes_all_of_it(test_store: &TestStore) {
    let tree = "[limits.tenants]\ncost = { from = \"header:x-cost\" }\nrate = \"3/day\"\n"
        .to_owned()
        + &tenant("p", "", 10, "")
        + &tenant("c", "p", 4, "")
        + &tenant("g", "", 10, "budget = { mode = \"guaranteed\", guaranteed = { n = 3 } }")
        + &tenant("n", "g", 0, "");
    let weir = Weir::start(&test_store.configure(with_tenants(&tree)));
    let spend = |tenant: &str, cost: u64| -> Response {
        weir.ask(get_with("/", &format!("X-Tenant: {tenant}\r\nX-Cost: {cost}\r\n")))
    };
    let left = |response: &Response| members(response, "ratelimit");
    // Each level by what it holds itself.
    let first = spend("c", 6);
    assert_eq!((first.status, left(&first)), (200, named(&[("tenants/c", 0), ("tenants/p", 4)])));
    let refused = spend("p", 2000);
    assert_eq!((refused.status, refused.error()), (429, "rate_limit_exceeded".to_owned()));
    assert_eq!(spend("p", 4).status, 200);
    // A pair by the larger of the two, which is the pool here.
    let all = spend("n", u64::MAX);
    assert_eq!((all.status, left(&all)), (200, named(&[("tenants/n", 0), ("tenants/g", 0)])));
    let [g, n] = ["g", "n"].map(|name| weir.admin(&format!("/v1/tenants/{name}")).json());
    assert_eq!([&g["pool"]["used"], &n["guarantee"]["used"]], [&json!(7), &json!(0)]);
    // Whoever is not in the tree.
    assert_eq!([2000, 1].map(|cost| spend("stranger", cost).status), [200, 429]);
}

fn tree_that_only_watches_charges_all_levels_or_none(test_store: &TestStore) {
    let tree = "[limits.tenants]\nmode = \"shadow\"\n".to_owned()
        + &tenant("p", "", 9, "budget = { mode = \"guaranteed\", guaranteed = { c = 3 } }")
        + &tenant("c", "p", 4, "")
        + &tenant("d", "p", 9, "");
    let weir = Weir::start(&test_store.configure(with_tenants(&tree)));
    let all = || {
        let tenant = |name: &str| weir.admin(&format!("/v1/tenants/{name}")).json();
        let (p, c) = (tenant("p"), tenant("c"));
        [&c["effective"], &c["guarantee"], &p["pool"]].map(|it| it["used"].as_u64().unwrap())
    };
    // Beyond its own four, a child takes nothing from the pool of its siblings.
    assert_eq!(passed(&weir, "c", 20), 20);
    assert_eq!(all(), [4, 3, 1]);
    // And what the pool refuses is not charged to the sibling.
    assert_eq!(passed(&weir, "d", 20), 20);
    assert_eq!((used(&weir, "d"), all()), (5, [4, 3, 6]));
    // A level counts as if it were enforced: nothing, where another one refuses.
    let metrics = weir.metrics();
    let decisions = |limit: &str| {
        ["shadow_allowed", "shadow_refused"].map(|outcome| {
            let labels = [("limit", limit), ("outcome", outcome)];
            metrics.value("weir_decisions_total", &labels).unwrap_or(0.0)
        })
    };
    assert_eq!(decisions("tenants/1"), [9.0, 15.0]);
    assert_eq!(decisions("tenants/2"), [9.0, 16.0]);
}

#[test]
fn what_is_used_in_a_full_table_is_told() {
    let tree = "[limits.other]\nkey = \"header:x-user\"\nrate = \"1/day\"\nburst = 20\n".to_owned()
        + &tenant("p", "", 10, "")
        + &tenant("c", "p", 4, "");
    let route = |path: &str, limit: &str| {
        format!(
            "[[routes]]\nname = {limit:?}\npath = {path:?}\nupstream = \"echo\"\nlimits = [{limit:?}]\n"
        )
    };
    let routes = route("/*", "tenants") + &route("/other", "other");
    let weir = Weir::start(&with_tenants(&tree).routes(&routes).store("max_keys = 8"));
    for user in 0..20 {
        assert_eq!(weir.ask(get_with("/other", &format!("X-User: {user}\r\n"))).status, 200);
    }
    assert_eq!(passed(&weir, "c", 3), 3);
    assert_eq!(["p", "c"].map(|name| used(&weir, name)), [3, 3]);
}
