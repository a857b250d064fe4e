//! Limits that go by trust: scores follow tokens and calls, and numbers follow scores.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::identity::api_keys::{client, new_key};
use crate::operations::overrides::put;
use crate::support::issuer::{bearer, jwks, now};
use crate::support::{
    Client, Config, Issuer, Response, Scratch, TestStore, Upstream, Weir, fields, get_with,
    on_each_store, wait_until,
};

on_each_store!(
    first_request_counts_by_its_token_alone_and_calls_by_how_they_end,
    refusals_take_trust_away,
    score_of_a_token_or_a_client_stands_in_for_the_formula,
    caller_without_a_user_has_no_trust,
    plans_and_overrides_follow_trust_where_they_set_nothing,
    windows_count_more_for_the_trusted,
    users_are_counted_once_however_often_they_come,
);

const DAY: u64 = 86_400;

/// An issuer of tokens, an upstream that knows some paths, and a limit by user.
pub(crate) struct Trusting {
    issuer: Issuer,
    pub(crate) config: Config,
    _scratch: Scratch,
    _upstream: Upstream,
}

impl Trusting {
    /// With these lines of the limit, and these tables beside it.
    pub(crate) fn new(limit: &str, tables: &str) -> Trusting {
        let (issuer, scratch) = (Issuer::p256("k"), Scratch::new());
        let keys = scratch.file("keys.json", &jwks(&[&issuer]));
        let upstream = Upstream::replying(|request| {
            let status = match request.target.as_str() {
                "/missing" => "404 Not Found",
                "/broken" => "500 Internal Server Error",
                "/busy" => "429 Too Many Requests",
                _ => "200 OK",
            };
            format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").into_bytes()
        });
        let identity = format!(
            "[identity]\nuser = \"jwt:sub\"\nclient = \"header:x-api-key\"\nplan = \"jwt:plan\"\n\
             [identity.jwt]\njwks_file = {keys:?}\n\
             [trust]\naccount_created = \"jwt:created\"\nemail_verified = \"jwt:verified\"\n\
             score = \"jwt:trust\"\n{tables}\n"
        );
        let limit = format!("key = \"user\"\nadaptive = true\n{limit}");
        let config = Config::to(&upstream).operated().limit(&limit).also(&identity);
        Trusting { issuer, config, _scratch: scratch, _upstream: upstream }
    }

    pub(crate) fn start(&self, test_store: &TestStore) -> Weir {
        Weir::start(&test_store.configure(self.config.clone()))
    }

    /// The header line of a user with more claims.
    pub(crate) fn user(&self, name: &str, more: &Value) -> String {
        let mut claims = json!({ "sub": name, "exp": now() + 3600 });
        for (claim, value) in more.as_object().into_iter().flatten() {
            claims[claim] = value.clone();
        }
        bearer(&self.issuer.token(&claims))
    }
}

/// How many an answer says may pass at once.
pub(crate) fn quota(response: &Response) -> i64 {
    fields::list(&response.all("ratelimit-policy"))[0].integer("q")
}

fn ask(client: &mut Client, path: &str, user: &str) -> i64 {
    quota(&client.ask(get_with(path, user)))
}

fn first_request_counts_by_its_token_alone_and_calls_by_how_they_end(test_store: &TestStore) {
    let trusting = Trusting::new("rate = \"1/day\"\nburst = 100", "");
    let weir = trusting.start(test_store);
    let mut client = weir.connect();
    let old = trusting.user("old", &json!({ "created": now() - 400 * DAY, "verified": true }));
    assert_eq!(ask(&mut client, "/", &old), 150, "0.3 for its age, 0.2 for its address");
    assert_eq!(ask(&mut client, "/", &old), 200, "and 0.5 for a success");
    assert_eq!(ask(&mut client, "/missing", &old), 200);
    assert_eq!(ask(&mut client, "/broken", &old), 183, "two of three calls");
    assert_eq!(ask(&mut client, "/busy", &old), 183, "a fault of the upstream says nothing");
    assert_eq!(ask(&mut client, "/", &old), 183, "nor does its refusal");
    assert_eq!(ask(&mut client, "/", &old), 187, "three of four");
    let fresh = trusting.user("fresh", &json!({}));
    assert_eq!(ask(&mut client, "/missing", &fresh), 100, "nothing is known of it");
    assert_eq!(ask(&mut client, "/", &fresh), 100);
    assert_eq!(ask(&mut client, "/", &fresh), 125);
    let date = trusting.user("date", &json!({ "created": "2020-02-29T12:00:00+01:00" }));
    assert_eq!(ask(&mut client, "/", &date), 130);
}

