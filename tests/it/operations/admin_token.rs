//! The admin token: which requests to the admin listener need it.

use crate::support::gateway::{TOKEN, program};
use crate::support::{Config, Response, Scratch, Upstream, Weir, get_with, wait_until};

const ANN: &str = "/v1/overrides/per-ip/ann";
const EVE: &str = "/v1/access/deny/user/eve";

fn limited() -> Config {
    let limit = "key = \"user\"\nrate = \"1/hour\"\nburst = 2";
    Config::echo().limit(limit).also("[identity]\nuser = \"header:x-user\"")
}

/// Anything, with these header lines.
fn change(weir: &Weir, method: &str, target: &str, lines: &str) -> Response {
    let body = if target == EVE { "{}" } else { "{\"burst\": 50}" };
    let length = body.len();
    weir.ask_admin(format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\n{lines}Content-Length: {length}\r\n\r\n{body}"
    ))
}

#[track_caller]
fn is(response: &Response, status: u16, error: &str) {
    let said = response.json();
    assert_eq!((response.status, said["error"].as_str()), (status, Some(error)), "{said}");
    assert!(!response.text().contains(TOKEN), "{said}");
}

/// No override is in force, and requests are decided as before.
#[track_caller]
fn nothing_has_changed(weir: &Weir) {
    for target in ["/v1/overrides", "/v1/access"] {
        assert_eq!(weir.operate("GET", target, "").text(), "[]");
    }
    let shown = |name: &str| weir.ask(get_with("/", &format!("X-User: {name}\r\n")));
    assert!(shown("ann").one("ratelimit-policy").contains("q=2;"));
    assert_ne!(shown("eve").status, 403);
}

#[test]
fn changes_need_the_token_even_on_loopback() {
    let weir = Weir::start(&limited().operated());
    let wrong = [
        String::new(),
        "Authorization: Bearer wrong\r\n".to_owned(),
        "Authorization: Bearer \r\n".to_owned(),
        "Authorization: Bearer\r\n".to_owned(),
        format!("Authorization: {TOKEN}\r\n"),
        format!("Authorization: Basic {TOKEN}\r\n"),
        format!("Authorization: Bearer {TOKEN}x\r\n"),
        format!("Authorization: Bearer {}\r\n", &TOKEN[..TOKEN.len() - 1]),
        format!("Authorization: Bearer {}\r\n", TOKEN.to_uppercase()),
        format!("X-Token: Bearer {TOKEN}\r\n"),
    ];
    for lines in &wrong {
        for target in [ANN, EVE] {
            for method in ["PUT", "DELETE", "POST", "PATCH"] {
                let response = change(&weir, method, target, lines);
                is(&response, 401, "unauthorized");
                assert_eq!(response.one("www-authenticate"), "Bearer");
            }
        }
    }
    let (good, bad) = (format!("Bearer {TOKEN}"), "Bearer wrong".to_owned());
    for [one, other] in [[&good, &bad], [&bad, &good], [&good, &good]] {
        let lines = format!("Authorization: {one}\r\nAuthorization: {other}\r\n");
        is(&change(&weir, "PUT", EVE, &lines), 400, "bad_request");
    }
    nothing_has_changed(&weir);
    // What has been decided is not taken back either.
    assert_eq!(weir.operate("PUT", EVE, "{}").status, 200);
    for lines in &wrong {
        is(&change(&weir, "DELETE", EVE, lines), 401, "unauthorized");
    }
    wait_until("she is kept out", || weir.ask(get_with("/", "X-User: eve\r\n")).status == 403);
    let right = format!("Authorization: bearer {TOKEN}\r\n");
    assert_eq!(change(&weir, "DELETE", EVE, &right).status, 200, "a scheme is one in any case");
    assert!(!weir.output().contains(TOKEN), "{}", weir.output());
}

#[test]
fn without_a_token_nothing_can_be_changed() {
    let weir = Weir::start(&limited());
    for lines in ["", "Authorization: Bearer \r\n", "Authorization: Bearer null\r\n"] {
        for target in [ANN, EVE] {
            let response = change(&weir, "PUT", target, lines);
            is(&response, 401, "unauthorized");
            assert!(response.text().contains("admin.token_env"), "{}", response.text());
        }
    }
    nothing_has_changed(&weir);
}

#[test]
fn reading_on_loopback_needs_no_token() {
    for config in [limited(), limited().operated()] {
        let weir = Weir::start(&config);
        for target in ["/v1/overrides", "/v1/access"] {
            let response = weir.admin(target);
            assert_eq!((response.status, response.text()), (200, "[]".to_owned()), "{target}");
            assert_eq!(response.one("cache-control"), "no-store");
        }
        is(&weir.admin(ANN), 404, "no_route");
        is(&weir.admin("/v1/nothing"), 404, "no_route");
    }
}

