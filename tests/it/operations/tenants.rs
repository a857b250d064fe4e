//! `/v1/tenants`: the tree as operators see it, and tenants that they make while the gateway runs.

use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::limits::tenants::{ask, passed, with_tenants};
use crate::support::{
    Config, Response, Scratch, TestStore, Weir, on_each_store, wait_at_most, wait_until,
};

on_each_store!(
    the_tree_is_shown_with_what_is_allocated_and_used,
    a_list_is_paged_and_filtered,
    a_tenant_is_made_changed_and_removed,
    what_does_not_fit_is_refused_with_the_sums,
    what_overcommits_is_taken_with_a_warning,
    impossible_tenants_are_refused_with_a_reason,
    changes_are_audited,
    a_reload_sets_aside_what_does_not_fit_any_more,
    no_removal_sets_aside_one_that_holds,
    spent_tokens_stay_spent_when_numbers_change,
);

/// In which what was changed at one gateway holds at the others, on a busy machine.
pub(super) const SOON: Duration = Duration::from_secs(5);

/// The worked example: 5000 a minute for the partner, below 10000.
pub(super) const PARTNER: &str = r#"
    [tenants.system]
    rate = "10000/minute"
    burst = 1000
    [tenants.partner-a]
    parent = "system"
    rate = "5000/minute"
    burst = 500
    budget = { mode = "allocated", total = 5000 }
    [tenants.a1]
    parent = "partner-a"
    rate = "2000/minute"
    burst = 100
    description = "The first."
"#;

pub(super) fn target(name: &str) -> String {
    format!("/v1/tenants/{name}")
}

#[track_caller]
pub(super) fn put(weir: &Weir, name: &str, body: &Value) -> Value {
    let response = weir.operate("PUT", &target(name), &body.to_string());
    assert_eq!(response.status, 200, "{name} {body}: {}", response.text());
    response.json()
}

#[track_caller]
pub(super) fn refused(response: &Response, status: u16, error: &str, parts: &[&str]) {
    let body = response.json();
    assert_eq!((response.status, body["error"].as_str()), (status, Some(error)), "{body}");
    let why = body["error_description"].as_str().unwrap();
    for part in parts {
        assert!(why.contains(part), "{part:?} in {why:?}");
    }
}

#[track_caller]
fn put_refused(weir: &Weir, name: &str, body: &Value, status: u16, error: &str, parts: &[&str]) {
    let response = weir.operate("PUT", &target(name), &body.to_string());
    refused(&response, status, error, parts);
}

pub(super) fn show(weir: &Weir, name: &str) -> Value {
    weir.admin(&target(name)).json()
}

pub(super) fn names(page: &Value) -> Vec<&str> {
    let tenants = page["tenants"].as_array().unwrap_or_else(|| panic!("a list in {page}"));
    tenants.iter().map(|it| it["name"].as_str().unwrap()).collect()
}

fn the_tree_is_shown_with_what_is_allocated_and_used(test_store: &TestStore) {
    let weir = Weir::start(&test_store.configure(with_tenants(PARTNER)));
    let a1 = show(&weir, "a1");
    let full = json!({"algorithm": "token_bucket", "rate": "2000/minute", "burst": 100,
        "used": 0, "left": 100});
    assert_eq!(a1["effective"], full, "{a1}");
    assert_eq!((&a1["level"], &a1["parent"]), (&json!(3), &json!("partner-a")));
    assert_eq!((&a1["origin"], &a1["description"]), (&json!("file"), &json!("The first.")));
    let partner = show(&weir, "partner-a");
    let budget = json!({"mode": "allocated", "total": 5000, "overcommit": 1.0,
        "allocated": 2000, "unallocated": 3000});
    assert_eq!(partner["budget"], budget, "{partner}");
    assert_eq!(partner["sharing"], "enforce");
    let (before, asked) = (std::time::Instant::now(), 30);
    assert_eq!(passed(&weir, "a1", asked), asked);
    let page = weir.admin("/v1/tenants").json();
    assert_eq!(names(&page), ["a1", "partner-a", "system"]);
    assert_eq!((&page["total"], &page["next"]), (&json!(3), &Value::Null));
    // What has come back in the meantime, at the fastest of the three.
    let refilled = 1 + (before.elapsed().as_millis() * 10_000 / 60_000) as u64;
    for tenant in page["tenants"].as_array().unwrap() {
        let used = tenant["effective"]["used"].as_u64().unwrap();
        assert!(used <= asked as u64 && used + refilled >= asked as u64, "{tenant}");
    }
    for (limit, known) in [("tenants", true), ("tenants/a1", true), ("tenants/nobody", false)] {
        let violations = weir.admin(&format!("/v1/violations?limit={limit}")).json();
        assert_eq!(violations.get("hint").is_none(), known, "{limit}: {violations}");
    }
    refused(&weir.admin("/v1/tenants/nobody"), 404, "no_route", &["no tenant \"nobody\""]);
    refused(&weir.operate("POST", "/v1/tenants", ""), 405, "method_not_allowed", &[]);
}