fn refusals_take_trust_away(test_store: &TestStore) {
    let trusting = Trusting::new("rate = \"1/day\"\nburst = 10", "");
    let weir = trusting.start(test_store);
    let (mut client, user) = (weir.connect(), trusting.user("eve", &json!({})));
    let answers: Vec<Response> = (0..22).map(|_| client.ask(get_with("/", &user))).collect();
    // A bucket counts in time, and the first was charged at the rate of no trust: 1.25 of the rest.
    let (passed, refused) = answers.split_at(14);
    assert!(passed.iter().all(|it| it.status == 200) && refused.iter().all(|it| it.status == 429));
    let passed: Vec<i64> = passed.iter().map(quota).collect();
    assert_eq!(
        (passed[0], &passed[1..]),
        (10, &[15; 13][..]),
        "success is worth half as much again"
    );
    let refused: Vec<i64> = refused.iter().map(quota).collect();
    assert_eq!(refused, [15, 14, 14, 13, 13, 13, 13, 13], "0.05 each, 0.2 at the most");
    let other = trusting.user("ann", &json!({}));
    assert_eq!(ask(&mut client, "/", &other), 10, "others do not notice");
}

fn score_of_a_token_or_a_client_stands_in_for_the_formula(test_store: &TestStore) {
    let (key, hash) = new_key();
    let clients = client("partner", &hash, "trust = 0.9");
    let trusting = Trusting::new("rate = \"1/day\"\nburst = 10", &clients);
    let weir = trusting.start(test_store);
    let mut client = weir.connect();
    let scored = trusting.user("ann", &json!({ "trust": 0.35, "verified": true }));
    for path in ["/missing", "/missing", "/"] {
        assert_eq!(ask(&mut client, path, &scored), 13);
    }
    let partner = format!("X-Api-Key: {key}\r\n");
    assert_eq!(ask(&mut client, "/", &partner), 19);
    assert_eq!(ask(&mut client, "/", &(partner + &scored)), 19, "the record of the client counts");
    let wild = trusting.user("bob", &json!({ "trust": 70 }));
    assert_eq!(ask(&mut client, "/", &wild), 20);
    let huge = trusting.user("hal", &json!({ "trust": 1e16 }));
    assert_eq!(ask(&mut client, "/", &huge), 20);
    let junk = [json!("very"), json!(-1e16), json!(null), json!([1]), json!({}), json!("")];
    for (number, junk) in junk.iter().enumerate() {
        let user = format!("cid-{number}");
        let junk = trusting.user(&user, &json!({ "trust": junk, "verified": true }));
        assert_eq!(ask(&mut client, "/", &junk), 10, "what is no number is no trust: {number}");
    }
}

fn caller_without_a_user_has_no_trust(test_store: &TestStore) {
    let trusting = Trusting::new("rate = \"1/day\"\nburst = 10", "");
    let weir = trusting.start(test_store);
    let mut client = weir.connect();
    for _ in 0..3 {
        assert_eq!(ask(&mut client, "/", ""), 10);
    }
    let mut forged = trusting.user("ann", &json!({ "trust": 1.0 }));
    forged = forged.replace("\r\n", "AAAA\r\n");
    assert_eq!(ask(&mut client, "/", &forged), 10);
    assert_eq!(weir.metrics().value("weir_trust_score_count", &[]), Some(0.0));
}

fn plans_and_overrides_follow_trust_where_they_set_nothing(test_store: &TestStore) {
    let plans = "[limits.per-ip.plans.pro]\nburst = 20";
    let trusting = Trusting::new("rate = \"1/day\"\nburst = 10", plans);
    let weir = trusting.start(test_store);
    let mut client = weir.connect();
    let half = trusting.user("ann", &json!({ "trust": 0.5 }));
    let pro = trusting.user("pro", &json!({ "trust": 0.5, "plan": "pro" }));
    assert_eq!((ask(&mut client, "/", &half), ask(&mut client, "/", &pro)), (15, 30));
    for (numbers, quotas) in [(json!({ "boost": 2 }), (30, 60)), (json!({ "burst": 7 }), (7, 7))] {
        for user in ["ann", "pro"] {
            put(&weir, &format!("/v1/overrides/per-ip/{user}"), &numbers);
        }
        wait_until("the overrides hold", || {
            (ask(&mut client, "/", &half), ask(&mut client, "/", &pro)) == quotas
        });
    }
}

