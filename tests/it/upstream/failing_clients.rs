//! Requests that fail for what is in them: they cost the client that sends them, and no other.

use crate::support::certificates::Certificates;
use crate::support::http2_upstream::Http2Upstream;
use crate::support::nginx::Nginx;
use crate::support::tls_front::{FrontOptions, TlsFront};
use crate::support::upstream::ok;
use crate::support::{After, Client, Config, Upstream, Weir, get_with, wait_until};

const BREAKER: &str = "retries = 0\nbreaker = { failures = 20, window = \"1m\", open = \"1h\" }";
pub(super) const TRUSTED: &str = "[identity]\ntrusted_proxies = [\"127.0.0.1\"]";
/// How many clients make everybody.
pub(super) const SEVERAL: usize = 4;

/// A request of a client that a proxy names.
pub(super) fn of(client: &str, path: &str) -> String {
    get_with(path, &format!("X-Forwarded-For: {client}\r\n"))
}

/// A server that hangs up on one path, as one does that crashes over it, and answers others.
pub(super) fn fragile() -> Upstream {
    Upstream::scripted(|exchange| match exchange.request.target.as_str() {
        "/fatal" => After::Close,
        _ => {
            exchange.reply(ok("ok"));
            After::Keep
        }
    })
}

pub(super) fn breaker_is_open(weir: &Weir) -> bool {
    weir.metrics().value("weir_upstream_breaker_open", &[("upstream", "api")]) == Some(1.0)
}

/// nginx closes the connection: over HTTP/2 for a large field, and for what it is told not to answer.
#[test]
fn requests_that_nginx_ends_open_the_breaker_for_no_other_client() {
    let large = format!("X-Forwarded-For: 192.0.2.1\r\nX-Large: {}\r\n", "x".repeat(12_000));
    for (listen, http2, path, fields) in [
        ("http2", "http2 = true", "/", large.as_str()),
        ("http2", "http2 = true", "/unwanted", "X-Forwarded-For: 192.0.2.1\r\n"),
        ("", "http2 = false", "/unwanted", "X-Forwarded-For: 192.0.2.1\r\n"),
    ] {
        let locations = "location / { return 200 ok; } location /unwanted { return 444; }";
        let Some(nginx) = Nginx::start(listen, "", locations) else { return };
        let config = Config::to_servers(&[nginx.address()]).open().also(TRUSTED);
        let weir = Weir::start(&config.upstream(BREAKER).upstream(http2));
        for _ in 0..20 {
            assert_eq!(weir.ask(get_with(path, fields)).status, 502, "{listen} {path}");
        }
        assert!(breaker_is_open(&weir), "{listen} {path}");
        assert_eq!(weir.ask(get_with(path, fields)).status, 503, "{listen} {path}");
        assert_eq!(weir.ask(of("192.0.2.2", "/")).status, 200, "{listen} {path}");
        wait_until("an answer has closed it", || !breaker_is_open(&weir));
    }
}

#[test]
fn requests_of_several_clients_that_fail_open_the_breaker_for_all() {
    let upstream = fragile();
    let config = Config::to(&upstream).open().also(TRUSTED).upstream(BREAKER);
    let weir = Weir::start(&config);
    let mut client = weir.connect();
    let mut ask = |client_number: usize, path: &str| {
        client.ask(of(&format!("192.0.2.{client_number}"), path)).status
    };
    (0..20).for_each(|_| assert_eq!(ask(1, "/fatal"), 502));
    for number in 2..=SEVERAL {
        assert_eq!(ask(number, "/fatal"), 502, "the first of each is let through");
        assert_eq!(ask(number, "/"), 503, "and then no more");
    }
    assert_eq!(ask(SEVERAL + 1, "/"), 503);
    let few = "is open, for the one client whose requests failed: 20 requests in a row have failed";
    for text in [few, "the breaker of upstream `api` is now open for everybody"] {
        wait_until("that is logged", || weir.output().contains(text));
    }
}