fn a_list_is_paged_and_filtered(test_store: &TestStore) {
    let mut tree = PARTNER.to_owned();
    for n in 0..25 {
        tree += &format!("[tenants.t{n:02}]\nparent = \"a1\"\n");
    }
    let weir = Weir::start(&test_store.configure(with_tenants(&tree)));
    let mut seen = Vec::new();
    let mut after = String::new();
    loop {
        let page = weir.admin(&format!("/v1/tenants?max=10&after={after}&under=a1")).json();
        assert_eq!(page["total"], 26);
        seen.extend(names(&page).into_iter().map(ToOwned::to_owned));
        match page["next"].as_str() {
            Some(next) => next.clone_into(&mut after),
            None => break,
        }
    }
    let expected: Vec<String> =
        ["a1".to_owned()].into_iter().chain((0..25).map(|n| format!("t{n:02}"))).collect();
    assert_eq!(seen, expected);
    for (query, why) in [
        ("max=0", "1 to 1000"),
        ("max=x", "1 to 1000"),
        ("max=%2B5", "1 to 1000"),
        ("max=+5", "1 to 1000"),
        ("max=05", "1 to 1000"),
        ("max=1&max=2", "given twice"),
        ("under=a1&under=system", "given twice"),
        ("after=a&after=b", "given twice"),
        ("below=a1", "max, after, under"),
        ("below=", "max, after, under"),
    ] {
        let response = weir.admin(&format!("/v1/tenants?{query}"));
        refused(&response, 400, "bad_request", &[why]);
    }
    let response = weir.admin("/v1/tenants?under=nobody");
    refused(&response, 404, "no_route", &["nobody"]);
}

fn a_tenant_is_made_changed_and_removed(test_store: &TestStore) {
    let weir = Weir::start(&test_store.configure(with_tenants(PARTNER)));
    assert_eq!(ask(&weir, "a9").status, 403);
    let made = put(&weir, "a9", &json!({"parent": "partner-a", "rate": "1000/minute", "burst": 3}));
    assert_eq!(made["origin"], "run_time", "{made}");
    assert_eq!(made["warnings"], json!([]));
    assert_eq!(made["effective"]["burst"], 3);
    assert_eq!(show(&weir, "partner-a")["budget"]["unallocated"], 2000);
    // It holds from the next request on.
    let response = ask(&weir, "a9");
    assert_eq!(response.status, 200);
    assert!(response.one("ratelimit-policy").starts_with("\"tenants/a9\";q=3;"));
    let below = put(&weir, "a9-child", &json!({"parent": "a9", "sharing": "private"}));
    assert_eq!((&below["level"], &below["effective"]["burst"]), (&json!(4), &json!(3)));
    assert_eq!(ask(&weir, "a9-child").status, 200, "on a level that was not there before");
    let removed = weir.operate("DELETE", &target("a9"), "");
    refused(&removed, 409, "has_children", &["a9-child"]);
    let changed =
        put(&weir, "a9", &json!({"parent": "partner-a", "rate": "3000/minute", "burst": 50}));
    assert_eq!(changed["effective"]["burst"], 50);
    assert_eq!(show(&weir, "a9-child")["effective"]["burst"], 50, "it has what its parent has");
    for name in ["a9-child", "a9"] {
        let removed = weir.operate("DELETE", &target(name), "");
        assert_eq!(removed.status, 200, "{}", removed.text());
        assert_eq!(removed.json()["name"], name);
        assert_eq!(ask(&weir, name).status, 403, "{name}");
    }
    refused(&weir.operate("DELETE", &target("a9"), ""), 404, "no_route", &[]);
    assert_eq!(show(&weir, "partner-a")["budget"]["unallocated"], 3000);
}

