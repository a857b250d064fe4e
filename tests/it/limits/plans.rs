//! Plans with numbers of their own on one key, and overrides for callers of a plan.

use serde_json::{Value, json};

use crate::identity::api_keys::{client, new_key};
use crate::operations::overrides::put;
use crate::support::{
    Config, Redis, Response, TestStore, Weir, fields, get_with, on_each_store, wait_until,
};

on_each_store!(
    two_plans_of_one_tenant_have_separate_buckets,
    window_of_one_plan_does_not_replace_that_of_another,
    plans_without_numbers_share_the_bucket_of_the_limit,
    a_boost_multiplies_the_numbers_of_the_plan,
    override_keeps_plan_numbers_it_does_not_set,
    override_that_conflicts_with_a_plan_is_refused,
    override_with_another_window_keeps_both_counts,
    spent_tokens_stay_spent_while_an_override_comes_and_goes,
);

/// Two API keys of one tenant, of no plan and of the plan `pro`.
struct Tenant {
    weir: Weir,
    keys: [String; 2],
}

const FREE: usize = 0;
const PRO: usize = 1;

impl Tenant {
    /// A limit by tenant with these lines, and others for `pro`.
    fn start(test_store: &TestStore, limit: &str, pro: &str) -> Tenant {
        let [(free, free_hash), (paid, paid_hash)] = [(); 2].map(|()| new_key());
        let clients = client("free-key", &free_hash, "tenant = \"acme\"")
            + &client("pro-key", &paid_hash, "tenant = \"acme\"\nplan = \"pro\"");
        let limit = format!("key = \"tenant\"\n{limit}");
        let config = Config::echo().operated().limit(&limit);
        let config = config.also(&format!("[limits.per-ip.plans.pro]\n{pro}"));
        let identity = "[identity]\nclient = \"header:x-api-key\"";
        let weir = Weir::start(&test_store.configure(config.also(identity).also(&clients)));
        Tenant { weir, keys: [free, paid] }
    }

    fn ask(&self, who: usize) -> Response {
        self.weir.ask(get_with("/", &format!("X-Api-Key: {}\r\n", self.keys[who])))
    }

    /// How many pass of so many.
    fn passed(&self, who: usize, asked: usize) -> usize {
        let mut client = self.weir.connect();
        let request = get_with("/", &format!("X-Api-Key: {}\r\n", self.keys[who]));
        (0..asked).filter(|_| client.ask(&request).status == 200).count()
    }

    /// The burst and the seconds to refill it that a caller is told of.
    fn numbers(&self, who: usize) -> (i64, i64) {
        let policies = fields::list(&self.ask(who).all("ratelimit-policy"));
        (policies[0].integer("q"), policies[0].integer("w"))
    }

    /// Makes an override, and waits until it holds for a caller.
    fn override_until(&self, body: &Value, who: usize, numbers: (i64, i64)) {
        put(&self.weir, ACME, body);
        wait_until("it holds", || self.numbers(who) == numbers);
    }

    fn take_back_until(&self, who: usize, numbers: (i64, i64)) {
        assert_eq!(self.weir.operate("DELETE", ACME, "").status, 200);
        wait_until("it holds no more", || self.numbers(who) == numbers);
    }
}

const ACME: &str = "/v1/overrides/per-ip/acme";

fn two_plans_of_one_tenant_have_separate_buckets(test_store: &TestStore) {
    let tenant = Tenant::start(
        test_store,
        "rate = \"6/hour\"\nburst = 10",
        "rate = \"60/hour\"\nburst = 50",
    );
    let (mut free, mut pro) = (0, 0);
    for _ in 0..30 {
        free += tenant.passed(FREE, 4);
        pro += tenant.passed(PRO, 4);
    }
    assert_eq!((free, pro), (10, 50), "each plan's own burst");
}

fn window_of_one_plan_does_not_replace_that_of_another(test_store: &TestStore) {
    for algorithm in ["fixed_window", "sliding_window", "sliding_log"] {
        let limit = format!("algorithm = \"{algorithm}\"\nrate = \"5/second\"");
        let tenant = Tenant::start(test_store, &limit, "rate = \"20/hour\"");
        // A window may end meanwhile, an hour's may too.
        let begun = std::time::Instant::now();
        let mut pro = 0;
        while begun.elapsed().as_secs() < 3 {
            tenant.passed(FREE, 7);
            pro += tenant.passed(PRO, 7);
        }
        let most = if algorithm == "sliding_log" { 20 } else { 40 };
        assert!((20..=most).contains(&pro), "{algorithm}: {pro}");
        let told = fields::list(&tenant.ask(PRO).all("ratelimit"));
        assert!(told[0].integer("t") > 1, "{algorithm}: the hour goes on");
        drop(tenant);
    }
}

fn plans_without_numbers_share_the_bucket_of_the_limit(test_store: &TestStore) {
    let [(one, one_hash), (two, two_hash)] = [(); 2].map(|()| new_key());
    let clients = client("one", &one_hash, "tenant = \"acme\"\nplan = \"basic\"")
        + &client("two", &two_hash, "tenant = \"acme\"");
    let config = Config::echo().limit("key = \"tenant\"\nrate = \"1/hour\"\nburst = 4");
    let config = config.also("[limits.per-ip.plans.pro]\nburst = 9").also(&clients);
    let weir = Weir::start(
        &test_store.configure(config.also("[identity]\nclient = \"header:x-api-key\"")),
    );
    let ask = |key: &str| weir.ask(get_with("/", &format!("X-Api-Key: {key}\r\n"))).status;
    let told = [&one, &two, &one, &two, &one, &two].map(|key| ask(key));
    assert_eq!(told, [200, 200, 200, 200, 429, 429]);
}

