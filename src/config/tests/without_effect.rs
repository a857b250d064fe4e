//! What is allowed and does nothing, or something else than was meant: each is warned of.

use super::faults::{each_good, each_warned};
use super::listeners::{make, valid};
use super::secrets::Files;
use super::{good, with_route};

/// A route that uses tenants, one of 100 a minute and one of 10 below it.
fn tenants(route: &str, text: &str) -> String {
    format!(
        "[[routes]]\nname = \"r\"\npath = \"/*\"\nupstream = \"echo\"\nlimits = [\"tenants\"]\n{route}\n\
         [identity]\ntenant = \"header:x-tenant\"\n[tenants.root]\nrate = \"100/minute\"\n\
         [tenants.small]\nparent = \"root\"\nrate = \"10/minute\"\n{text}"
    )
}

#[test]
fn a_cost_that_a_tenant_never_holds_is_warned_of() {
    let limit = |keys: &str| tenants("", &format!("[limits.tenants]\n{keys}"));
    each_warned(&[
        (
            limit("cost = 50"),
            "`cost` is 50, and tenant `small` never holds more than 10: all its requests are refused",
        ),
        (
            limit("cost = 500"),
            "is 500, and tenant `root` never holds more than 100, nor 1 other holds",
        ),
        (
            limit("cost = { from = \"header:x-items\", default = 11 }"),
            "`default` is 11, and tenant `small` never holds more than 10; write at most 10",
        ),
        (
            limit("cost = 6\nrate = \"5/minute\""),
            "and a tenant that is not in the tree never holds",
        ),
        (tenants("cost = 50", ""), "`cost` is 50, and tenant `small` never holds more than 10"),
    ]);
    each_good(&[
        limit("cost = 10"),
        limit("cost = { from = \"response:x-cost\", default = 50, max = 500 }"),
        tenants("cost = 10", ""),
    ]);
}

/// With a `[server]`, in which `F` is the folder of the files.
fn server(files: &Files, lines: &str) -> String {
    with_route(&format!("[server]\n{lines}")).replace("F/", &format!("{}/", files.folder()))
}

fn warnings(files: &Files, lines: &str) -> Vec<String> {
    let found = good(&server(files, lines)).warnings.lines();
    found.into_iter().map(|it| it.replace(files.folder(), "F")).collect()
}

#[test]
fn a_certificate_for_a_host_that_has_one_is_warned_of() {
    let files = Files::new();
    make(&files, "one", &valid(-1, 100));
    make(&files, "two", &valid(-1, 100));
    let pair = |name: &str| format!("{{ cert = \"F/{name}.pem\", key = \"F/{name}.key\" }}");
    let found = warnings(&files, &format!("tls = [{}, {}]", pair("one"), pair("two")));
    assert_eq!(found.len(), 1, "{found:?}");
    let expected =
        "`cert` is never shown for `a.example`: `F/one.pem` before it is for that host, too";
    assert!(found[0].contains(expected), "{found:?}");
    assert!(warnings(&files, &format!("tls = [{}, {}]", pair("server"), pair("two"))).is_empty());
}

#[test]
fn a_certificate_that_no_listener_has_is_warned_of() {
    let files = Files::new();
    let pair = "{ cert = \"F/server.pem\", key = \"F/server.key\" }";
    let plain = format!("tls = {pair}\nlisten = [{{ address = \"0.0.0.0:80\", tls = false }}]");
    let found = warnings(&files, &plain);
    assert!(found.len() == 1 && found[0].contains("`tls` has no effect: no listener"), "{found:?}");
    let own = format!("tls = {pair}\nlisten = [{{ address = \"0.0.0.0:80\", tls = {pair} }}]");
    assert_eq!(warnings(&files, &own).len(), 1);
    assert!(warnings(&files, &format!("tls = {pair}\nlisten = [\"0.0.0.0:80\"]")).is_empty());
}

