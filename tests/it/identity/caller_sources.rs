//! User, client, tenant and plan of a caller, from every source a request may carry them in.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::support::{
    Config, Response, TestStore, Upstream, Weir, fields, get, get_with, on_each_store,
};

on_each_store!(
    names_of_callers_never_collide,
    a_plan_has_numbers_of_its_own,
    a_plan_that_is_not_named_has_the_numbers_of_the_limit,
);

const ONCE: &str = "rate = \"1/day\"\nburst = 1\n";

/// Each caller once a day, and no caller without a name.
fn once(upstream: &Upstream, key: &str, identity: &str) -> Config {
    let limit = format!("key = {key}\nmissing = \"deny\"\n{ONCE}");
    Config::to(upstream).limit(&limit).also(&format!("[identity]\n{identity}\n"))
}

fn basic(user: &str) -> String {
    format!("Authorization: Basic {}\r\n", STANDARD.encode(format!("{user}:pass:word")))
}

/// A request that carries a name in one of five sources, or in several.
#[derive(Default, Clone, Copy)]
struct Says<'a> {
    header: Option<&'a str>,
    query: Option<&'a str>,
    cookie: Option<&'a str>,
    basic: Option<&'a str>,
    form: Option<&'a str>,
}

impl Says<'_> {
    fn request(&self) -> String {
        let mut lines = String::new();
        if let Some(name) = self.header {
            lines += &format!("X-Name: {name}\r\n");
        }
        if let Some(name) = self.cookie {
            lines += &format!("Cookie: a=b; name={name}\r\n");
        }
        if let Some(name) = self.basic {
            lines += &basic(name);
        }
        let target = self.query.map_or("/".to_owned(), |name| format!("/?name={name}"));
        let body = self.form.map_or(String::new(), |name| format!("x=y&name={name}"));
        format!(
            "POST {target} HTTP/1.1\r\nHost: weir.test\r\n{lines}\
             Content-Type: application/x-www-form-urlencoded\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
    }
}

#[test]
fn first_present_source_names_the_caller() {
    let upstream = Upstream::ok();
    for who in ["user", "client", "tenant", "plan"] {
        let sources = "[\"header:x-name\", \"query:name\", \"cookie:name\", \"basic:user\", \
                       \"form:name\"]";
        let config = once(&upstream, &format!("\"{who}\""), &format!("{who} = {sources}"));
        let weir = Weir::start(&config);
        let ask = |says: Says<'_>| weir.ask(says.request()).status;
        let none = Says::default();
        assert_eq!(ask(none), 403, "{who}");
        // A name is the same caller in every source.
        let anna = Some("anna");
        assert_eq!(ask(Says { form: anna, ..none }), 200, "{who}");
        assert_eq!(ask(Says { form: anna, ..none }), 429, "{who}");
        assert_eq!(ask(Says { basic: anna, ..none }), 429, "{who}");
        assert_eq!(ask(Says { cookie: anna, ..none }), 429, "{who}");
        assert_eq!(ask(Says { query: anna, ..none }), 429, "{who}");
        assert_eq!(ask(Says { header: anna, ..none }), 429, "{who}");
        // The order is that of the configuration, and an empty value counts as absent.
        let all = Says { header: anna, query: anna, cookie: anna, basic: anna, form: anna };
        assert_eq!(ask(Says { header: Some("h"), ..all }), 200, "{who}");
        assert_eq!(ask(Says { header: None, query: Some("q"), ..all }), 200, "{who}");
        let rest = Says { header: None, query: None, ..all };
        assert_eq!(ask(Says { cookie: Some("c"), ..rest }), 200, "{who}");
        assert_eq!(ask(Says { cookie: None, basic: Some("b"), ..rest }), 200, "{who}");
        assert_eq!(ask(Says { header: Some(""), ..all }), 429, "{who}");
        assert_eq!(ask(Says { header: Some(""), query: Some("q"), ..all }), 429, "{who}");
    }
}

#[test]
fn duplicate_identity_is_refused_and_charges_nobody() {
    let upstream = Upstream::ok();
    let identity = "user = [\"header:x-user\", \"query:user\", \"cookie:user\"]";
    let weir = Weir::start(&once(&upstream, "\"user\"", identity));
    let rows = [
        ("/", "X-User: a\r\nX-User: b\r\n"),
        ("/", "X-User: a\r\nX-User: a\r\n"),
        ("/", "X-User: a\r\nx-user:\r\n"),
        ("/?user=a&user=b", ""),
        ("/?user=a&%75ser=b", ""),
        ("/", "Cookie: user=a; user=b\r\n"),
        ("/", "Cookie: user=a\r\nCookie: user=b\r\n"),
    ];
    for (target, lines) in rows {
        let response = weir.ask(get_with(target, lines));
        let told = (response.status, response.error());
        assert_eq!(told, (400, "bad_request".into()), "{target} {lines:?}");
    }
    assert_eq!(upstream.heads(), 0);
    for user in ["a", "b"] {
        assert_eq!(weir.get(&format!("/?user={user}")).status, 200, "{user} has lost nothing");
    }
}

