//! What routes ask for besides a path, and what becomes of their requests without an upstream.

use http::StatusCode;

use super::faults::{each_good, each_refused, each_warned};
use super::{good, limit, route, with_route};
use crate::config::settings::{
    EncodedSlash, ForwardPath, IdentityName, MinBodyRate, Route, Target,
};
use crate::limit::{Condition, What};

/// The one route that a configuration with these keys has.
fn means(keys: &str) -> Route {
    let loaded = good(&route(&format!("path = \"/a/{{id}}/*\"\n{keys}")));
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    loaded.settings.routes.into_iter().next().expect("a route")
}

/// The same without an upstream.
fn answering(keys: &str) -> String {
    format!("[[routes]]\nname = \"r\"\npath = \"/a/{{id}}/*\"\n{keys}\n")
}

#[test]
fn conditions_are_texts_and_patterns() {
    let route = means("headers = { X-Version = [\"2\", \"3.*\"] }\nquery = { debug = \"*\" }");
    let words = |it: &Condition| match &it.what {
        What::Source(source) => {
            let values: Vec<String> = it.values.iter().map(ToString::to_string).collect();
            format!("{source} is {}", values.join(" or "))
        }
        What::Method => String::new(),
    };
    let conditions: Vec<String> = route.conditions.iter().map(words).collect();
    assert_eq!(conditions, ["header:x-version is 2 or 3.*", "query:debug is *"]);
    assert!(means("").conditions.is_empty());
}

#[test]
fn paths_go_on_as_the_route_says() {
    let route = means("");
    assert_eq!(route.encoded_slash, EncodedSlash::Reject);
    assert_eq!(route.forward_path, ForwardPath::Normalized);
    assert_eq!((route.rewrite, route.max_body), (None, None));
    let route =
        means("encoded_slash = \"keep\"\nforward_path = \"as_received\"\nmax_body = \"1KiB\"");
    assert_eq!(route.encoded_slash, EncodedSlash::Keep);
    assert_eq!(route.forward_path, ForwardPath::AsReceived);
    assert_eq!(route.max_body, Some(1024));
    assert!(means("rewrite = \"/v2/{id}/{*}\"").rewrite.is_some());
    let server = "[server]\nmax_body = \"2KiB\"\n";
    let bodies = |keys: &str| good(&(route_with(keys) + server)).settings.routes[0].max_body;
    assert_eq!(bodies(""), Some(2048));
    assert_eq!(bodies("max_body = 10"), Some(10));
    assert_eq!(bodies("max_body = 0"), None);
}

fn route_with(keys: &str) -> String {
    route(&format!("path = \"/*\"\n{keys}\n"))
}

#[test]
fn routes_may_answer_themselves() {
    let target = |keys: &str| {
        let loaded = good(&answering(keys));
        assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
        loaded.settings.routes[0].target.clone()
    };
    let Target::Redirect(redirect) = target("redirect = { to = \"https://a.example{path}\" }")
    else {
        panic!("a redirect");
    };
    assert_eq!(redirect.status, StatusCode::PERMANENT_REDIRECT);
    let Target::Redirect(redirect) = target("redirect.to = \"/x\"\nredirect.status = 302") else {
        panic!("a redirect");
    };
    assert_eq!(redirect.status, StatusCode::FOUND);
    let Target::Respond(response) = target("respond = {}") else { panic!("a response") };
    assert_eq!((response.status, response.content_type), (StatusCode::OK, None));
    let Target::Respond(response) = target("respond = { status = 503, body = \"a\" }") else {
        panic!("a response");
    };
    assert_eq!(response.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.content_type.expect("a type"), "text/plain; charset=utf-8");
}