fn a_boost_multiplies_the_numbers_of_the_plan(test_store: &TestStore) {
    let tenant = Tenant::start(
        test_store,
        "rate = \"60/minute\"\nburst = 3",
        "rate = \"600/minute\"\nburst = 30",
    );
    assert_eq!(tenant.numbers(PRO), (30, 3));
    tenant.override_until(&json!({"boost": 2}), PRO, (60, 3));
    assert_eq!(tenant.numbers(FREE), (6, 3), "60/minute burst 3, twice");
    tenant.override_until(&json!({"boost": 10}), PRO, (300, 3));
    assert_eq!(tenant.numbers(FREE), (30, 3));
}

fn override_keeps_plan_numbers_it_does_not_set(test_store: &TestStore) {
    let tenant = Tenant::start(
        test_store,
        "rate = \"60/minute\"\nburst = 3",
        "rate = \"600/minute\"\nburst = 30",
    );
    tenant.override_until(&json!({"burst": 100}), PRO, (100, 10));
    assert_eq!(tenant.numbers(FREE), (100, 100), "at the limit's own rate");
    tenant.override_until(&json!({"rate": "1200/minute"}), PRO, (30, 2));
    assert_eq!(tenant.numbers(FREE), (3, 1), "with the limit's own burst");
    tenant.override_until(&json!({"rate": "1200/minute", "boost": 2}), PRO, (60, 2));
    tenant.take_back_until(PRO, (30, 3));
    assert_eq!(tenant.numbers(FREE), (3, 3));
}

fn override_that_conflicts_with_a_plan_is_refused(test_store: &TestStore) {
    let limit = "rate = \"600/minute\"\nburst = 3";
    let tenant = Tenant::start(test_store, limit, "rate = \"1000000/1ms\"");
    let response = tenant.weir.operate("PUT", ACME, "{\"boost\": 2}");
    crate::operations::overrides::refused(&response, 400, "bad_request", "plan \"pro\"");
}

fn override_with_another_window_keeps_both_counts(test_store: &TestStore) {
    for algorithm in ["fixed_window", "sliding_window", "sliding_log"] {
        // An hour may end meanwhile, which a log does not notice.
        let limit = format!("algorithm = \"{algorithm}\"\nrate = \"9/day\"");
        let tenant = Tenant::start(test_store, &limit, "rate = \"1/day\"");
        assert!(tenant.passed(FREE, 12) <= 9);
        let mut passed = 0;
        for _ in 0..3 {
            tenant.override_until(&json!({"rate": "20/hour"}), FREE, (20, 3600));
            passed += tenant.passed(FREE, 25);
            tenant.take_back_until(FREE, (9, 86_400));
            assert_eq!(tenant.passed(FREE, 3), 0, "{algorithm}: the day goes on");
        }
        let told = fields::list(&tenant.ask(FREE).all("ratelimit"));
        assert!(told[0].integer("t") > 1, "{algorithm}");
        assert!(passed <= 20, "{algorithm}: {passed} in one hour");
        drop(tenant);
    }
}

fn spent_tokens_stay_spent_while_an_override_comes_and_goes(test_store: &TestStore) {
    let tenant = Tenant::start(test_store, "rate = \"6/hour\"\nburst = 5", "burst = 9");
    let mut passed = tenant.passed(FREE, 8);
    assert_eq!(passed, 5);
    for _ in 0..3 {
        tenant.override_until(&json!({"burst": 40}), FREE, (40, 24_000));
        passed += tenant.passed(FREE, 50);
        // Until all that know of it have left it, nobody forgets what it counts.
        tenant.take_back_until(FREE, (5, 3000));
        passed += tenant.passed(FREE, 8);
    }
    // A token comes back in ten minutes.
    assert!((36..=41).contains(&passed), "{passed}: what was spent stays spent");
}

#[test]
fn a_bucket_in_redis_is_named_by_limit_key_and_plan() {
    let redis = Redis::start();
    let limit = "key = \"ip\"\nrate = \"1/hour\"\nburst = 3";
    let tables = "[limits.per-ip.plans.pro]\nburst = 9\n[limits.per-ip.plans.\"a:{b}\"]\nburst = 7\n\
        [identity]\nplan = \"header:x-plan\"";
    let weir = Weir::start(&Config::echo().limit(limit).also(tables).store(&redis.store()));
    for plan in ["pro", "a:{b}", "other", "pro"] {
        assert_eq!(weir.ask(get_with("/", &format!("X-Plan: {plan}\r\n"))).status, 200);
    }
    let names: Vec<String> = redis.keys().into_iter().map(|key| key.name).collect();
    let mut buckets: Vec<&String> =
        names.iter().filter(|name| name.starts_with("weir:per-ip:")).collect();
    buckets.sort_by_key(|name| name.len());
    assert_eq!(buckets.len(), 3, "{names:?}");
    assert_eq!(buckets[0].matches(':').count(), 3, "the limit's own: {buckets:?}");
    assert!(buckets[1].ends_with(":=pro:i127.0.0.1"), "{buckets:?}");
    assert!(buckets[2].contains(":~") && !buckets[2].contains('{'), "{buckets:?}");
}