#[test]
fn a_name_that_callers_may_claim_beside_a_verified_one_is_warned_of() {
    let files = Files::new();
    let text = |auth: &str, identity: &str| {
        let lines = format!(
            "tls = {{ cert = \"F/server.pem\", key = \"F/server.key\", client_ca = \
             \"F/clients-ca.pem\", client_auth = \"{auth}\" }}\n[identity]\n{identity}"
        );
        server(&files, &lines)
    };
    let jwt = |required: bool, identity: &str| {
        let keys = format!("jwt = {{ secret_file = \"F/jwt-secret\", required = {required} }}");
        server(&files, &format!("[identity]\n{identity}\n{keys}"))
    };
    let mixed = "client = [\"tls:subject\", \"header:x-api-key\"]";
    each_warned(&[
        (
            text("optional", mixed),
            "an entry of `client` may be any name that `tls:subject` verifies: nothing says that the \
             caller of `header:x-api-key` is who it claims to be",
        ),
        (
            text("required", "user = [\"basic:user\", \"tls:san\"]"),
            "an entry of `user` may be any name that `tls:san` verifies",
        ),
        (
            jwt(false, "tenant = [\"jwt:tenant\", \"query:tenant\"]"),
            "an entry of `tenant` may be any name that `jwt:tenant` verifies",
        ),
        (jwt(true, "user = [\"cookie:u\", \"jwt:sub\"]"), "that the caller of `cookie:u` is who"),
    ]);
    each_good(&[
        text("required", mixed),
        text("optional", "client = [\"tls:subject\", \"tls:san\"]"),
        text("optional", &format!("{mixed}\nclients_file = \"F/clients.toml\"")),
        jwt(true, "user = [\"jwt:sub\", \"header:x-user\"]"),
        server(&files, "[identity]\nclient = [\"header:x-api-key\", \"basic:user\"]"),
    ]);
}

#[test]
fn what_needs_an_upstream_is_warned_of_where_there_is_none() {
    let respond = |keys: &str, text: &str| {
        format!(
            "[[routes]]\nname = \"r\"\npath = \"/*\"\nrespond = {{ status = 204 }}\n{keys}\n{text}"
        )
    };
    let limited = |keys: &str| {
        let limit = format!("[limits.l]\nkey = \"ip\"\nrate = \"9/minute\"\n{keys}");
        respond("limits = [\"l\"]", &limit)
    };
    each_warned(&[
        (
            respond("request_headers = { remove = [\"x-a\"] }", ""),
            "`request_headers` has no effect: the route has no upstream; leave it out",
        ),
        (
            limited("strategy = \"degrade\""),
            "an entry of `limits` has no effect: limit `l` degrades requests, and the route has no \
             upstream",
        ),
        (
            limited("cost = { from = \"response:x-cost\", default = 2, max = 5 }"),
            "an entry of `limits` always costs its `default`: limit `l` costs what a response of an \
             upstream tells",
        ),
        (
            respond(
                "limits = [\"l\"]\ncost = { from = \"response:x-cost\", max = 5 }",
                "[limits.l]\nkey = \"ip\"\nrate = \"9/minute\"",
            ),
            "`cost` is always its `default`: the route has no upstream",
        ),
    ]);
    each_good(&[limited(""), respond("request_headers = {}", "")]);
}

#[test]
fn more_connections_of_one_address_than_of_all_are_warned_of() {
    let server = |keys: &str| with_route(&format!("[server]\n{keys}"));
    each_warned(&[(
        server("max_connections = 100\nmax_connections_per_ip = 200"),
        "`max_connections_per_ip` has no effect: there are never more than the 100 of \
         `max_connections`",
    )]);
    each_good(&[
        server("max_connections_per_ip = 200"),
        server("max_connections = 100\nmax_connections_per_ip = 99"),
    ]);
}

#[test]
fn a_method_that_is_nearly_a_standard_one_is_warned_of() {
    let route = |method: &str| {
        format!(
            "[[routes]]\nname = \"r\"\npath = \"/*\"\nupstream = \"echo\"\nmethods = [\"{method}\"]"
        )
    };
    let found = good(&route("POTS")).warnings.lines();
    let expected = "`methods` is no standard method: `POTS`; if `POST` is meant, write that";
    assert!(found.len() == 1 && found[0].contains(expected), "{found:?}");
    for known in ["POST", "PURGE", "PROPFIND", "MKCOL", "ACL"] {
        assert!(good(&route(known)).warnings.lines().is_empty(), "{known}");
    }
}
