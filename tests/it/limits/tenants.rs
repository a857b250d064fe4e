//! Tenant budgets: a parent caps its children, whatever they do and wherever they ask.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::support::{
    Config, Redis, Response, SetOnDrop, TestStore, Upstream, Weir, fields, get, get_with,
    on_every_store, passed_at_once, wait_until,
};

on_every_store!(
    every_row_of_the_sharing_table_holds,
    three_tenants_share_a_pool_of_5000,
    costs_count_against_budgets,
    a_refusal_charges_nobody,
    a_guaranteed_tenant_is_never_starved,
    answers_name_the_level,
    a_window_is_split_and_enforced_as_a_bucket_is,
    children_of_two_gateways_never_exceed_their_parent,
);

/// A route for all, with the tenant in a header, and a tree.
pub(crate) fn with_tenants(tree: &str) -> Config {
    let identity = "[identity]\ntenant = \"header:x-tenant\"";
    Config::echo().operated().open().route("all", "/*", &["tenants"]).also(identity).also(tree)
}

/// A tenant that holds so many, and refills nothing in the minutes that a test takes.
pub(crate) fn tenant(name: &str, parent: &str, burst: u64, rest: &str) -> String {
    let parent = if parent.is_empty() { String::new() } else { format!("parent = {parent:?}\n") };
    let numbers = match burst {
        0 => String::new(),
        burst => format!("rate = \"{burst}/day\"\n"),
    };
    format!("[tenants.{name}]\n{parent}{numbers}{rest}\n")
}

fn request(tenant: &str) -> String {
    get_with("/", &format!("X-Tenant: {tenant}\r\n"))
}

pub(crate) fn ask(weir: &Weir, tenant: &str) -> Response {
    weir.ask(request(tenant))
}

/// How many pass of so many.
#[track_caller]
pub(crate) fn passed(weir: &Weir, tenant: &str, asked: usize) -> usize {
    let mut client = weir.connect();
    (0..asked).filter(|_| passes(client.ask(request(tenant)).status)).count()
}

#[track_caller]
fn passes(status: u16) -> bool {
    assert!(matches!(status, 200 | 429), "{status}");
    status == 200
}

fn every_row_of_the_sharing_table_holds(test_store: &TestStore) {
    let mut tree = String::new();
    for (root, rest) in [
        ("private", "sharing = \"private\""),
        ("inherit", "sharing = \"inherit\""),
        ("inherit-shared", "sharing = \"inherit\"\nbudget = { mode = \"shared\" }"),
        ("enforce", "sharing = \"enforce\""),
        ("enforce-shared", "budget = { mode = \"shared\" }"),
    ] {
        tree += &tenant(root, "", 5, rest);
        tree += &tenant(&format!("{root}-more"), root, 9, "");
        tree += &tenant(&format!("{root}-less"), root, 2, "");
        if root != "private" {
            tree += &tenant(&format!("{root}-none"), root, 0, "");
        }
    }
    // An enforcing child of an enforcing parent.
    tree += &tenant("enforce-deep", "enforce-more", 3, "");
    let weir = Weir::start(&test_store.configure(with_tenants(&tree)));
    // What a child passes by itself, what its siblings then do, and what is left for the parent.
    for (name, expected) in [
        // Each has its own, whatever the parent has.
        ("private-more", 9),
        ("private-less", 2),
        ("private", 5),
        // None has more than the parent, and the parent is not charged.
        ("inherit-more", 5),
        ("inherit-less", 2),
        ("inherit-none", 5),
        ("inherit", 5),
        // All draw on the parent.
        ("inherit-shared-less", 2),
        ("inherit-shared-more", 3),
        ("inherit-shared-none", 0),
        ("inherit-shared", 0),
        ("enforce-less", 2),
        ("enforce-deep", 3),
        ("enforce-more", 0),
        ("enforce-none", 0),
        ("enforce", 0),
        ("enforce-shared-none", 5),
        ("enforce-shared", 0),
    ] {
        assert_eq!(passed(&weir, name, 11), expected, "{name}");
    }
}