fn windows_count_more_for_the_trusted(test_store: &TestStore) {
    for (case, algorithm) in
        ["fixed_window", "sliding_window", "sliding_log"].into_iter().enumerate()
    {
        let limit = format!("algorithm = \"{algorithm}\"\nrate = \"7/day\"");
        let trusting = Trusting::new(&limit, "");
        let weir = Weir::start(&test_store.configure_case(case, trusting.config.clone()));
        let mut client = weir.connect();
        let mut passed = |trust: f64, user: &str| {
            let user = trusting.user(user, &json!({ "trust": trust }));
            (0..20).filter(|_| client.ask(get_with("/", &user)).status == 200).count()
        };
        assert_eq!((passed(0.0, "a"), passed(0.5, "b"), passed(1.0, "c")), (7, 10, 14));
        assert_eq!(passed(1.0, "a"), 7, "{algorithm}: what was used under less trust stays used");
        assert_eq!(passed(0.0, "c"), 0, "{algorithm}: and what was used under more");
    }
}

fn users_are_counted_once_however_often_they_come(test_store: &TestStore) {
    let trusting = Trusting::new("rate = \"1/day\"\nburst = 100", "");
    let weir = trusting.start(test_store);
    let mut client = weir.connect();
    let users = ["ann", "bob", "cid"].map(|name| trusting.user(name, &json!({})));
    for _ in 0..5 {
        users.iter().for_each(|user| {
            ask(&mut client, "/", user);
        });
    }
    ask(&mut client, "/missing", &users[0]);
    ask(&mut client, "/", &users[0]);
    let metrics = weir.metrics();
    let below = |bound: &str| metrics.value("weir_trust_score_bucket", &[("le", bound)]);
    assert_eq!(metrics.value("weir_trust_score_count", &[]), Some(3.0));
    assert_eq!((below("0.4"), below("0.5"), below("1")), (Some(0.0), Some(3.0), Some(3.0)));
    assert_eq!(metrics.value("weir_trust_score_sum", &[]), Some(1.41), "0.5, 0.5 and 0.41");
}

#[test]
fn trust_is_kept_through_a_restart() {
    let (trusting, folder) = (Trusting::new("rate = \"1/day\"\nburst = 100", ""), Scratch::new());
    let snapshot = folder.path().join("weir.snapshot");
    let config = trusting.config.clone().store(&format!("snapshot = {snapshot:?}"));
    let user = trusting.user("ann", &json!({}));
    let mut weir = Weir::start(&config);
    let mut client = weir.connect();
    assert_eq!(ask(&mut client, "/", &user), 100);
    assert_eq!(ask(&mut client, "/missing", &user), 150);
    drop(client);
    weir.signal(Signal::TERM);
    assert_eq!(weir.exit().code(), Some(0));
    let weir = Weir::start(&config);
    let mut client = weir.connect();
    assert_eq!(ask(&mut client, "/", &user), 125, "one of two, from the first request on");
    assert_eq!(weir.metrics().value("weir_trust_score_count", &[]), Some(1.0));
}

#[test]
fn offences_and_blocked_requests_take_trust_away() {
    let guard = "[guards.flood]\nkey = \"user\"\nwindow = \"1s\"\nthreshold = 3\npenalty = \"1h\"";
    let trusting = Trusting::new("rate = \"1000000/second\"\nburst = 1000", guard);
    let routes = "[[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"api\"\n\
                  limits = [\"per-ip\"]\nguards = [\"flood\"]";
    let weir = Weir::start(&trusting.config.clone().routes(routes));
    let (mut client, user) = (weir.connect(), trusting.user("eve", &json!({ "verified": true })));
    let mut answers: Vec<Response> = Vec::new();
    wait_until("it is blocked", || {
        let answer = client.ask(get_with("/", &user));
        let blocked = answer.status == 429;
        answers.push(answer);
        blocked
    });
    let warned = answers.iter().position(|it| it.has("x-weir-warning")).expect("a warning");
    let quotas: Vec<i64> = answers.iter().filter(|it| it.status == 200).map(quota).collect();
    assert_eq!(quotas[0], 1200);
    assert!(quotas[1..=warned].iter().all(|it| *it == 1700), "{quotas:?}");
    assert!(quotas[warned + 1..].iter().all(|it| *it == 1650), "an offence: {quotas:?}");
}

#[test]
fn check_shows_what_goes_by_trust() {
    let trusting = Trusting::new("rate = \"1/day\"\nburst = 100", "");
    let file = trusting._scratch.file("weir.toml", &trusting.config.text());
    let output = crate::support::gateway::program().arg("check").arg(file).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("adaptive"), "{text}");
    assert!(
        text.contains("score by jwt:trust, age by jwt:created, e-mail by jwt:verified"),
        "{text}"
    );
}