fn names_of_callers_never_collide(test_store: &TestStore) {
    let limit = format!("key = [\"user\", \"client\"]\nmissing = \"deny\"\n{ONCE}");
    let identity = "[identity]\nuser = \"header:x-user\"\nclient = \"header:x-client\"";
    let weir = Weir::start(&test_store.configure(Config::echo().limit(&limit).also(identity)));
    let long = "x".repeat(10 * 1024);
    let (one, two) = (format!("{long}1"), format!("{long}2"));
    let pairs = [
        ("a", "b"),
        ("b", "a"),
        ("a:b", "c"),
        ("a", "b:c"),
        ("a::b", "c"),
        ("a:", "b:c"),
        ("{x}", "y"),
        ("x", "{y}"),
        ("{x}y", "y"),
        ("{", "x}y"),
        ("a%3Ab", "c"),
        ("a%3ab", "c"),
        ("%61", "b"),
        ("a%0d%0a", "b"),
        ("a%00", "b"),
        ("a\tb", "c"),
        ("a b", "c"),
        ("caf\u{e9}", "b"),
        ("cafe\u{301}", "b"),
        ("*", "*"),
        (&one, "b"),
        (&two, "b"),
        ("b", &one),
        (&long, "1b"),
    ];
    for round in [200, 429] {
        let mut client = weir.connect();
        for (user, name) in pairs {
            let lines = format!("X-User: {user}\r\nX-Client: {name}\r\n");
            let status = client.ask(get_with("/", &lines)).status;
            assert_eq!(status, round, "{} and {}", user.escape_debug(), name.escape_debug());
        }
    }
}

#[test]
fn client_cannot_strip_its_identity_with_connection() {
    let upstream = Upstream::ok();
    let identity = "user = [\"header:x-user\", \"cookie:user\", \"basic:user\"]";
    let rows =
        [("x-user", "X-User: a\r\n".to_owned()), ("cookie", "Cookie: user=a\r\n".to_owned())];
    for (name, line) in rows.into_iter().chain([("authorization", basic("a"))]) {
        let weir = Weir::start(&once(&upstream, "\"user\"", identity));
        let lines = format!("Connection: {name}, keep-alive\r\n{line}");
        assert_eq!(weir.ask(get_with("/", &lines)).status, 200, "{name}");
        assert!(upstream.last().has(name), "{name} arrives");
        assert_eq!(weir.ask(get_with("/", &lines)).status, 429, "{name} counts");
    }
    // What decides whether a limit applies, or with which numbers, stays as well.
    let limit =
        format!("key = \"ip\"\nwhen = {{ \"header:x-free\" = \"no\", plan = \"x\" }}\n{ONCE}");
    let config = Config::to(&upstream).limit(&limit).also("[identity]\nplan = \"header:x-plan\"");
    let weir = Weir::start(&config);
    let lines = "Connection: x-free, x-plan\r\nX-Free: no\r\nX-Plan: x\r\n";
    let statuses = [(); 2].map(|()| weir.ask(get_with("/", lines)).status);
    assert_eq!(statuses, [200, 429]);
    assert!(upstream.last().has("x-free") && upstream.last().has("x-plan"));
}

/// A header that only an access list uses is an identity like one that limits count by.
#[test]
fn identity_used_only_by_a_list_is_neither_stripped_nor_disguised() {
    let upstream = Upstream::ok();
    let config = Config::to(&upstream)
        .limit("key = \"ip\"\nrate = \"100/second\"")
        .also("[identity]\nuser = \"header:x-user-id\"\n[access]\ndeny = { user = [\"mallory\"] }");
    let weir = Weir::start(&config);
    assert_eq!(weir.ask(get_with("/", "X-User-Id: mallory\r\n")).status, 403);
    assert_eq!(weir.ask(get_with("/", "X_User_Id: mallory\r\n")).status, 200);
    assert!(!upstream.last().has("x_user_id"), "a look-alike does not arrive");
    let lines = "Connection: x-user-id\r\nX-User-Id: ann\r\n";
    assert_eq!(weir.ask(get_with("/", lines)).status, 200);
    assert!(upstream.last().has("x-user-id"), "nor is the name stripped");
}

fn policy(response: &Response) -> (i64, i64) {
    let policies = fields::list(&response.all("ratelimit-policy"));
    let left = fields::list(&response.all("ratelimit"));
    assert_eq!((policies.len(), left.len()), (1, 1), "{response:#?}");
    (policies[0].integer("q"), left[0].integer("r"))
}

/// Two for everybody, five for one plan, and three for another that has an allowance too.
fn planned(test_store: &TestStore) -> Weir {
    let tables = r#"
        [identity]
        user = "header:x-user"
        plan = "header:x-plan"

        [limits.per-ip.plans.pro]
        burst = 5

        [limits.per-ip.plans.basic]
        rate = "1/hour"
        burst = 2
        burst_allowance = 1.5
    "#;
    let limit = "key = \"user\"\nrate = \"1/day\"\nburst = 2";
    Weir::start(&test_store.configure(Config::echo().limit(limit).also(tables)))
}