fn what_does_not_fit_is_refused_with_the_sums(test_store: &TestStore) {
    let weir = Weir::start(&test_store.configure(with_tenants(PARTNER)));
    let child = |rate: &str| json!({"parent": "partner-a", "rate": rate});
    put(&weir, "a2", &child("1000/minute"));
    let sums = ["6000", "5000", "`a1` 2000", "`a2` 1000", "`a3` 3000", "overcommit"];
    put_refused(&weir, "a3", &child("3000/minute"), 409, "does_not_fit", &sums);
    put_refused(&weir, "a2", &child("3001/minute"), 409, "does_not_fit", &["5001"]);
    assert_eq!(show(&weir, "a2")["effective"]["rate"], "1000/minute", "as it was");
    put(&weir, "a3", &child("2000/minute"));
    // What the file says is changed there.
    for method in ["PUT", "DELETE"] {
        let response = weir.operate(method, &target("a1"), "{\"rate\": \"1/minute\"}");
        refused(&response, 409, "defined_in_file", &["a1", "configuration"]);
    }
    put_refused(&weir, "x", &json!({"parent": "gone"}), 409, "does_not_fit", &["`gone`"]);
    put_refused(&weir, "a3", &json!({"parent": "a3"}), 409, "does_not_fit", &["own ancestor"]);
    put_refused(&weir, "x", &json!({}), 409, "does_not_fit", &["no `rate`"]);
    // A guarantee needs its child first, and keeps it.
    let guaranteed = json!({"rate": "10/minute",
        "budget": {"mode": "guaranteed", "guaranteed": {"kid": 4}}});
    put_refused(&weir, "own", &guaranteed, 409, "does_not_fit", &["`kid`"]);
    put(&weir, "own", &json!({"rate": "10/minute"}));
    put(&weir, "kid", &json!({"parent": "own"}));
    let own = put(&weir, "own", &guaranteed);
    assert_eq!((&own["pool"]["burst"], &own["effective"]), (&json!(6), &Value::Null));
    assert_eq!(show(&weir, "kid")["guarantee"]["burst"], 4);
    assert_eq!(passed(&weir, "kid", 12), 10);
    let removed = weir.operate("DELETE", &target("kid"), "");
    refused(&removed, 409, "does_not_fit", &["`kid`"]);
}