#[test]
fn faults_of_route_keys_say_what_to_write() {
    let more = |keys: &str| route_with(keys);
    let two = |one: &str, other: &str| {
        let route = |name: &str, keys: &str| {
            format!("[[routes]]\nname = \"{name}\"\npath = \"/x\"\nupstream = \"echo\"\n{keys}\n")
        };
        route("a", one) + &route("b", other)
    };
    each_refused(&[
        (more("headers = { host = \"a\" }"), "a condition of `headers` cannot be `host`: every"),
        (
            more("headers = { te = \"a\" }"),
            "a condition of `headers` cannot be `te`: it belongs to a connection, not to a caller; ask \
             for a header that callers send, such as `x-beta`",
        ),
        (
            more("headers = { \"a b\" = \"a\" }"),
            "a condition of `headers` has no valid header name: `a b`; write a name such as `x-version`",
        ),
        (
            more("headers = { \"header:x-a\" = \"a\" }"),
            "has no valid header name: `header:x-a`; write `x-a`",
        ),
        (
            more("query = { \"\" = \"a\" }"),
            "has no valid query name: ``; write a name such as `debug`",
        ),
        (more("headers = { a = \"\" }"), "`a` is empty, which counts as absent"),
        (more("headers = { a = [] }"), "`a` is empty: the route would never match"),
        (more("headers = { a = \"1\", A = \"2\" }"), "repeats an earlier one"),
        (more("query = { a = 1 }"), "`a` must be a string, not an integer"),
        (more("query = \"a\""), "`query` must be a table, not a string"),
        (
            answering(""),
            "1:1: `[[routes]]` has no `upstream`, `redirect` or `respond`; add a line such as `upstream",
        ),
        (
            more("respond = { status = 200 }"),
            "`[[routes]]` has more than one of `upstream`, `redirect` and `respond`; keep the one",
        ),
        (answering("redirect = { status = 302 }"), "`redirect` of `[[routes]]` has no `to`"),
        (
            answering("redirect = { to = \"/\", status = 304 }"),
            "is no redirect with a location: 304",
        ),
        (
            answering("redirect = { to = \"/\", status = 200 }"),
            "`status` is out of range: `200`; write 301, 302, 303, 307 or 308",
        ),
        (
            answering("redirect = { to = \"/\", status = \"301\" }"),
            "must be an integer, not a string; write 301, 302, 303, 307 or 308",
        ),
        (
            answering("redirect = { to = \"/b/{name}\" }"),
            "write `{id}`, `{*}`, `{path}`, `{query}` or `{host}`, or give a segment of `path` that",
        ),
        (answering("redirect = { to = \"https://{id}/\" }"), "has no host that is written out"),
        (answering("respond = { status = 101 }"), "write a number from 200 to 599"),
        (answering("respond = { status = 204, body = \"a\" }"), "cannot be sent with status 204"),
        (answering("respond = { content_type = \"html\" }"), "is not a content type: `html`"),
        (answering("respond = { body = \"a\", contents = 1 }"), "unknown key `contents`"),
        (
            answering("respond = {}\ndegrade = { upstream = \"echo\" }"),
            "`degrade` of `[[routes]]` goes with an `upstream` only",
        ),
        (
            more("rewrite = \"/{id}\""),
            "has a part that there is not: `{id}`; write `{*}`, or give a segment of `path` that name",
        ),
        (
            route("path = \"/a\"\nrewrite = \"/{id}\""),
            "`path` has no parameters: leave it out, or give a segment of `path` that name",
        ),
        (more("rewrite = \"x\""), "does not begin with one `/`: `x`"),
        (
            route("path = \"/api/*\"\nstrip_prefix = \"/api\"\nrewrite = \"/x\""),
            "`rewrite` takes the place of the whole path",
        ),
        (
            route("path = \"/api/*\"\nstrip_prefix = \"/api\"\nforward_path = \"as_received\""),
            "cannot be `as_received` where `strip_prefix` or `rewrite` changes the path",
        ),
        (more("encoded_slash = \"decode\""), "`encoded_slash` cannot be `decode`"),
        (more("forward_path = \"raw\""), "`forward_path` cannot be `raw`"),
        (
            two("headers = { a = \"1\" }", "headers = { a = \"1\" }"),
            "route `b` matches the same requests as an earlier one; change the `host`, `path`, \
             `methods`, `headers` or `query` of one of them",
        ),
        (
            two("headers = { a = \"1\" }", "headers = { b = \"1\" }"),
            "route `b` matches requests of an earlier one, and neither is more specific; ask for",
        ),
        (
            more("proxy_pass = \"http://a\""),
            "unknown key `proxy_pass`; known here: `name`, `host`, `path`,",
        ),
        (two("query = { a = \"1*\" }", "query = { a = \"12\" }"), "and neither is more specific"),
        (
            limit("key = \"ip\"\nrate = \"1/second\"\nwhen = { method = \"P*\" }"),
            "name each method that is meant",
        ),
        (
            limit("key = \"ip\"\nrate = \"1/second\"\nwhen = { route = \"x*\" }"),
            "there is no route `x*`",
        ),
    ]);
}

#[test]
fn routes_that_no_request_can_confuse_are_fine() {
    let routes = |keys: &[&str]| {
        let route = |(at, keys): (usize, &&str)| {
            format!("[[routes]]\nname = \"r{at}\"\npath = \"/x\"\nupstream = \"echo\"\n{keys}\n")
        };
        let text: String = keys.iter().enumerate().map(route).collect();
        good(&text);
    };
    routes(&["headers = { a = \"1\" }", "headers = { a = \"2\" }", ""]);
    routes(&["headers = { a = \"1*\" }", "headers = { a = \"2*\" }"]);
    routes(&["headers = { a = \"1\" }", "headers = { a = \"1\" }\nquery = { b = \"1\" }"]);
    routes(&["headers = { a = \"1\" }", "query = { b = \"1\" }"]);
    routes(&["headers = { a = \"1\" }\nmethods = [\"GET\"]", "headers = { b = \"1\" }"]);
    // A third decides between the two.
    routes(&[
        "headers = { a = \"1\" }",
        "headers = { b = \"1\" }",
        "headers = { a = \"1\", b = \"1\" }",
    ]);
}

