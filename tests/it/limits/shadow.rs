//! Limits that only watch: `mode = "shadow"`, and the candidate of a limit that is enforced.

use crate::support::{
    Config, Response, TestStore, Weir, fields, get, get_with, on_each_store, wait_until,
};

on_each_store!(
    requests_that_passed_are_counted_as_allowed,
    shadow_limit_refuses_nobody_and_adds_no_headers,
    refused_request_charges_no_shadow_limit,
    a_candidate_counts_beside_the_limit_that_decides,
    candidate_is_charged_only_for_admitted_requests,
    shadow_concurrency_limit_releases_its_slots,
    limit_that_does_not_refuse_requires_no_key,
);

/// Waits until a limit has counted each outcome so often, and none other.
#[track_caller]
fn counts(weir: &Weir, limit: &str, expected: &[(&str, f64)]) {
    let all = ["allowed", "refused", "shadow_allowed", "shadow_refused", "degraded", "queued"];
    let want = |outcome: &str| expected.iter().find(|it| it.0 == outcome).map_or(0.0, |it| it.1);
    let have = |outcome: &str| weir.metrics().decisions(limit, outcome).unwrap_or(0.0);
    let total: f64 = expected.iter().map(|it| it.1).sum();
    wait_until("everything is counted", || all.iter().map(|it| have(it)).sum::<f64>() >= total);
    let counted: Vec<_> = all.iter().map(|it| (*it, have(it))).collect();
    let wanted: Vec<_> = all.iter().map(|it| (*it, want(it))).collect();
    assert_eq!(counted, wanted, "{limit}");
}

fn names(response: &Response) -> Vec<String> {
    let told = [response.all("ratelimit"), response.all("ratelimit-policy")];
    told.iter().flat_map(|lines| fields::list(lines)).map(|it| it.name().to_owned()).collect()
}

fn shadow_limit_refuses_nobody_and_adds_no_headers(test_store: &TestStore) {
    let limit = "key = \"ip\"\nrate = \"1/day\"\nburst = 2\nmode = \"shadow\"";
    let weir = Weir::start(&test_store.configure(Config::echo().limit(limit)));
    let mut client = weir.connect();
    for _ in 0..7 {
        let response = client.ask(get("/"));
        assert_eq!(response.status, 200);
        let said = response.headers.iter().any(|(name, value)| {
            name.to_ascii_lowercase().contains("ratelimit") || value.contains("per-ip")
        });
        assert!(!said && !response.has("retry-after"), "{response:?}");
        assert!(!response.text().contains("per-ip"), "nor to the upstream: {}", response.text());
    }
    counts(&weir, "per-ip", &[("shadow_allowed", 2.0), ("shadow_refused", 5.0)]);
}

fn refused_request_charges_no_shadow_limit(test_store: &TestStore) {
    let watching = "key = \"global\"\nrate = \"1/day\"\nburst = 5\nmode = \"shadow\"";
    let config = Config::echo()
        .open()
        .bucket("enforced", "header:x-user", 2)
        .add_limit("watching", watching)
        .route("all", "/*", &["watching", "enforced"]);
    let weir = Weir::start(&test_store.configure(config));
    let ask = |user: &str| {
        let response = weir.ask(get_with("/", &format!("X-User: {user}\r\n")));
        assert_eq!(names(&response), ["enforced", "enforced"]);
        response.status
    };
    assert_eq!([0; 6].map(|_| ask("a")), [200, 200, 429, 429, 429, 429]);
    // Had refusals been charged, nothing would be left for these.
    assert_eq!([0; 3].map(|_| ask("b")), [200, 200, 429]);
    counts(&weir, "enforced", &[("allowed", 4.0), ("refused", 5.0)]);
    counts(&weir, "watching", &[("shadow_allowed", 9.0)]);
    assert_eq!([ask("c"), ask("c")], [200, 200], "the sixth is refused by nobody");
    counts(&weir, "watching", &[("shadow_allowed", 10.0), ("shadow_refused", 1.0)]);
}

