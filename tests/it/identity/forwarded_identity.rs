//! What upstreams are told of a caller, and that nobody else can tell them.

use crate::support::held_upstream::{SWITCH, UPGRADE};
use crate::support::{After, Config, Upstream, Weir, get_with};

const IDENTITY: &str = "[identity]\ntrusted_proxies = [\"127.0.0.0/8\"]\n\
    user = \"header:x-user-id\"\nclient = \"header:x-api-key\"\ntenant = \"query:tenant\"\n\
    plan = \"header:x-plan-of\"\n\
    forward = { user = \"x-user-id\", client = \"x-client-id\", tenant = \"x-tenant-id\", \
    plan = \"x-plan\", ip = \"x-caller\" }\n";

const NAMES: [&str; 5] = ["x-user-id", "x-client-id", "x-tenant-id", "x-plan", "x-caller"];

#[test]
fn upstreams_are_told_who_was_recognised_and_by_nobody_else() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&Config::to(&upstream).open().also(IDENTITY));
    let told = |target: &str, lines: &str| {
        assert_eq!(weir.ask(get_with(target, lines)).status, 200, "{target} {lines}");
        let seen = upstream.last();
        let look_alikes = seen.headers.iter().filter(|(name, _)| name.contains('_'));
        assert_eq!(look_alikes.count(), 0, "{}", seen.raw);
        NAMES.map(|name| match seen.all(name).as_slice() {
            [] => String::new(),
            [one] => (*one).to_owned(),
            _ => panic!("doubled: {}", seen.raw),
        })
    };
    assert_eq!(told("/", ""), ["", "", "", "", "127.0.0.1"]);
    // The header that the name is read from is the one that it goes on in.
    assert_eq!(
        told("/?tenant=a%20b", "X-User-Id: ann\r\nX-Api-Key: k1\r\nX-Plan-Of: pro\r\n"),
        ["ann", "k1", "a%20b", "pro", "127.0.0.1"]
    );
    // Claims of others, in any spelling, also of a trusted proxy.
    assert_eq!(
        told(
            "/",
            "X-Client-Id: root\r\nx_client_id: root\r\nX-Tenant_Id: t\r\nX-Plan: max\r\n\
             X-Caller: 9.9.9.9\r\nX-Forwarded-For: 203.0.113.5\r\nConnection: x-user-id\r\n"
        ),
        ["", "", "", "", "203.0.113.5"]
    );
    assert_eq!(told("/", "X-User-Id: a%b c\r\n")[0], "a%25b%20c");
    assert_eq!(weir.ask(get_with("/", "X-User-Id: a\r\nX-User-Id: b\r\n")).status, 400);
}

#[test]
fn identity_headers_are_sent_on_upgrades_retries_and_degraded_requests() {
    let upstream = Upstream::scripted(|exchange| {
        match exchange.request.target.as_str() {
            "/tunnel" => exchange.reply(SWITCH),
            // The first is closed unanswered, and sent again.
            _ if exchange.request.connection == 0 => {}
            _ => exchange.reply(crate::support::upstream::ok("ok")),
        }
        After::Close
    });
    let limit = "key = \"global\"\nrate = \"1/day\"\nburst = 1\nstrategy = \"degrade\"";
    let weir = Weir::start(&Config::to(&upstream).limit(limit).also(IDENTITY));
    for _ in 0..2 {
        assert_eq!(weir.ask(get_with("/", "X-User-Id: ann\r\n")).status, 200);
    }
    let seen = upstream.requests();
    assert_eq!(seen.len(), 3, "one was sent again");
    assert!(seen.iter().all(|request| request.one("x-user-id") == "ann"));
    assert!(seen[2].has("x-weir-degraded"));
    let mut client = weir.connect();
    client.send(UPGRADE.replace("\r\n\r\n", "\r\nX-User-Id: ann\r\nX-Plan: max\r\n\r\n"));
    assert_eq!(client.response().status, 101);
    let seen = upstream.last();
    assert_eq!((seen.one("x-user-id"), seen.has("x-plan")), ("ann", false));
}

#[test]
fn upstreams_see_the_caller_that_another_header_names() {
    let upstream = Upstream::ok();
    let identity =
        "[identity]\ntrusted_proxies = [\"127.0.0.0/8\"]\naddress_header = \"x-edge-ip\"";
    let weir = Weir::start(&Config::to(&upstream).open().also(identity));
    for (lines, listed, forwarded) in [
        ("", "127.0.0.1", "for=127.0.0.1;"),
        ("X-Edge-IP: 203.0.113.5\r\n", "203.0.113.5, 127.0.0.1", "for=203.0.113.5, for=127.0.0.1;"),
        (
            "X-Edge-IP: 2001:db8::1\r\nX-Forwarded-For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\n",
            "2001:db8::1, 127.0.0.1",
            "for=\"[2001:db8::1]\", for=127.0.0.1;",
        ),
        ("X-Edge-IP: nonsense\r\nX-Forwarded-For: 6.6.6.6\r\n", "127.0.0.1", "for=127.0.0.1;"),
    ] {
        assert_eq!(weir.ask(get_with("/", lines)).status, 200);
        let seen = upstream.last();
        assert_eq!(seen.one("x-forwarded-for"), listed, "{lines}");
        assert!(seen.one("forwarded").starts_with(forwarded), "{}", seen.raw);
    }
}