fn what_overcommits_is_taken_with_a_warning(test_store: &TestStore) {
    let tree = PARTNER.replace("total = 5000", "total = 5000, overcommit = 1.5");
    let weir = Weir::start(&test_store.configure(with_tenants(&tree)));
    let child = |rate: &str| json!({"parent": "partner-a", "rate": rate});
    put(&weir, "a2", &child("1000/minute"));
    let over = put(&weir, "a3", &child("3000/minute"));
    let warnings = over["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 1, "{over}");
    for number in ["6000", "5000", "7500", "1.5"] {
        assert!(warnings[0].as_str().unwrap().contains(number), "{number} in {over}");
    }
    assert_eq!(show(&weir, "partner-a")["budget"]["unallocated"], 0);
    let sums = ["7501", "5000", "7500"];
    put_refused(&weir, "a4", &child("1501/minute"), 409, "does_not_fit", &sums);
}

fn impossible_tenants_are_refused_with_a_reason(test_store: &TestStore) {
    let weir = Weir::start(&test_store.configure(with_tenants(PARTNER)));
    for (body, why) in [
        ("[]", "JSON object"),
        ("{", "not JSON"),
        ("{\"rates\": \"1/second\"}", "no field \"rates\""),
        ("{\"rate\": 5}", "field rate must be a string"),
        ("{\"rate\": \"often\"}", "rate is none"),
        ("{\"burst\": -1}", "a whole number"),
        ("{\"burst\": 0}", "burst must be 1 to"),
        ("{\"sharing\": \"some\"}", "private, inherit, enforce"),
        ("{\"algorithm\": \"sliding_log\"}", "token_bucket, sliding_window, fixed_window"),
        ("{\"budget\": 5}", "an object"),
        ("{\"budget\": {\"modes\": 1}}", "no field \"budget.modes\""),
        ("{\"budget\": {\"mode\": \"some\"}}", "unlimited, allocated, shared or guaranteed"),
        ("{\"budget\": {\"mode\": \"guaranteed\"}}", "needs guarantees"),
        ("{\"budget\": {\"guaranteed\": {\"a\": 1}}}", "go with the mode"),
        ("{\"budget\": {\"overcommit\": 2.5}}", "1.0 to 2.0"),
        ("{\"budget\": {\"overcommit\": 1.005}}", "two decimals"),
        ("{\"rate\": \"1/second\", \"rate\": \"2/second\"}", "twice"),
        ("{\"rate\": \"1/second\", \"budget\": [\"shared\", 5, 1.0, null]}", "an object"),
        ("{\"rate\": \"1/second\", \"budget\": []}", "an object"),
        ("{\"budget\": {\"mode\": \"guaranteed\", \"guaranteed\": {\"a\": 1, \"a\": 2}}}", "twice"),
    ] {
        let response = weir.operate("PUT", &target("x"), body);
        refused(&response, 400, "bad_request", &[why]);
    }
    let rate = json!({"rate": "1/second"}).to_string();
    for name in ["a%20b", "%7Ba%7D", &"x".repeat(129)] {
        let response = weir.operate("PUT", &target(name), &rate);
        refused(&response, 400, "bad_request", &["1 to 128"]);
    }
    assert_eq!(weir.operate("PUT", &target(&"x".repeat(128)), &rate).status, 200);
    assert_eq!(weir.operate("PUT", &target("a:b~c+d@e"), &rate).status, 200);
    assert_eq!(ask(&weir, "a:b~c+d@e").status, 200);
}

fn events(weir: &Weir) -> Vec<Value> {
    let text = std::fs::read_to_string(weir.directory().join("audit.log")).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn changes_are_audited(test_store: &TestStore) {
    let config = with_tenants(PARTNER).also("[telemetry]\naudit_log = \"audit.log\"");
    let weir = Weir::start(&test_store.configure(config));
    put(&weir, "a2", &json!({"parent": "partner-a", "rate": "1000/minute", "burst": 7}));
    // What did not happen is not audited.
    weir.operate("PUT", &target("a3"), "{\"parent\": \"gone\"}");
    weir.operate("DELETE", &target("a3"), "");
    weir.operate("DELETE", &target("a2"), "");
    wait_until("both are told", || events(&weir).len() == 2);
    let events = events(&weir);
    assert_eq!(events[0]["event"], "tenant_set");
    assert_eq!((&events[0]["tenant"], &events[0]["parent"]), (&json!("a2"), &json!("partner-a")));
    assert_eq!((&events[0]["rate"], &events[0]["burst"]), (&json!("1000/minute"), &json!(7)));
    assert_eq!(
        (&events[1]["event"], &events[1]["tenant"]),
        (&json!("tenant_removed"), &json!("a2"))
    );
}

fn a_reload_sets_aside_what_does_not_fit_any_more(test_store: &TestStore) {
    let config = |tree: &str| test_store.configure(with_tenants(tree));
    let weir = Weir::start(&config(PARTNER));
    let child = |rate: &str| json!({"parent": "partner-a", "rate": rate});
    put(&weir, "a2", &child("1000/minute"));
    put(&weir, "a3", &child("2000/minute"));
    put(&weir, "a4", &json!({"parent": "a3"}));
    assert_eq!(ask(&weir, "a4").status, 200);
    // Room for the older of the two, and not for both.
    weir.reload(&config(&PARTNER.replace("total = 5000", "total = 3500")));
    wait_until("it is set aside", || show(&weir, "a3")["fault"].is_string());
    let aside = show(&weir, "a3");
    assert!(aside["fault"].as_str().unwrap().contains("5000 in 60s"), "{aside}");
    assert_eq!((&aside["level"], &aside["origin"]), (&Value::Null, &json!("run_time")));
    assert!(show(&weir, "a4")["fault"].as_str().unwrap().contains("`a3`"), "and what is below it");
    for name in ["a3", "a4"] {
        assert_eq!(ask(&weir, name).status, 403, "{name} is as good as unknown");
    }
    assert_eq!(ask(&weir, "a2").status, 200);
    assert!(weir.output().contains("\"a3\" of run time is set aside"), "{}", weir.output());
    let all = weir.admin("/v1/tenants").json();
    assert_eq!(names(&all), ["a1", "a2", "a3", "a4", "partner-a", "system"]);
    // The file wins over one of run time.
    let file = format!("{PARTNER}[tenants.a2]\nparent = \"partner-a\"\nrate = \"7/minute\"");
    weir.reload(&config(&file));
    wait_until("the file's holds", || show(&weir, "a2")["effective"]["rate"] == "7/minute");
    let a2 = show(&weir, "a2");
    assert_eq!(a2["origin"], "file");
    assert!(a2["fault"].as_str().unwrap().contains("configuration has"), "{a2}");
    assert_eq!(show(&weir, "a3")["fault"], Value::Null, "there is room again");
    // And with the old file everything is as it was.
    weir.reload(&config(PARTNER));
    wait_until("all are back", || {
        ["a2", "a3", "a4"].iter().all(|name| {
            let tenant = show(&weir, name);
            tenant["fault"].is_null() && tenant["origin"] == "run_time"
        })
    });
    assert_eq!(ask(&weir, "a4").status, 200);
}

fn spent_tokens_stay_spent_when_numbers_change(test_store: &TestStore) {
    let weir = Weir::start(&test_store.configure(with_tenants(PARTNER)));
    let numbers = |burst: u64| json!({"rate": "10/day", "burst": burst});
    put(&weir, "own", &numbers(10));
    assert_eq!(passed(&weir, "own", 8), 8);
    put(&weir, "own", &numbers(4));
    assert_eq!(passed(&weir, "own", 3), 0, "never a fresh bucket");
    put(&weir, "own", &numbers(20));
    assert_eq!(show(&weir, "own")["effective"]["used"], 8, "what was used stays used");
    assert_eq!(passed(&weir, "own", 20), 12);
    // Nor for one that is removed and made anew.
    assert_eq!(weir.operate("DELETE", &target("own"), "").status, 200);
    put(&weir, "own", &numbers(20));
    assert_eq!(passed(&weir, "own", 3), 0);
}

#[test]
fn tenants_made_at_one_gateway_are_known_to_all_and_outlive_it() {
    let test_store = TestStore::redis();
    let config = test_store.configure(with_tenants(PARTNER));
    let [a, b] = Weir::start_two(&config);
    put(&a, "a2", &json!({"parent": "partner-a", "rate": "1000/minute", "burst": 5}));
    wait_at_most(SOON, "it holds at the other", || ask(&b, "a2").status == 200);
    assert_eq!(show(&b, "a2")["origin"], "run_time");
    // One bucket for both.
    let (one, other) = (passed(&a, "a2", 3), passed(&b, "a2", 1));
    assert_eq!((one, other), (3, 1));
    drop(a);
    let c = Weir::start(&config);
    wait_at_most(SOON, "a new gateway knows it", || show(&c, "a2")["origin"] == "run_time");
    assert_eq!(c.operate("DELETE", &target("a2"), "").status, 200);
    wait_at_most(SOON, "it is gone at the other", || ask(&b, "a2").status == 403);
    let TestStore::Redis(redis) = &test_store else { unreachable!("it is Redis") };
    let keys = redis.keys();
    let table = keys.iter().find(|key| key.name == "weir:@tenants").expect("the table");
    assert!(table.ttl > 365 * 86_400 * 1000, "{table:?}");
}

#[test]
fn of_changes_at_two_gateways_that_do_not_fit_one_is_refused() {
    let config = TestStore::redis();
    let config = config_of(&config);
    let weirs = Weir::start_two(&config);
    for round in 0..8 {
        // There is room for one of them.
        let answers: Vec<(String, u16)> = thread::scope(|scope| {
            let tasks: Vec<_> = weirs
                .iter()
                .enumerate()
                .map(|(n, weir)| {
                    scope.spawn(move || {
                        let name = format!("r{round}-{n}");
                        let body = json!({"parent": "partner-a", "rate": "2000/minute"});
                        let response = weir.operate("PUT", &target(&name), &body.to_string());
                        (name, response.status)
                    })
                })
                .collect();
            tasks.into_iter().map(|task| task.join().unwrap()).collect()
        });
        let mut statuses: Vec<u16> = answers.iter().map(|(_, status)| *status).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 409], "{answers:?}");
        let (made, _) = answers.iter().find(|(_, status)| *status == 200).unwrap();
        for weir in &weirs {
            wait_at_most(SOON, "both have the same tree", || {
                let all = weir.admin("/v1/tenants").json();
                names(&all).contains(&made.as_str()) && all["total"] == 4
            });
        }
        let response = weirs[round % 2].operate("DELETE", &target(made), "");
        assert_eq!(response.status, 200, "{}", response.text());
        for weir in &weirs {
            wait_at_most(SOON, "it is gone", || weir.admin("/v1/tenants").json()["total"] == 3);
        }
    }
}