#[test]
fn public_admin_listener_needs_the_token_for_reading() {
    let weir = Weir::start(&limited().operated().admin("listen = \"0.0.0.0:0\""));
    for target in ["/v1/overrides", "/v1/access", ANN, EVE, "/v1/nothing"] {
        is(&weir.admin(target), 401, "unauthorized");
        let wrong = "Authorization: Bearer wrong\r\n";
        is(&weir.ask_admin(get_with(target, wrong)), 401, "unauthorized");
    }
    is(&change(&weir, "PUT", EVE, ""), 401, "unauthorized");
    nothing_has_changed(&weir);
    assert_eq!(weir.operate("PUT", EVE, "{}").status, 200);
    assert_eq!(weir.operate("GET", EVE, "").status, 200);
    for target in ["/metrics", "/healthz", "/readyz"] {
        assert_eq!(weir.admin(target).status, 200, "{target}");
    }
}

#[test]
fn public_admin_listener_allows_no_changes_without_a_token() {
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let weir = Weir::start(&limited().admin(&format!("listen = \"{listen}\"")));
        for target in ["/v1/overrides", "/v1/access", ANN, EVE, "/v1/", "/v1"] {
            for method in ["GET", "PUT", "DELETE", "POST"] {
                is(&change(&weir, method, target, ""), 404, "no_route");
                is(&weir.operate(method, target, "{}"), 404, "no_route");
            }
        }
        for target in ["/metrics", "/healthz", "/readyz"] {
            assert_eq!(weir.admin(target).status, 200, "{target}");
        }
        assert_ne!(weir.ask(get_with("/", "X-User: eve\r\n")).status, 403);
    }
}

#[test]
fn overrides_are_not_made_on_the_data_port() {
    let upstream = Upstream::ok();
    let routes = "[[routes]]\nname = \"a\"\npath = \"/a\"\nupstream = \"api\"";
    let weir = Weir::start(&Config::to(&upstream).operated().open().routes(routes));
    for target in ["/v1/overrides", "/v1/access", ANN, EVE] {
        for method in ["GET", "PUT", "DELETE"] {
            let response = weir.ask(format!(
                "{method} {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\
                 Content-Length: 2\r\n\r\n{{}}"
            ));
            assert_eq!((response.status, response.error()), (404, "no_route".into()), "{target}");
        }
    }
    assert_eq!(weir.admin("/v1/access").text(), "[]");
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn unexpected_request_body_is_refused() {
    let weir = Weir::start(&limited().operated());
    let padded = |length: usize| format!("{{\"burst\": 50{}}}", " ".repeat(length - 13));
    is(&weir.operate("PUT", ANN, &padded(64 * 1024 + 1)), 413, "body_too_large");
    nothing_has_changed(&weir);
    assert_eq!(weir.operate("PUT", ANN, &padded(64 * 1024)).status, 200);
}

#[test]
fn other_methods_are_not_allowed() {
    let weir = Weir::start(&limited().operated());
    for method in ["POST", "PATCH", "OPTIONS", "BREW"] {
        for (target, allowed) in [
            (ANN, "GET, HEAD, PUT, DELETE"),
            (EVE, "GET, HEAD, PUT, DELETE"),
            ("/v1/overrides", "GET, HEAD"),
            ("/v1/access", "GET, HEAD"),
            ("/metrics", "GET, HEAD"),
        ] {
            let response = weir.operate(method, target, "{}");
            is(&response, 405, "method_not_allowed");
            assert_eq!(response.one("allow"), allowed, "{method} {target}");
        }
    }
    nothing_has_changed(&weir);
}

#[test]
fn missing_admin_token_is_a_configuration_error() {
    let scratch = Scratch::new();
    let file = scratch.file("weir.toml", &limited().operated().text());
    let mut command = program();
    command.env_remove("WEIR_TEST_TOKEN").arg("run").arg("--config").arg(file);
    let ended = command.output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(2), "{said}");
    assert!(said.contains("WEIR_TEST_TOKEN"), "{said}");
}

/// A gateway whose token is there, and empty.
fn with_an_empty_token(config: &Config) -> Weir {
    let scratch = Scratch::new();
    let file = scratch.file("weir.toml", &config.text());
    let mut command = program();
    command.env("WEIR_TEST_TOKEN", "");
    Weir::start_with(command, scratch, file)
}

#[test]
fn empty_admin_token_counts_as_none() {
    let lines = ["", "Authorization: Bearer \r\n", "Authorization: Bearer\r\n"];
    let weir = with_an_empty_token(&limited().operated());
    for lines in lines {
        is(&change(&weir, "PUT", EVE, lines), 401, "unauthorized");
    }
    nothing_has_changed(&weir);
    assert!(!weir.output().contains("only"), "{}", weir.output());
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let all = format!("listen = \"{listen}\"");
        let weir = with_an_empty_token(&limited().operated().admin(&all));
        for method in ["GET", "PUT", "DELETE"] {
            for lines in lines {
                is(&change(&weir, method, EVE, lines), 404, "no_route");
            }
        }
        for target in ["/metrics", "/healthz", "/readyz"] {
            assert_eq!(weir.admin(target).status, 200, "{target}");
        }
        let only = "(/metrics, /healthz and /readyz only: there is no token)";
        let line = format!("admin on http://{} {only}", weir.admin_address());
        assert!(weir.output().contains(&line), "{}", weir.output());
    }
}