fn requests_that_passed_are_counted_as_allowed(test_store: &TestStore) {
    let limit = |name: &str, key: &str, burst: u32| {
        format!("[limits.{name}]\nkey = \"{key}\"\nrate = \"1/day\"\nburst = {burst}\n")
    };
    let route = "[[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"echo\"\n\
                 limits = [\"all\", \"user\"]";
    let tables = limit("all", "global", 5) + &limit("user", "header:x-user", 3) + route;
    let weir = Weir::start(&test_store.configure(Config::echo().open().routes(&tables)));
    let ask = |user: &str| weir.ask(get_with("/", &format!("X-User: {user}\r\n"))).status;
    assert_eq!([0; 6].map(|_| ask("a")), [200, 200, 200, 429, 429, 429]);
    assert_eq!([0; 5].map(|_| ask("b")), [200, 200, 429, 429, 429]);
    counts(&weir, "all", &[("allowed", 5.0), ("refused", 3.0)]);
    counts(&weir, "user", &[("allowed", 5.0), ("refused", 3.0)]);
}

fn a_candidate_counts_beside_the_limit_that_decides(test_store: &TestStore) {
    let limit = "key = \"header:x-user\"\nrate = \"1/day\"\nburst = 5\n\
                 candidate = { rate = \"1/hour\", burst = 2 }";
    let weir = Weir::start(&test_store.configure(Config::echo().limit(limit)));
    let mut client = weir.connect();
    for user in ["a", "b"] {
        for asked in 1..=5 {
            let response = client.ask(get_with("/", &format!("X-User: {user}\r\n")));
            assert_eq!(response.status, 200);
            assert_eq!(names(&response), ["per-ip", "per-ip"], "candidates are not told");
            assert_eq!(fields::list(&response.all("ratelimit"))[0].integer("r"), 5 - asked);
        }
    }
    counts(&weir, "per-ip", &[("allowed", 10.0)]);
    counts(&weir, "per-ip:candidate", &[("shadow_allowed", 4.0), ("shadow_refused", 6.0)]);
}

fn candidate_is_charged_only_for_admitted_requests(test_store: &TestStore) {
    let limit = "key = \"global\"\nrate = \"1/day\"\nburst = 2\n\
                 candidate = { algorithm = \"fixed_window\", rate = \"4/day\" }";
    let weir = Weir::start(&test_store.configure(Config::echo().limit(limit)));
    let mut client = weir.connect();
    let statuses: Vec<u16> = (0..8).map(|_| client.ask(get("/")).status).collect();
    assert_eq!(statuses, [200, 200, 429, 429, 429, 429, 429, 429]);
    counts(&weir, "per-ip", &[("allowed", 2.0), ("refused", 6.0)]);
    counts(&weir, "per-ip:candidate", &[("shadow_allowed", 8.0)]);
}

fn shadow_concurrency_limit_releases_its_slots(test_store: &TestStore) {
    let limit = "key = \"ip\"\nalgorithm = \"concurrency\"\nlimit = 1\nmode = \"shadow\"";
    let weir = Weir::start(&test_store.configure(Config::echo().limit(limit)));
    let mut client = weir.connect();
    for _ in 0..10 {
        assert_eq!(client.ask(get("/")).status, 200);
    }
    counts(&weir, "per-ip", &[("shadow_allowed", 10.0)]);
}

/// A limit in shadow mode refuses no request, not even for a missing or a duplicate key.
fn limit_that_does_not_refuse_requires_no_key(test_store: &TestStore) {
    for (manner, outcome) in
        [("mode = \"shadow\"", "shadow_refused"), ("strategy = \"degrade\"", "refused")]
    {
        let limit =
            format!("key = \"header:x-key\"\nrate = \"1/day\"\nmissing = \"deny\"\n{manner}");
        let weir = Weir::start(&test_store.configure(Config::echo().limit(&limit)));
        let mut client = weir.connect();
        assert_eq!(client.ask(get("/")).status, 200, "{manner}");
        let twice = get_with("/", "x-key: a\r\nx-key: b\r\n");
        assert_eq!(client.ask(twice).status, 200, "{manner}");
        counts(&weir, "per-ip", &[(outcome, 2.0)]);
    }
}