#[test]
fn a_change_goes_by_what_other_gateways_have_changed_just_before() {
    let test_store = TestStore::redis();
    let config = test_store.configure(with_tenants(PARTNER));
    let weirs = Weir::start_two(&config);
    for round in 0..6 {
        let (one, other) = (&weirs[round % 2], &weirs[(round + 1) % 2]);
        let all = json!({"parent": "partner-a", "rate": "3000/minute"});
        put(one, "mid", &all);
        put(other, "kid", &json!({"parent": "mid"}));
        for (weir, name) in [(one, "kid"), (other, "mid")] {
            let removed = weir.operate("DELETE", &target(name), "");
            assert_eq!(removed.status, 200, "{}", removed.text());
            assert_eq!(removed.json()["name"], name, "what it was is told");
        }
        put(one, "next", &all);
        assert_eq!(other.operate("DELETE", &target("next"), "").status, 200);
    }
}

#[test]
fn tenants_that_redis_has_lost_are_written_back() {
    let test_store = TestStore::redis();
    let config = test_store.configure(with_tenants(PARTNER));
    let weirs = Weir::start_two(&config);
    let child = |rate: &str| json!({"parent": "partner-a", "rate": rate});
    for name in ["a2", "a3"] {
        put(&weirs[0], name, &child("500/minute"));
    }
    wait_at_most(SOON, "the other knows them", || ask(&weirs[1], "a3").status == 200);
    let TestStore::Redis(redis) = &test_store else { unreachable!("it is Redis") };
    let is_back = || redis.keys().iter().any(|key| key.name == "weir:@tenants");
    redis.command(&["FLUSHALL"]);
    wait_at_most(SOON, "they are back", is_back);
    // Nor are they lost to a change that comes first.
    redis.command(&["FLUSHALL"]);
    put(&weirs[1], "a4", &child("500/minute"));
    let weirs = [&weirs[0], &weirs[1], &Weir::start(&config)];
    for (weir, name) in weirs.iter().flat_map(|weir| ["a2", "a3", "a4"].map(|name| (weir, name))) {
        wait_at_most(SOON, "it holds", || ask(weir, name).status == 200);
    }
    let said = weirs[..2].iter().any(|weir| weir.output().contains("they are written back"));
    assert!(said, "{}", weirs[0].output());
}