#[test]
fn a_breaker_that_opens_again_and_again_is_logged_once_in_open() {
    let upstream = fragile();
    let config = Config::to(&upstream).open().also(TRUSTED).upstream(BREAKER);
    let weir = Weir::start(&config);
    let mut client = weir.connect();
    for _ in 0..3 {
        (0..20).for_each(|_| assert_eq!(client.ask(of("192.0.2.1", "/fatal")).status, 502));
        assert_eq!(client.ask(of("192.0.2.1", "/")).status, 503, "it is open");
        assert_eq!(client.ask(of("192.0.2.2", "/")).status, 200, "which closes it");
    }
    for text in ["the breaker of upstream `api` is open", "the breaker of upstream `api` is closed"]
    {
        let count = || weir.output().matches(text).count();
        wait_until("that is logged", || count() >= 1);
        assert_eq!(count(), 1, "{}", weir.output());
    }
}

#[test]
fn a_server_that_cannot_be_reached_opens_the_breaker_for_all() {
    let config = Config::to_servers(&[crate::support::ports::nobody()]).open().also(TRUSTED);
    let weir = Weir::start(&config.upstream(BREAKER));
    (0..20).for_each(|_| assert_eq!(weir.ask(of("192.0.2.1", "/")).status, 502));
    assert_eq!(weir.ask(of("192.0.2.2", "/")).status, 503);
}

#[test]
fn requests_that_fail_leave_servers_out_for_no_other_client() {
    let servers = [fragile(), fragile()];
    let addresses = servers.each_ref().map(Upstream::address);
    let lines = "balance = \"round_robin\"\nretries = 0\n\
                 ejection = { failures = 3, time = \"1h\", max_time = \"1h\" }";
    let weir = Weir::start(&Config::to_servers(&addresses).open().also(TRUSTED).upstream(lines));
    let mut client = weir.connect();
    let ejections = || weir.metrics().value("weir_upstream_ejections_total", &[]).unwrap();
    let fail = |client: &mut Client, name: &str| client.ask(of(name, "/fatal")).status;
    wait_until("a server is left out", || {
        assert_eq!(fail(&mut client, "192.0.2.1"), 502);
        ejections() == 1.0
    });
    let heads = || servers.each_ref().map(Upstream::heads);
    let before = heads();
    (0..10).for_each(|_| assert_eq!(fail(&mut client, "192.0.2.1"), 502));
    let turns = [heads()[0] - before[0], heads()[1] - before[1]];
    assert!(turns == [10, 0] || turns == [0, 10], "one is left out for it: {turns:?}");
    let before = heads();
    (0..10).for_each(|_| assert_eq!(client.ask(of("192.0.2.2", "/")).status, 200));
    assert_eq!(heads(), before.map(|it| it + 5), "and none for another");
}

/// It ends the handshake of a connection for HTTP/1.1, which a tunnel takes.
#[test]
fn tunnels_that_a_server_of_http2_alone_refuses_take_it_from_no_other_client() {
    let (certificates, upstream) = (Certificates::new(), Http2Upstream::start());
    let options = FrontOptions { alpn: &["h2"], ..FrontOptions::default() };
    let front = TlsFront::start(upstream.address(), &certificates, &options);
    let (url, ca) = (format!("https://{}", front.address()), certificates.path("ca.pem"));
    let lines = format!("servers = [\"{url}\"]\ntls = {{ ca = {ca:?} }}\nhttp2 = true\n{BREAKER}");
    let weir = Weir::start(&Config::echo().open().also(TRUSTED).upstream(&lines));
    let tunnel = "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.1\r\nUpgrade: websocket\r\n\
                  Connection: upgrade\r\n\r\n";
    (0..20).for_each(|_| assert_eq!(weir.ask(tunnel).status, 502));
    assert_eq!(weir.ask(tunnel).status, 503, "the breaker is open for this one");
    assert_eq!(weir.ask(of("192.0.2.2", "/")).status, 200);
    assert_eq!(weir.metrics().value("weir_upstream_ejections_total", &[]).unwrap_or(0.0), 0.0);
}
