//! Which route a request takes, and that no spelling of a path finds a fresh bucket.

use crate::support::{Config, Upstream, Weir, get, get_with};

/// `/login` has three requests an hour; everything else is open.
/// Three logins for each key, and everything else as often as one likes.
fn limited_login(upstream: &Upstream, key: &str) -> Config {
    Config::to(upstream).open().bucket("login", key, 3).route("login", "/login", &["login"]).route(
        "open",
        "/*",
        &[],
    )
}

/// What some upstream or other serves as `/login`.
const SPELLINGS: [&str; 48] = [
    "//login",
    "///login",
    "/./login",
    "/././login",
    "/x/../login",
    "/x/y/../../login",
    "/../login",
    "/../../login",
    "/x/..//login",
    "/%6cogin",
    "/%6Cogin",
    "/%6c%6f%67%69%6e",
    "/login%2f",
    "/login%2F",
    "/%2flogin",
    "/%2Flogin",
    "/login/",
    "/login//",
    "/login/.",
    "/login/x/..",
    "/login;a",
    "/login;a=b",
    "/login;",
    "/login/;a",
    "/;a/login",
    "/LOGIN",
    "/Login",
    "/%4cOGIN",
    "/%2e/login",
    "/%2E/login",
    "/x/%2e%2e/login",
    "/x/.%2e/login",
    "/x/%2e./login",
    "/x/..%2flogin",
    "/x%2f..%2flogin",
    "/x%2f../login",
    "/login?",
    "/login?a=b",
    "/login?a=/../x",
    "/login%3ba",
    "/login%00",
    "/login%5c",
    "/x\\..\\login",
    "/x%5c..%5clogin",
    "\\login",
    "/x/..;/login",
    "/x/..;a=b/login",
    "http://weir.test/login",
];

fn gateway() -> (Upstream, Weir) {
    let upstream = Upstream::ok();
    let config = limited_login(&upstream, "ip");
    let weir = Weir::start(&config);
    (upstream, weir)
}

#[test]
fn no_spelling_of_a_path_finds_a_fresh_bucket() {
    let (upstream, weir) = gateway();
    for _ in 0..3 {
        assert_eq!(weir.get("/login").status, 200);
    }
    assert_eq!(weir.get("/login").status, 429);
    for spelling in SPELLINGS {
        let response = weir.get(spelling);
        assert!(matches!(response.status, 400 | 429), "{spelling}: {}", response.status);
    }
    assert_eq!(upstream.heads(), 3);
    assert_eq!(weir.get("/other").status, 200);
}

#[test]
fn paths_that_go_on_as_they_came_find_no_fresh_bucket_either() {
    let (keep, raw) = ("encoded_slash = \"keep\"", "forward_path = \"as_received\"");
    for lines in [keep.to_owned(), raw.to_owned(), format!("{keep}\n{raw}")] {
        let upstream = Upstream::ok();
        let config = Config::to(&upstream)
            .open()
            .bucket("login", "ip", 3)
            .route("login", "/login", &["login"])
            .route_lines(&lines)
            .route("open", "/*", &[])
            .route_lines(&lines);
        let weir = Weir::start(&config);
        for _ in 0..3 {
            assert_eq!(weir.get("/login").status, 200);
        }
        for spelling in SPELLINGS {
            let response = weir.get(spelling);
            assert!(matches!(response.status, 400 | 429), "{spelling}: {}", response.status);
        }
        assert_eq!(upstream.heads(), 3);
    }
}

#[test]
fn paths_go_on_as_their_upstream_needs_them() {
    let upstream = Upstream::ok();
    let config = Config::to(&upstream)
        .open()
        .route("npm", "/npm/*", &[])
        .route_lines("encoded_slash = \"keep\"")
        .route("signed", "/signed/*", &[])
        .route_lines("encoded_slash = \"keep\"\nforward_path = \"as_received\"")
        .route("raw", "/raw/*", &[])
        .route_lines("forward_path = \"as_received\"");
    let weir = Weir::start(&config);
    for (target, expected) in [
        ("/npm/@scope%2fname?a=%2f", "/npm/@scope%2Fname?a=%2f"),
        ("/npm/a/%2e%2e/b%2Fc", "/npm/b%2Fc"),
        ("/signed/a%2fb/%7Ec?d", "/signed/a%2fb/%7Ec?d"),
        ("/Raw/%61;b=%3b/", "/Raw/%61;b=%3b/"),
        ("/raw", "/raw"),
        ("/raw/a%2fb", "400"),
        ("/raw/a//b", "400"),
        ("/signed/a%2f..%2fb", "400"),
        ("/signed/./a", "400"),
    ] {
        let status = weir.get(target).status;
        let seen = if status == 200 { upstream.last().target } else { status.to_string() };
        assert_eq!(seen, expected, "{target}");
    }
}