#[test]
fn tenants_are_shown_while_redis_is_stopped() {
    let test_store = TestStore::redis();
    let weir = Weir::start(&test_store.configure(with_tenants(PARTNER)));
    let TestStore::Redis(redis) = &test_store else { unreachable!("it is Redis") };
    assert_eq!(show(&weir, "a1")["effective"]["used"], 0);
    redis.stop();
    let a1 = show(&weir, "a1");
    let bucket = json!({"algorithm": "token_bucket", "rate": "2000/minute", "burst": 100});
    assert_eq!(a1["effective"], bucket, "{a1}");
    assert_eq!(names(&weir.admin("/v1/tenants").json()), ["a1", "partner-a", "system"]);
    redis.cont();
    wait_at_most(SOON, "it is told again", || show(&weir, "a1")["effective"]["used"] == 0);
}

fn no_removal_sets_aside_one_that_holds(test_store: &TestStore) {
    let config = |tree: &str| test_store.configure(with_tenants(tree));
    let partner = PARTNER.replace("\"5000/minute", "\"9000/minute");
    let weir = Weir::start(&config(&partner.replace("total = 5000", "total = 9000")));
    let child = |rate: &str| json!({"parent": "partner-a", "rate": rate});
    put(&weir, "x", &child("2000/minute"));
    put(&weir, "a", &child("3000/minute"));
    put(&weir, "b", &child("2000/minute"));
    weir.reload(&config(&partner.replace("total = 5000", "total = 6000")));
    wait_until("the older is set aside", || show(&weir, "a")["fault"].is_string());
    let all = weir.admin("/v1/tenants?under=partner-a").json();
    assert_eq!(names(&all), ["a", "a1", "b", "partner-a", "x"], "with what is set aside");
    assert_eq!(names(&weir.admin("/v1/tenants?under=a").json()), ["a"]);
    let removed = weir.operate("DELETE", &target("x"), "");
    refused(&removed, 409, "does_not_fit", &["\"b\" would be set aside", "come back: a)", "6000"]);
    assert_eq!(ask(&weir, "b").status, 200);
    for name in ["a", "x"] {
        let removed = weir.operate("DELETE", &target(name), "");
        assert_eq!(removed.status, 200, "{}", removed.text());
        assert_eq!(removed.json()["warnings"], json!([]));
    }
    assert_eq!(ask(&weir, "b").status, 200);
}

fn config_of(test_store: &TestStore) -> Config {
    let tree = PARTNER.replace("total = 5000", "total = 4000");
    test_store.configure(with_tenants(&tree))
}

/// A gateway with its snapshot in a folder that outlives it.
fn start_with_snapshot(scratch: &Scratch) -> Weir {
    let path = scratch.path().join("weir.snapshot");
    Weir::start(&with_tenants(PARTNER).store(&format!("snapshot = {path:?}")))
}

#[test]
fn tenants_on_the_embedded_store_outlive_a_restart() {
    let scratch = Scratch::new();
    let mut weir = start_with_snapshot(&scratch);
    put(&weir, "a2", &json!({"parent": "partner-a", "rate": "5/day", "burst": 5}));
    assert_eq!(passed(&weir, "a2", 3), 3);
    weir.signal(Signal::TERM);
    assert_eq!(weir.exit().code(), Some(0));
    let weir = start_with_snapshot(&scratch);
    assert_eq!(passed(&weir, "a2", 9), 2, "from the first request on, with its bucket");
    assert_eq!(show(&weir, "a2")["origin"], "run_time");
}