fn three_tenants_share_a_pool_of_5000(test_store: &TestStore) {
    // A hundred at a time, so that it takes fifty requests.
    let tree = r#"
        [limits.tenants]
        cost = { from = "header:x-cost", default = 1, max = 1000 }

        [tenants.partner-a]
        rate = "5000/day"
        algorithm = "fixed_window"
        budget = { mode = "shared" }
    "#;
    let sharers = ["a1", "a2", "a3"].map(|name| tenant(name, "partner-a", 0, "")).concat();
    let config = with_tenants(tree).also(&sharers);
    let weir = Weir::start(&test_store.configure(config));
    let mut client = weir.connect();
    let mut spend = |tenant: &str, cost: u64| {
        let lines = format!("X-Tenant: {tenant}\r\nX-Cost: {cost}\r\n");
        passes(client.ask(get_with("/", &lines)).status)
    };
    // First come, first served: one takes most, and the others what is left.
    for n in 0..45 {
        assert!(spend("a1", 100), "{n}");
    }
    assert!((0..4).all(|_| spend("a2", 100)));
    assert!(!spend("a2", 200));
    assert!(spend("a3", 99) && spend("a2", 1));
    for tenant in ["a1", "a2", "a3", "partner-a"] {
        assert!(!spend(tenant, 1), "{tenant}");
    }
}

fn costs_count_against_budgets(test_store: &TestStore) {
    let mut tree = String::new();
    for root in ["dear", "cheap", "both"] {
        tree += &format!("[tenants.{root}]\nrate = \"1000/day\"\nalgorithm = \"fixed_window\"\n");
        tree += &format!("[tenants.{root}-child]\nparent = \"{root}\"\n");
    }
    let config = with_tenants(&tree).routes("").route("dear", "/dear", &["tenants"]);
    let config = config.route_lines("cost = 10").route("cheap", "/cheap", &["tenants"]);
    let weir = Weir::start(&test_store.configure(config));
    let mut client = weir.connect();
    let mut passed = |target: &str, tenant: &str, asked: usize| {
        let request = get_with(target, &format!("X-Tenant: {tenant}-child\r\n"));
        (0..asked).filter(|_| passes(client.ask(&request).status)).count()
    };
    assert_eq!(passed("/dear", "dear", 110), 100);
    assert_eq!(passed("/cheap", "cheap", 1010), 1000);
    assert_eq!(passed("/dear", "both", 50), 50);
    assert_eq!(passed("/cheap", "both", 510), 500);
    assert_eq!(passed("/dear", "both", 1), 0);
}

fn a_refusal_charges_nobody(test_store: &TestStore) {
    let tree = tenant("root", "", 9, "")
        + &tenant("full", "root", 6, "")
        + &tenant("child", "full", 6, "")
        + &tenant("small", "full", 1, "");
    let weir = Weir::start(&test_store.configure(with_tenants(&tree)));
    assert_eq!(passed(&weir, "small", 20), 1);
    // Nineteen refusals by the child's own bucket have left its ancestors as they were.
    assert_eq!(passed(&weir, "child", 20), 5);
    // And those by the parent's have left the child's and the root's.
    assert_eq!(passed(&weir, "root", 20), 3);
    let used = |name: &str| {
        let tenant = weir.admin(&format!("/v1/tenants/{name}")).json();
        tenant["effective"]["used"].as_u64().unwrap_or_else(|| panic!("{tenant}"))
    };
    wait_until("all is as it was charged", || {
        ["root", "full", "child", "small"].map(used) == [9, 6, 5, 1]
    });
}

/// Ten for one child, five for another, and fifteen for whoever comes first.
fn guarantees(algorithm: &str) -> String {
    format!(
        r#"
        [tenants.partner]
        rate = "30/day"
        burst = 30
        {algorithm}
        budget = {{ mode = "guaranteed", guaranteed = {{ a1 = 10, a2 = 5 }} }}
        [tenants.a1]
        parent = "partner"
        [tenants.a2]
        parent = "partner"
        [tenants.flood]
        parent = "partner"
        [tenants.deep]
        parent = "a2"
    "#
    )
}

