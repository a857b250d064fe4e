//! What `weir check` says of listeners, upstreams, routes that answer themselves, and logs.

use super::listeners::{make, valid};
use super::secrets::Files;
use super::{good, with_route};
use crate::config::summary;

/// The rows below a heading, each with single blanks.
fn rows(text: &str, heading: &str) -> Vec<String> {
    let shown = summary(&good(text));
    let lines = shown.split("\n\n").find_map(|part| part.strip_prefix(&format!("{heading}\n")));
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    lines.unwrap_or_default().lines().map(words).collect()
}

#[test]
fn listeners_show_their_certificates_and_what_they_ask_of_clients() {
    let files = Files::new();
    let mut many = valid(-1, 100);
    let hosts = ["b", "c", "d", "e", "f"].map(|it| format!("{it}.example"));
    many.subject_alt_names = rcgen::CertificateParams::new(hosts).unwrap().subject_alt_names;
    make(&files, "many", &many);
    let lines = "[server]\nredirect_https = true\ndrain_delay = \"5s\"\ntakeover = \"weir.sock\"\n\
        listen = [\"0.0.0.0:80\", \"0.0.0.0:81\", { address = \"0.0.0.0:443\", tls = [{ cert = \
        \"F/server.pem\", key = \"F/server.key\", min_version = \"1.3\", client_ca = \"F/clients-ca.pem\" }, \
        { cert = \"F/many.pem\", key = \"F/many.key\" }] }]";
    let text = with_route(lines).replace("F/", &format!("{}/", files.folder()));
    let shown = rows(&text, "server").join("\n").replace(files.folder(), "F");
    let dates = shown.split("until ").skip(1).map(|it| it[..10].to_owned());
    let dates: Vec<String> = dates.collect();
    assert_eq!(
        shown,
        format!(
            "https://0.0.0.0:443 F/server.pem for localhost until {}; F/many.pem for b.example, \
             c.example, d.example, e.example and 1 more until {}; TLS 1.3 only; clients have \
             certificates of F/clients-ca.pem\nredirect_https to port 443 of the listener with TLS\n\
             drain after 5s, for up to 30s\ntakeover weir.sock",
            dates[0], dates[1]
        )
    );
    assert!(rows(&with_route(""), "server").is_empty(), "nothing is set");
    let port = with_route("[server]\nredirect_https = 8443");
    assert_eq!(rows(&port, "server"), ["redirect_https to port 8443"]);
}

#[test]
fn upstreams_show_how_their_servers_are_spoken_to_and_when_they_are_left_out() {
    let files = Files::new();
    let text = "[[routes]]\nname = \"r\"\npath = \"/*\"\nupstream = \"u\"\n[upstreams.u]\n\
        servers = [{ url = \"https://a:1\", weight = 3 }]\nhttp2 = true\nmax_connections = 10\n\
        tls = { ca = \"F/upstream-ca.pem\", server_name = \"api.internal\", cert = \"F/upstream.pem\", \
        key = \"F/upstream.key\" }\nhealth = { path = \"/healthz\" }\nbreaker = {}\n\
        ejection = { failures = 3 }\n";
    let text = text.replace("F/", &format!("{}/", files.folder()));
    assert_eq!(
        rows(&text, "upstreams"),
        ["u least_requests https://a:1 (weight 3) HTTP/2; verified by its own authorities; named \
          api.internal; with a client certificate; health /healthz every 5s; breaker after 20 \
          failures in 10s, open for 5s; ejection after 3 failures, for 1s to 30s, of up to \
          50 % of the servers and one at least; at \
          most 10 connections to a server, 1024 pending"]
    );
}