#[test]
fn a_spelling_spends_what_the_plain_one_has() {
    // One gateway for all rows, each row a user of its own.
    let upstream = Upstream::ok();
    let weir = Weir::start(&limited_login(&upstream, "header:x-user"));
    for spelling in SPELLINGS {
        // Enough for three plain ones; each that passes must have cost one of them.
        let user = format!("X-User: {}\r\n", spelling.escape_debug());
        let passed = weir.ask(get_with(spelling, &user)).status == 200;
        if passed {
            let target = upstream.last().target.to_ascii_lowercase();
            let target = target.split('?').next().unwrap();
            for odd in ["//", "/.", "%2e", "%2f", "%5c", "\\", "%6c"] {
                assert!(
                    !target.contains(odd),
                    "{spelling}: matched as one path, sent on as {target}"
                );
            }
        }
        let plain = (0..4).filter(|_| weir.ask(get_with("/login", &user)).status == 200).count();
        assert_eq!(plain, if passed { 2 } else { 3 }, "{spelling}");
    }
}

#[test]
fn path_that_climbs_out_is_refused_or_kept_inside() {
    let upstream = Upstream::ok();
    let config = Config::to(&upstream).open().route("api", "/api/*", &[]);
    let weir = Weir::start(&config.route_lines("strip_prefix = \"/api\""));
    for target in [
        "/api/../secret",
        "/api/%2e%2e/secret",
        "/api/..%2fsecret",
        "/api/x/../../secret",
        "/api/..\\secret",
    ] {
        let response = weir.get(target);
        assert!(matches!(response.status, 400 | 404), "{target}: {}", response.status);
    }
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn bad_percent_signs_are_refused_or_passed_on_as_they_are() {
    let (upstream, weir) = gateway();
    for target in ["/%", "/%2", "/%zz", "/a%", "/%%32e", "/%u0041"] {
        let response = weir.get(target);
        assert!(matches!(response.status, 200 | 400), "{target}: {}", response.status);
        assert!(response.status == 400 || upstream.last().target == target, "{target}");
    }
}

#[test]
fn query_does_not_affect_routing() {
    let (upstream, weir) = gateway();
    for query in ["?a=%2e%2e", "?a=/../b", "?a=//b", "?A=B;c", "?", "?a=b?c=d", "?%zz", "?a=%00"] {
        let target = format!("/open{query}");
        assert_eq!(weir.get(&target).status, 200, "{target}");
        assert_eq!(upstream.last().target, target);
    }
}

#[test]
fn the_spelling_of_a_host_does_not_matter() {
    let upstream = Upstream::ok();
    let config = Config::to(&upstream)
        .open()
        .bucket("once", "global", 1)
        .route("api", "/*", &["once"])
        .route_lines("host = \"Api.test\"")
        .route("below", "/*", &["once"])
        .route_lines("host = \"*.sub.test\"")
        .route("rest", "/*", &[]);
    let weir = Weir::start(&config);
    let ask = |host: &str| weir.ask(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).status;
    assert_eq!(ask("api.test"), 200);
    let port = weir.address().port();
    let own = format!("api.test:{port}");
    let same = [
        "api.test",
        "API.TEST",
        "Api.Test",
        "api.test:80",
        "API.test:80",
        "api.test:",
        "api.test.",
        &own,
    ];
    for host in same.into_iter().chain(["a.sub.test", "A.SUB.test:80", "a.b.sub.test"]) {
        let status = ask(host);
        assert!(matches!(status, 400 | 429), "{host}: {status}");
    }
    for host in ["other.test", "xapi.test", "api.test.evil", "sub.test", "xsub.test", "127.0.0.1"] {
        assert_eq!(ask(host), 200, "{host}");
    }
}

#[test]
fn the_most_specific_route_wins() {
    let routes = [
        ("root", "", "/*", ""),
        ("host", "api.test", "/*", ""),
        ("users", "", "/users/*", ""),
        ("user", "", "/users/{id}", ""),
        ("me", "", "/users/me", ""),
        ("posts", "", "/users/{id}/posts", ""),
        ("write", "", "/users/{id}", "POST"),
        ("deep", "", "/users/me/a/*", ""),
    ];
    let tables: String = routes
        .iter()
        .map(|(name, host, path, method)| {
            let host = if host.is_empty() { String::new() } else { format!("host = \"{host}\"\n") };
            let methods =
                if method.is_empty() { String::new() } else { format!("methods = [\"{method}\"]\n") };
            format!(
                "[[routes]]\nname = \"{name}\"\npath = \"{path}\"\n{host}{methods}upstream = \"api\"\n\
                 response_headers = {{ set = {{ x-route = \"{name}\" }} }}\n"
            )
        })
        .collect();
    let upstream = Upstream::ok();
    let weir = Weir::start(&Config::to(&upstream).open().routes(&tables));
    let rows = [
        ("GET", "weir.test", "/", "root"),
        ("GET", "weir.test", "/x/y", "root"),
        ("GET", "api.test", "/x", "host"),
        ("GET", "api.test", "/users/me", "host"),
        ("GET", "weir.test", "/users", "users"),
        ("GET", "weir.test", "/users/7", "user"),
        ("POST", "weir.test", "/users/7", "write"),
        ("GET", "weir.test", "/users/me", "me"),
        ("GET", "weir.test", "/users/7/posts", "posts"),
        ("GET", "weir.test", "/users/me/posts", "posts"),
        ("GET", "weir.test", "/users/7/other", "users"),
        ("GET", "weir.test", "/users/me/a", "deep"),
        ("GET", "weir.test", "/users/me/a/b/c", "deep"),
        ("GET", "weir.test", "/users/7/posts/1", "users"),
    ];
    for (method, host, path, route) in rows {
        let response = weir.ask(format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(response.one("x-route"), route, "{method} {host} {path}");
    }
}

#[test]
fn request_without_a_route_is_a_404() {
    let upstream = Upstream::ok();
    let routes =
        "[[routes]]\nname = \"only\"\nhost = \"a.test\"\npath = \"/a\"\nupstream = \"api\"";
    let weir = Weir::start(&Config::to(&upstream).open().routes(routes));
    for (host, path) in [("a.test", "/b"), ("b.test", "/a"), ("a.test", "/a/b"), ("a.test", "/")] {
        let response = weir.ask(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!((response.status, response.error()), (404, "no_route".into()), "{host}{path}");
    }
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn unusual_method_does_not_evade_a_limit() {
    let (upstream, weir) = gateway();
    for _ in 0..3 {
        assert_eq!(weir.get("/login").status, 200);
    }
    for method in ["HEAD", "POST", "PUT", "FOO", "GETS", "PROPFIND", "OPTIONS"] {
        let mut client = weir.connect();
        client.send(get("/login").replace("GET", method));
        assert_eq!(client.head_response().status, 429, "{method}");
    }
    // Some upstreams do not tell these from the ones they look like.
    for method in ["get", "Post", "tRACE"] {
        assert_eq!(weir.ask(get("/login").replace("GET", method)).status, 405, "{method}");
    }
    for name in ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "_method"] {
        for method in ["DELETE", "OPTIONS"] {
            let response = weir.ask(get_with("/login", &format!("{name}: {method}\r\n")));
            assert_eq!(response.status, 429, "{name}: {method}");
        }
    }
    let headers = ["X-Original-URL: /open", "X-Rewrite-URL: /open", "X-Forwarded-Path: /open"];
    for header in headers {
        assert_eq!(weir.ask(get_with("/login", &format!("{header}\r\n"))).status, 429, "{header}");
    }
    assert_eq!(upstream.heads(), 3);
}

#[test]
fn a_method_in_another_case_does_not_fall_to_a_wider_route() {
    let upstream = Upstream::ok();
    let routes = "[[routes]]\nname = \"login\"\npath = \"/login\"\nmethods = [\"POST\"]\nupstream = \"api\"\n\
                  [[routes]]\nname = \"rest\"\npath = \"/*\"\nupstream = \"api\"";
    let weir = Weir::start(&Config::to(&upstream).open().routes(routes));
    for method in ["post", "Post", "pOST"] {
        assert_eq!(weir.ask(get("/login").replace("GET", method)).status, 405, "{method}");
    }
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn a_path_with_methods_refuses_the_others() {
    let upstream = Upstream::ok();
    let routes = "[[routes]]\nname = \"write\"\npath = \"/w\"\nmethods = [\"POST\", \"PUT\"]\nupstream = \"api\"";
    let weir = Weir::start(&Config::to(&upstream).open().routes(routes));
    assert_eq!(weir.ask(get("/w").replace("GET", "POST")).status, 200);
    for method in ["GET", "DELETE", "post", "POSTS"] {
        let response = weir.ask(get("/w").replace("GET", method));
        assert_eq!(
            (response.status, response.error()),
            (405, "method_not_allowed".into()),
            "{method}"
        );
        let allow = response.one("allow");
        assert!(allow.contains("POST") && allow.contains("PUT"), "{allow}");
    }
    assert_eq!(upstream.heads(), 1);
}

#[test]
fn a_route_for_head_comes_before_the_one_for_get() {
    let upstream = Upstream::ok();
    let route = |method: &str| {
        let edit = format!("response_headers = {{ set = {{ x-route = \"{method}\" }} }}");
        format!(
            "[[routes]]\nname = \"{method}\"\npath = \"/a\"\nmethods = [\"{method}\"]\nupstream = \"api\"\n{edit}\n"
        )
    };
    let (head, get) = (route("HEAD"), route("GET"));
    let rows = [(format!("{head}{get}"), "HEAD"), (format!("{get}{head}"), "HEAD"), (get, "GET")];
    for (routes, expected) in rows {
        let weir = Weir::start(&Config::to(&upstream).open().routes(&routes));
        let mut client = weir.connect();
        client.send("HEAD /a HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.head_response().one("x-route"), expected, "{routes}");
        assert_eq!(weir.get("/a").one("x-route"), "GET");
    }
}