fn a_guaranteed_tenant_is_never_starved(test_store: &TestStore) {
    let weir = Weir::start(&test_store.configure(with_tenants(&guarantees(""))));
    let (flooded, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let end = SetOnDrop(&stop);
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = weir.connect();
                while !stop.load(Ordering::Relaxed) {
                    let passed = passes(client.ask(request("flood")).status);
                    flooded.fetch_add(usize::from(passed), Ordering::Relaxed);
                }
            });
        }
        wait_until("the pool is empty", || flooded.load(Ordering::Relaxed) >= 15);
        let spend = |name: &'static str, clients: usize| {
            let tasks: Vec<_> =
                (0..clients).map(|_| scope.spawn(|| passed(&weir, name, 5))).collect();
            tasks.into_iter().map(|task| task.join().unwrap()).sum::<usize>()
        };
        // All that was guaranteed is there, under the flood, and not one more.
        assert_eq!(spend("a1", 6), 10);
        assert_eq!(spend("deep", 2), 5, "what comes through a child is guaranteed to it");
        assert_eq!(spend("a2", 1), 0);
        drop(end);
    });
    assert_eq!(flooded.into_inner(), 15);
    let partner = weir.admin("/v1/tenants/partner").json();
    assert_eq!((&partner["pool"]["used"], &partner["pool"]["left"]), (&json!(15), &json!(0)));
    let a1 = weir.admin("/v1/tenants/a1").json();
    assert_eq!((&a1["guarantee"]["used"], &a1["guarantee"]["burst"]), (&json!(10), &json!(10)));
}

fn a_window_is_split_and_enforced_as_a_bucket_is(test_store: &TestStore) {
    for (case, algorithm) in ["sliding_window", "fixed_window"].into_iter().enumerate() {
        let tree = guarantees(&format!("algorithm = {algorithm:?}")).replace("burst = 30\n", "");
        let weir = Weir::start(&test_store.configure_case(case, with_tenants(&tree)));
        // It spends its own first, and then the pool.
        assert_eq!(passed(&weir, "a1", 17), 17, "{algorithm}");
        assert_eq!(passed(&weir, "flood", 20), 8, "{algorithm}");
        assert_eq!(passed(&weir, "a1", 2), 0, "{algorithm}");
        assert_eq!(passed(&weir, "a2", 9), 5, "{algorithm}");
        assert_eq!(passed(&weir, "partner", 1), 0, "{algorithm}");
    }
}

pub(crate) fn members(response: &Response, field: &str) -> Vec<(String, i64)> {
    let parameter = if field == "ratelimit" { "r" } else { "q" };
    let list = fields::list(&response.all(field));
    list.iter().map(|it| (it.name().to_owned(), it.integer(parameter))).collect()
}

pub(crate) fn named(members: &[(&str, i64)]) -> Vec<(String, i64)> {
    members.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect()
}