/// Sends until a refusal: what each response states about the policy and what is left.
#[track_caller]
fn spend(weir: &Weir, lines: &str) -> Vec<(i64, i64)> {
    let mut told = Vec::new();
    let mut client = weir.connect();
    loop {
        let response = client.ask(get_with("/", lines));
        told.push(policy(&response));
        if response.status == 429 {
            return told;
        }
        assert!(response.status == 200 && told.len() < 100, "{response:#?}");
    }
}

fn a_plan_has_numbers_of_its_own(test_store: &TestStore) {
    let weir = planned(test_store);
    let pro = spend(&weir, "X-User: anna\r\nX-Plan: pro\r\n");
    assert_eq!(pro, [(5, 4), (5, 3), (5, 2), (5, 1), (5, 0), (5, 0)]);
    let basic = spend(&weir, "X-User: bert\r\nX-Plan: basic\r\n");
    assert_eq!(basic, [(3, 2), (3, 1), (3, 0), (3, 0)]);
}

fn a_plan_that_is_not_named_has_the_numbers_of_the_limit(test_store: &TestStore) {
    let weir = planned(test_store);
    for (user, plan) in [("a", "gold"), ("b", "PRO"), ("c", "pro x"), ("d", "")] {
        let told = spend(&weir, &format!("X-User: {user}\r\nX-Plan: {plan}\r\n"));
        assert_eq!(told, [(2, 1), (2, 0), (2, 0)], "{plan:?}");
    }
    assert_eq!(spend(&weir, "X-User: e\r\n"), [(2, 1), (2, 0), (2, 0)]);
}

#[test]
fn a_limit_applies_when_its_conditions_hold() {
    let limited = |when: &str| {
        Config::echo()
            .open()
            .also("[identity]\nplan = \"header:x-plan\"\ntenant = \"query:tenant\"")
            .add_limit("some", &format!("key = \"global\"\n{ONCE}\nwhen = {when}"))
            .route("a", "/a", &["some"])
            .route("b", "/b", &["some"])
    };
    let ask = |line: &str, lines: &str| {
        format!("{line} HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 0\r\n{lines}\r\n")
    };
    // Each with a request that it is for, and others that it is not for.
    let rows = [
        (
            "{ plan = \"pro\" }",
            ("GET /a", "X-Plan: pro\r\n"),
            vec![("GET /a", ""), ("GET /a", "X-Plan: free\r\n"), ("GET /a", "X-Plan: Pro\r\n")],
        ),
        (
            "{ method = [\"POST\", \"PUT\"] }",
            ("PUT /a", ""),
            vec![("GET /a", ""), ("DELETE /a", "")],
        ),
        ("{ route = \"a\" }", ("GET /a", ""), vec![("GET /b", "")]),
        (
            "{ tenant = [\"x\", \"y\"] }",
            ("GET /a?tenant=y", ""),
            vec![("GET /a?tenant=z", ""), ("GET /a", "")],
        ),
        (
            "{ \"header:x-beta\" = \"yes\" }",
            ("GET /a", "X-Beta: yes\r\n"),
            vec![("GET /a", "X-Beta: no\r\n"), ("GET /a", "")],
        ),
        (
            "{ plan = \"pro\", method = \"POST\" }",
            ("POST /b", "X-Plan: pro\r\n"),
            vec![("POST /b", ""), ("GET /b", "X-Plan: pro\r\n")],
        ),
    ];
    for (when, (line, lines), others) in rows {
        let weir = Weir::start(&limited(when));
        assert_eq!(weir.ask(ask(line, lines)).status, 200, "{when}");
        assert_eq!(weir.ask(ask(line, lines)).status, 429, "{when}");
        for (line, lines) in others {
            let response = weir.ask(ask(line, lines));
            assert_eq!(response.status, 200, "{when}: {line} {lines:?}");
            assert!(!response.has("ratelimit"), "{when}: {line} {lines:?}");
        }
    }
    let weir = Weir::start(&limited("{ plan = \"pro\" }"));
    let doubled = "X-Plan: free\r\nX-Plan: pro\r\n";
    assert_eq!(weir.ask(get_with("/a", doubled)).status, 400, "nobody is of two plans");
}

#[test]
fn a_user_is_not_a_client_of_the_same_name() {
    let upstream = Upstream::ok();
    let config = Config::to(&upstream)
        .open()
        .also("[identity]\nuser = \"header:x-name\"\nclient = \"header:x-name\"")
        .add_limit("users", &format!("key = \"user\"\n{ONCE}"))
        .add_limit("clients", &format!("key = \"client\"\n{ONCE}"))
        .route("u", "/u", &["users"])
        .route("c", "/c", &["clients"]);
    let weir = Weir::start(&config);
    let ask = |target: &str| weir.ask(get_with(target, "X-Name: a\r\n")).status;
    assert_eq!([ask("/u"), ask("/c"), ask("/u"), ask("/c")], [200, 200, 429, 429]);
    assert_eq!([weir.get("/u").status, weir.ask(get("/u")).status], [200, 429], "by address");
}