#[test]
fn what_has_no_effect_without_an_upstream_is_warned_of() {
    each_warned(&[
        (answering("respond = {}\ntimeout = \"5s\""), "`timeout` has no effect: the route has no"),
        (answering("respond = {}\nrewrite = \"/x\""), "`rewrite` has no effect"),
    ]);
}

#[test]
fn redirects_that_never_end_are_warned_of() {
    let leads = |path: &str, to: &str, more: &str| {
        format!(
            "[[routes]]\nname = \"r\"\npath = \"{path}\"\nredirect = {{ to = \"{to}\" }}\n{more}\n"
        )
    };
    let taken = "[[routes]]\nname = \"taken\"\npath = \"/old/new\"\nupstream = \"echo\"\n";
    let other = "[[routes]]\nname = \"back\"\npath = \"/new\"\nredirect = { to = \"/old\" }\n";
    let back = "leads back to itself; name a path or a host in `to` that this route is not for";
    each_warned(&[
        (leads("/a", "/A?x=1", ""), back),
        (leads("/{id}", "{path}", ""), back),
        (leads("/*", "/maintenance", ""), back),
        (leads("/old/*", "/old/new/{*}", ""), back),
        (leads("/*", "/b", "methods = [\"POST\"]\nhost = \"*.example.com\""), back),
    ]);
    assert_eq!(good(&leads("/old", "/new", other)).warnings.lines().len(), 2, "round in circles");
    each_good(&[
        leads("/a", "/b", ""),
        leads("/old/*", "/new/{*}", ""),
        leads("/old/*", "/old/new", taken),
        leads("/*", "https://{host}{path}", ""),
        leads("/*", "/b", "query = { old = \"*\" }"),
        // It goes on with GET.
        leads("/a", "/a", "methods = [\"POST\"]").replace("\" }", "\", status = 303 }"),
    ]);
}

#[test]
fn upstreams_are_told_by_headers_that_nothing_else_uses() {
    let identity =
        |keys: &str| with_route(&format!("[identity]\nuser = \"header:x-user\"\n{keys}"));
    let forward = |written: &str| {
        let text = identity(&format!("forward = {{ {written} }}"));
        good(&text).settings.identity.forward.headers
    };
    let told: Vec<String> = forward("user = \"X-User-Id\", ip = \"x-real-ip\"")
        .into_iter()
        .map(|(name, header)| format!("{name:?} {header}"))
        .collect();
    assert_eq!(told, ["User x-user-id", "Ip x-real-ip"]);
    assert_eq!(forward("user = \"x-user\"")[0].0, IdentityName::User, "the same may be read");
    each_refused(&[
        (
            identity("forward = { client = \"x-c\" }"),
            "`client` cannot be told: `[identity]` does not say where it is found; add a line such as `client",
        ),
        (identity("forward = { user = \"a b\" }"), "is not the name of a header: `a b`"),
        (identity("forward = { user = \"Authorization\" }"), "cannot be `Authorization`: it means"),
        (identity("forward = { user = \"x_forwarded_for\" }"), "cannot be `x_forwarded_for`"),
        (identity("forward = { user = \"X-Request-Id\" }"), "cannot be `X-Request-Id`: it means"),
        (identity("forward = { user = \"x-a\", ip = \"x_a\" }"), "repeats an earlier one: `x_a`"),
        (identity("forward = { users = \"x-a\" }"), "unknown key `users`; did you mean `user`?"),
    ]);
}

#[test]
fn requests_at_once_and_slow_bodies_are_bounded_only_if_configured() {
    let server = |keys: &str| good(&with_route(&format!("[server]\n{keys}"))).settings.server;
    assert_eq!((server("").max_requests, server("").min_body_rate), (None, None));
    assert_eq!(server("max_requests = 100").max_requests, Some(100));
    let rate = server("min_body_rate = \"1KiB\"\nbody_grace = \"5s\"").min_body_rate;
    let grace = std::time::Duration::from_secs(5);
    assert_eq!(rate, Some(MinBodyRate { bytes_per_second: 1024, grace }));
    each_refused(&[
        (with_route("[server]\nmax_requests = -1"), "`max_requests` is out of range: `-1`"),
        (
            with_route("[server]\nmin_body_rate = 1\nbody_grace = \"0s\""),
            "`body_grace` is out of range: `0s`",
        ),
    ]);
    each_warned(&[(
        with_route("[server]\nbody_grace = \"5s\""),
        "`body_grace` has no effect: without `min_body_rate` bodies may take any time; add",
    )]);
}