fn answers_name_the_level(test_store: &TestStore) {
    let tree = tenant("system", "", 100, "")
        + &tenant("partner-a", "system", 3, "")
        + &tenant("a1", "partner-a", 2, "")
        + &tenant("a2", "partner-a", 9, "")
        + "[telemetry]\naccess_log = \"access.log\"\naudit_log = \"audit.log\"";
    let weir = Weir::start(&test_store.configure(with_tenants(&tree)));
    let first = ask(&weir, "a1");
    let left = named(&[("tenants/a1", 1), ("tenants/partner-a", 2), ("tenants/system", 99)]);
    assert_eq!(members(&first, "ratelimit"), left);
    let quotas = named(&[("tenants/a1", 2), ("tenants/partner-a", 3), ("tenants/system", 100)]);
    assert_eq!(members(&first, "ratelimit-policy"), quotas);
    assert_eq!(first.one("x-ratelimit-limit"), "2", "the closest to refusing");
    assert_eq!(passed(&weir, "a2", 2), 2);
    let refused = ask(&weir, "a1");
    assert_eq!(refused.status, 429);
    let body = refused.json();
    assert_eq!(body["violated-policies"], json!(["tenants/partner-a"]), "{body}");
    assert_eq!(body["limit"], "tenants/partner-a");
    let status = refused.one("proxy-status");
    assert!(status.contains("details=\"tenants/partner-a token_bucket exceeded\""), "{status}");
    // The labels have levels, and no names.
    let metrics = weir.metrics();
    assert_eq!(metrics.decisions("tenants/1", "allowed"), Some(3.0));
    assert_eq!(metrics.decisions("tenants/2", "allowed"), Some(3.0));
    assert_eq!(metrics.decisions("tenants/2", "refused"), Some(1.0));
    assert_eq!(metrics.decisions("tenants/3", "allowed"), Some(3.0));
    assert_eq!(metrics.decisions("tenants/3", "refused"), Some(0.0));
    assert!(metrics.series().iter().all(|it| !it.contains("partner-a")), "a name in a label");
    let log = |name: &str| -> Vec<Value> {
        let text = std::fs::read_to_string(weir.directory().join(name)).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    let of_refusal = |name: &str| log(name).into_iter().find(|it| it["limit"].is_string());
    wait_until("it is logged", || of_refusal("access.log").is_some());
    wait_until("it is audited", || of_refusal("audit.log").is_some());
    assert_eq!(of_refusal("access.log").unwrap()["limit"], "tenants/partner-a");
    let audited = of_refusal("audit.log").unwrap();
    for (field, value) in [
        ("event", "rate_limit_exceeded"),
        ("limit", "tenants/partner-a"),
        ("limit_type", "token_bucket"),
        ("identifier", "a1"),
        ("tenant", "a1"),
    ] {
        assert_eq!(audited[field], value, "{field} of {audited}");
    }
}

fn children_of_two_gateways_never_exceed_their_parent(test_store: &TestStore) {
    let tree = tenant("root", "", 300, "")
        + &tenant("partner", "root", 120, "budget = { mode = \"shared\" }")
        + &tenant("a", "partner", 50, "")
        + &tenant("b", "partner", 90, "")
        + &tenant("c", "root", 100, "")
        + "[tenants.split]\nparent = \"root\"\nrate = \"60/day\"\n\
           budget = { mode = \"guaranteed\", guaranteed = { d = 20 } }\n"
        + &tenant("d", "split", 60, "");
    let config = test_store.configure(with_tenants(&tree));
    let weirs = match test_store {
        TestStore::Memory => vec![Weir::start(&config)],
        _ => Weir::start_two(&config).into(),
    };
    let tenants = ["a", "b", "c", "d"];
    let passed = passed_at_once(&weirs, 64, 12, &tenants.map(request));
    let [a, b, c, d] = passed[..] else { panic!("four of {tenants:?}") };
    assert_eq!(a + b, 120, "{passed:?}");
    assert!(a <= 50 && b <= 90, "{passed:?}");
    assert_eq!((c, d), (100, 60), "{passed:?}");
}

#[test]
fn four_levels_cost_one_script_call() {
    let redis = Redis::start();
    let tree = tenant("l1", "", 50, "")
        + &tenant("l2", "l1", 40, "")
        + "[tenants.l3]\nparent = \"l2\"\nrate = \"30/day\"\n\
           budget = { mode = \"guaranteed\", guaranteed = { l4 = 10 } }\n"
        + &tenant("l4", "l3", 0, "");
    let store = redis.store();
    let config = with_tenants(&tree).store(&store).store("timeout = \"5s\"\non_error = \"deny\"");
    let weir = Weir::start(&config);
    assert_eq!(ask(&weir, "l4").status, 200);
    let monitor = redis.monitor();
    let mut client = weir.connect();
    for _ in 0..12 {
        assert_eq!(client.ask(request("l4")).status, 200);
    }
    assert_eq!(monitor.take_decisions().len(), 12, "one a request");
    let mut buckets = redis.buckets();
    buckets.sort();
    let expected = ["l1", "l2", "l3/guaranteed/l4", "l3/pool", "l4"]
        .map(|it| format!("weir:tenants:{{l1}}:{it}"));
    assert_eq!(buckets, expected);
}

#[test]
fn unknown_tenants_follow_missing() {
    let tree = tenant("known", "", 5, "");
    let unknown = |lines: &str| {
        let limit = format!("[limits.tenants]\n{lines}\n");
        Weir::start(&with_tenants(&(limit + &tree)))
    };
    let deny = unknown("");
    for (request, why) in
        [(get("/"), "carries no tenant"), (request("nobody"), "tenant is not known")]
    {
        let response = deny.ask(request);
        assert_eq!((response.status, response.error().as_str()), (403, "missing_key"));
        assert!(response.text().contains(why), "{}", response.text());
    }
    assert_eq!(passed(&deny, "known", 9), 5);
    let skip = unknown("missing = \"skip\"");
    assert_eq!(passed(&skip, "nobody", 20), 20);
    assert!(!ask(&skip, "nobody").has("ratelimit"));
    assert_eq!(passed(&skip, "known", 9), 5);
    // One bucket for an address, however many names it makes up.
    let by_address = unknown("rate = \"1/day\"\nburst = 3");
    let names = ["a", "b", "c", "d"].map(|name| passed(&by_address, name, 1));
    assert_eq!(names, [1, 1, 1, 0]);
    assert_eq!(by_address.get("/").status, 429);
    let body = ask(&by_address, "e").json();
    assert_eq!(body["violated-policies"], json!(["tenants"]), "{body}");
    assert_eq!(passed(&by_address, "known", 9), 5);
    let shared = unknown("missing = \"shared\"\nrate = \"1/day\"\nburst = 3");
    assert_eq!(["a", "b", "c", "d"].map(|name| passed(&shared, name, 1)), [1, 1, 1, 0]);
    // A parent all of whose budget is guaranteed to others has nothing for its own callers.
    let tree = tenant("p", "", 10, "budget = { mode = \"guaranteed\", guaranteed = { c = 10 } }")
        + &tenant("c", "p", 0, "");
    let given_away = Weir::start(&with_tenants(&tree));
    assert_eq!(ask(&given_away, "p").error(), "missing_key");
    assert_eq!(passed(&given_away, "c", 12), 10);
}

#[test]
fn a_tree_that_only_watches_refuses_nobody() {
    let tree = "[limits.tenants]\nmode = \"shadow\"\n".to_owned()
        + &tenant("p", "", 2, "")
        + &tenant("c", "p", 0, "");
    let weir = Weir::start(&with_tenants(&tree));
    assert_eq!(passed(&weir, "c", 5), 5);
    assert_eq!(ask(&weir, "nobody").status, 200, "not for want of a tenant either");
    assert!(!ask(&weir, "c").has("ratelimit"));
    let metrics = weir.metrics();
    assert_eq!(metrics.decisions("tenants/1", "shadow_refused"), Some(4.0));
    assert_eq!(metrics.decisions("tenants/2", "shadow_allowed"), Some(2.0));
    assert_eq!(metrics.decisions("tenants", "shadow_refused"), Some(1.0));
}

#[test]
fn what_a_response_costs_is_charged_to_all_levels() {
    let upstream = Upstream::replying(|_| {
        b"HTTP/1.1 200 OK\r\nX-Units: 4\r\nContent-Length: 0\r\n\r\n".to_vec()
    });
    let tree = "[limits.tenants]\ncost = { from = \"response:x-units\", default = 1, max = 8 }\n"
        .to_owned()
        + &tenant("p", "", 10, "")
        + &tenant("c", "p", 7, "");
    let servers = format!("servers = [\"http://{}\"]", upstream.address());
    let config = with_tenants(&tree).upstream(&servers);
    let weir = Weir::start(&config.routes("").route("all", "/*", &["tenants"]));
    let left = |response: &Response| {
        members(response, "ratelimit").into_iter().map(|(_, left)| left).collect::<Vec<_>>()
    };
    assert_eq!(left(&ask(&weir, "c")), [3, 6]);
    assert_eq!(left(&ask(&weir, "c")), [0, 2]);
    let refused = ask(&weir, "c");
    assert_eq!(refused.json()["violated-policies"], json!(["tenants/c"]));
    assert_eq!(ask(&weir, "p").status, 200);
    assert_eq!(ask(&weir, "p").json()["violated-policies"], json!(["tenants/p"]));
}