#[test]
fn one_connection_to_a_server_is_no_plural() {
    let text = "[[routes]]\nname = \"r\"\npath = \"/*\"\nupstream = \"u\"\n[upstreams.u]\n\
        servers = [\"http://a\"]\nmax_connections = 1\nretries = 5\nbreaker.failures = 1\n\
        ejection.failures = 1\n";
    let shown = rows(text, "upstreams").join("\n");
    for part in [
        "at most 1 connection to a server",
        "up to 5 retries",
        "breaker after 1 failure in",
        "ejection after 1 failure, for",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

#[test]
fn routes_show_where_their_requests_are_led() {
    let route = |name: &str, path: &str, keys: &str| {
        format!("[[routes]]\nname = \"{name}\"\npath = \"{path}\"\n{keys}\n")
    };
    let text = [
        route("a", "/a/{id}/*", "redirect.to = \"https://{host}/b/{id}/{*}?{query}\""),
        route("b", "/b", "respond = { status = 503, body = \"Back\\nat six.\" }"),
        route("c", "/c", "respond = { status = 204 }\nrewrite = \"/no/effect\""),
        route("d", "/d/*", "upstream = \"echo\"\nrewrite = \"/v2/{*}\""),
        route("e", "/e/*", "upstream = \"echo\"\nstrip_prefix = \"/e\""),
    ];
    assert_eq!(
        rows(&text.concat(), "routes"),
        [
            "a any host /a/{id}/* any method → redirect 308 to https://{host}/b/{id}/{*}?{query} no \
             limits",
            "b any host /b any method → respond 503 \"Back\\nat six.\" no limits",
            "c any host /c any method → respond 204 no limits",
            "d any host /d/* any method → echo no limits as /v2/{*}",
            "e any host /e/* any method → echo no limits without /e",
        ]
    );
}

#[test]
fn callers_show_whom_upstreams_are_told_of_and_sockets_that_are_trusted() {
    let keys = "[identity]\nuser = \"header:x-user\"\ntrusted_proxies = [\"unix:\", \"10.0.0.0/8\"]\n\
                forward = { user = \"x-user-id\", ip = \"x-real-ip\" }";
    assert_eq!(
        rows(&with_route(keys), "callers"),
        [
            "proxies unix:, 10.0.0.0/8",
            "user header:x-user",
            "forward user as x-user-id, ip as x-real-ip"
        ]
    );
}

#[test]
fn logs_and_traces_show_where_they_go() {
    let logs = |keys: &str| rows(&with_route(keys), "logs");
    assert!(logs("").is_empty(), "nothing is set");
    assert_eq!(
        logs(
            "[telemetry]\naccess_log = \"stdout\"\naccess_log_format = \"combined\"\n\
              audit_log = [\"stderr\", \"./audit.log\"]\nhash_keys = true"
        ),
        [
            "access_log stdout, combined",
            "audit_log stderr, ./audit.log",
            "hash_keys callers by a hash"
        ]
    );
    assert_eq!(
        logs(
            "[telemetry]\naudit_log = \"off\"\nrequest_id = \"any\"\n\
              traces = { enabled = true, accept = \"off\", sample = 0.125 }"
        ),
        [
            "audit_log off",
            "request_id of anybody",
            "traces of nobody go on, 12.5 % of others sampled"
        ]
    );
}

#[test]
fn whatever_bounds_requests_is_shown_where_it_is_not_as_usual() {
    let lines = "[server]\nmax_connections = 1000\nmax_connections_per_ip = 20\nmax_requests = 500\n\
        max_body = \"1MiB\"\nmin_body_rate = \"2KiB\"\nbody_grace = \"5s\"\nhttp2 = false\n\
        [identity]\ntrusted_proxies = [\"10.0.0.0/8\"]\naddress_header = \"x-real-ip\"";
    let text = with_route(lines).replacen(
        "upstream = \"echo\"",
        "upstream = \"echo\"\nencoded_slash = \"keep\"\nforward_path = \"as_received\"\n\
         max_body = \"5MiB\"\ntimeout = \"90s\"",
        1,
    );
    assert_eq!(
        rows(&text, "server"),
        [
            "max_connections 1000",
            "max_connections_per_ip 20",
            "max_requests 500",
            "max_body 1MiB",
            "min_body_rate 2KiB a second, after 5s",
            "http2 off"
        ]
    );
    assert_eq!(rows(&text, "callers"), ["proxies 10.0.0.0/8", "address_header x-real-ip"]);
    assert_eq!(
        rows(&text, "routes"),
        [
            "r any host /* any method → echo no limits with %2F; path as received; bodies up to 5MiB; \
          timeout 1m30s"
        ]
    );
    let upstream = |keys: &str| {
        let text = format!(
            "[[routes]]\nname = \"r\"\npath = \"/*\"\nupstream = \"u\"\n[upstreams.u]\n\
             servers = [\"http://a:1\"]\n{keys}"
        );
        rows(&text, "upstreams").concat()
    };
    assert_eq!(
        upstream("retries = 0\nmax_age = \"10m\""),
        "u least_requests http://a:1 no retries; connections up to 10m old"
    );
    let other = upstream("retries = 3\nmax_age = \"0s\"\nejection = { max_percent = 0 }");
    let expected =
        "u least_requests http://a:1 up to 3 retries; connections of any age; no ejection";
    assert_eq!(other, expected);
}
