//! Servers of an upstream that cannot be connected to, while another of its servers can: that is no
//! failure of the upstream, whoever asks.

use std::net::SocketAddr;

use super::failing_clients::{TRUSTED, fragile, of};
use crate::support::ports::nobody;
use crate::support::{Client, Config, Upstream, Weir, wait_until};

const BREAKER: &str = "breaker = { failures = 6, window = \"1m\", open = \"1h\" }";
/// Whoever has found out that a server is down has done so for all that follow.
const ONCE: &str = "retries = 0\nejection = { time = \"1h\", max_time = \"1h\" }";

fn start(servers: &[SocketAddr], lines: &str) -> Weir {
    let config = Config::to_servers(servers).open().also(TRUSTED);
    Weir::start(&config.upstream("balance = \"round_robin\"").upstream(lines))
}

/// Asks as that client.
fn ask(client: &mut Client, number: usize, path: &str) -> u16 {
    client.ask(of(&format!("192.0.2.{number}"), path)).status
}

#[test]
fn a_client_opens_the_breaker_for_no_other_while_some_servers_are_down() {
    let health = "health = { path = \"/\", interval = \"300ms\", timeout = \"300ms\" }";
    for (up, down, lines) in [
        (1, 1, ""),
        (1, 1, ONCE),
        (1, 1, "retries = 3"),
        (1, 1, health),
        (1, 1, "ejection = { failures = 0 }"),
        (1, 2, ""),
        (1, 2, ONCE),
        (2, 1, ""),
        (2, 1, ONCE),
        (2, 1, "retries = 2"),
    ] {
        let case = format!("{up} up, {down} down, {lines}");
        let good: Vec<Upstream> = (0..up).map(|_| fragile()).collect();
        let servers = good.iter().map(Upstream::address).chain((0..down).map(|_| nobody()));
        let weir = start(&servers.collect::<Vec<_>>(), &format!("{BREAKER}\n{lines}"));
        if lines == health {
            let is_unhealthy = || weir.output().contains("is unhealthy");
            wait_until("the probes know which is down", is_unhealthy);
        }
        let mut client = weir.connect();
        let answers: Vec<_> = (0..9).map(|_| ask(&mut client, 1, "/fatal")).collect();
        assert_eq!((answers[0], answers[8]), (502, 503), "{case}: {answers:?}");
        for other in 2..=7 {
            assert_eq!(ask(&mut client, other, "/"), 200, "{case}: {other}");
        }
        let few = "is open, for the one client whose requests failed: 6 requests";
        wait_until("that is logged", || weir.output().contains(few));
    }
}

#[test]
fn a_request_that_reaches_no_server_while_another_can_be_reached_opens_no_breaker() {
    let good = fragile();
    let breaker = "breaker = { failures = 1, window = \"1m\", open = \"1h\" }";
    let weir = start(&[nobody(), good.address()], &format!("{breaker}\n{ONCE}"));
    let mut client = weir.connect();
    let answers: Vec<_> = (0..4).map(|_| ask(&mut client, 1, "/")).collect();
    assert_eq!(answers.iter().filter(|it| **it == 502).count(), 1, "{answers:?}");
    assert_eq!(answers.iter().filter(|it| **it == 200).count(), 3, "{answers:?}");
}

#[test]
fn servers_that_are_all_down_open_the_breaker_for_all() {
    for (down, lines) in [(2, ""), (2, ONCE), (3, ""), (3, ONCE)] {
        let servers: Vec<_> = (0..down).map(|_| nobody()).collect();
        let weir = start(&servers, &format!("{BREAKER}\n{lines}"));
        let mut client = weir.connect();
        let answers: Vec<_> = (0..9).map(|_| ask(&mut client, 1, "/")).collect();
        assert_eq!((answers[5], answers[8]), (502, 503), "{down} {lines}: {answers:?}");
        assert_eq!(ask(&mut client, 2, "/"), 503, "{down} {lines}");
    }
}

/// A server that no request was ever sent to, since its probes fail, is no other that can be reached.
#[test]
fn a_server_that_only_probes_know_to_be_down_keeps_no_breaker_closed() {
    let good = fragile();
    let health = "health = { path = \"/\", interval = \"1h\", unhealthy = 1 }";
    let weir = start(&[good.address(), nobody()], &format!("{BREAKER}\n{ONCE}\n{health}"));
    wait_until("the probes know which is down", || weir.output().contains("is unhealthy"));
    let mut client = weir.connect();
    assert_eq!(ask(&mut client, 1, "/"), 200);
    drop(good);
    let answers: Vec<_> = (0..9).map(|_| ask(&mut client, 1, "/")).collect();
    assert_eq!(answers[8], 503, "{answers:?}");
    assert_eq!(ask(&mut client, 2, "/"), 503);
}
