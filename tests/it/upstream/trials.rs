//! Who finds out whether an upstream, or a server that is left out, is well again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::ejection::ejections;
use super::failing_clients::{SEVERAL, TRUSTED, fragile, of};
use crate::support::upstream::ok;
use crate::support::{After, Client, Config, Upstream, Weir, wait_until};

/// Longer than a busy machine takes from an outage to the look at it.
const LONG_OUT: &str = "6s";

fn breaker(failures: usize, open: &str) -> String {
    format!(
        "retries = 0\nbreaker = {{ failures = {failures}, window = \"1m\", open = \"{open}\" }}"
    )
}

fn config(servers: &[SocketAddr], lines: &str) -> Config {
    Config::to_servers(servers).open().also(TRUSTED).upstream(lines)
}

/// Asks as that client.
fn ask(client: &mut Client, number: usize, path: &str) -> u16 {
    client.ask(of(&format!("192.0.2.{number}"), path)).status
}

#[test]
fn a_client_that_fails_the_trial_of_a_breaker_leaves_the_next_to_others_at_once() {
    let upstream = fragile();
    let weir = Weir::start(&config(&[upstream.address()], &breaker(SEVERAL, LONG_OUT)));
    let mut client = weir.connect();
    for number in 1..=SEVERAL {
        assert_eq!(ask(&mut client, number, "/fatal"), 502);
    }
    assert_eq!(ask(&mut client, 9, "/"), 503, "it is open for everybody");
    wait_until("one client has the trial", || ask(&mut client, 1, "/fatal") == 502);
    assert_eq!(ask(&mut client, 1, "/fatal"), 503, "that one has no other");
    assert_eq!(ask(&mut client, 9, "/"), 200);
    assert_eq!(ask(&mut client, 8, "/"), 200, "it is closed");
}

#[test]
fn a_breaker_that_is_open_for_two_gives_a_trial_to_each() {
    let upstream = fragile();
    let weir = Weir::start(&config(&[upstream.address()], &breaker(4, LONG_OUT)));
    let mut client = weir.connect();
    for number in [2, 1, 1, 1] {
        assert_eq!(ask(&mut client, number, "/fatal"), 502);
    }
    assert_eq!(ask(&mut client, 2, "/"), 503);
    wait_until("one of them has the trial", || ask(&mut client, 1, "/fatal") == 502);
    assert_eq!(ask(&mut client, 2, "/"), 200);
}

#[test]
fn a_client_that_fails_the_trial_of_a_server_leaves_the_next_to_others_at_once() {
    let (bad, good) = (fragile(), Upstream::ok());
    let lines = format!(
        "balance = \"round_robin\"\nretries = 0\n\
         ejection = {{ failures = 1, time = \"{LONG_OUT}\", max_time = \"1m\" }}"
    );
    let weir = Weir::start(&config(&[bad.address(), good.address()], &lines));
    let mut client = weir.connect();
    for number in 1..=SEVERAL {
        wait_until("the server has failed", || ask(&mut client, number, "/fatal") == 502);
    }
    let before = bad.heads();
    (0..4).for_each(|_| assert_eq!(ask(&mut client, 9, "/"), 200));
    assert_eq!(bad.heads(), before, "it is left out for everybody");
    wait_until("one client has the trial", || ask(&mut client, 1, "/fatal") == 502);
    let before = bad.heads();
    (0..2).for_each(|_| assert_eq!(ask(&mut client, 9, "/"), 200));
    assert_eq!(bad.heads(), before + 1, "the other's answer brings it back");
}

#[test]
fn the_trial_of_a_breaker_goes_to_a_server_that_is_not_left_out() {
    let broken = Arc::new(AtomicBool::new(false));
    let is_broken = broken.clone();
    let upstream = Upstream::scripted(move |exchange| {
        if is_broken.load(Ordering::SeqCst) {
            return After::Close;
        }
        exchange.reply(ok("ok"));
        After::Keep
    });
    // Three of four, so that a trial that goes anywhere is hardly ever answered.
    let nobody = crate::support::ports::nobody;
    let servers = [nobody(), nobody(), nobody(), upstream.address()];
    let ejection = "balance = \"random\"\n\
                    ejection = { failures = 0, time = \"10ms\", max_time = \"10ms\" }";
    // Long enough for the server to be well again before the first trial, also on a busy machine.
    let lines = format!("{}\n{ejection}", breaker(8, "3s"));
    let weir = Weir::start(&config(&servers, &lines).server("workers = 1"));
    let mut client = weir.connect();
    wait_until("the others are left out", || {
        ask(&mut client, 1, "/");
        weir.metrics().value("weir_upstream_ejections_total", &[]) == Some(3.0)
    });
    // It may have opened, and had trials of both kinds.
    wait_until("the breaker is closed", || ask(&mut client, 1, "/") == 200);
    for round in 0..3 {
        broken.store(true, Ordering::SeqCst);
        wait_until("the breaker is open", || ask(&mut client, 1, "/") == 503);
        broken.store(false, Ordering::SeqCst);
        let mut trial = 503;
        wait_until("there is a trial", || {
            trial = ask(&mut client, 1, "/");
            trial != 503
        });
        assert_eq!(trial, 200, "{round}");
    }
}

#[test]
fn the_next_trial_of_a_breaker_finds_a_server_that_is_left_out_and_well() {
    let is_broken = Arc::new([true, true].map(AtomicBool::new));
    let server = |at: usize| {
        let is_broken = is_broken.clone();
        Upstream::scripted(move |exchange| {
            if is_broken[at].load(Ordering::SeqCst) {
                return After::Close;
            }
            exchange.reply(ok("ok"));
            After::Keep
        })
    };
    let upstreams = [server(0), server(1)];
    let ejection = "ejection = { failures = 1, time = \"10ms\", max_time = \"10ms\" }";
    let lines = format!("{}\n{ejection}", breaker(4, "300ms"));
    let servers = upstreams.each_ref().map(Upstream::address);
    let weir = Weir::start(&config(&servers, &lines).server("workers = 1"));
    let mut client = weir.connect();
    wait_until("the breaker is open", || ask(&mut client, 1, "/") == 503);
    let left_out = upstreams.iter().position(|it| ejections(&weir, it) > 0.0).unwrap();
    is_broken[left_out].store(false, Ordering::SeqCst);
    let before = upstreams.each_ref().map(Upstream::heads);
    wait_until("it is closed", || ask(&mut client, 1, "/") == 200);
    let trials: Vec<_> =
        upstreams.iter().zip(before).map(|(it, before)| it.heads() - before).collect();
    assert!(trials[1 - left_out] <= 1, "{trials:?}");
}

#[test]
fn a_server_is_back_when_a_reload_turns_ejection_off() {
    let (bad, good) = (fragile(), Upstream::ok());
    let lines = |failures: u32| {
        format!(
            "balance = \"round_robin\"\nretries = 0\n\
             ejection = {{ failures = {failures}, time = \"1h\", max_time = \"1h\" }}"
        )
    };
    let servers = [bad.address(), good.address()];
    let weir = Weir::start(&config(&servers, &lines(1)));
    let mut client = weir.connect();
    wait_until("it has failed", || ask(&mut client, 1, "/fatal") == 502);
    let before = bad.heads();
    (0..4).for_each(|_| assert_eq!(ask(&mut client, 1, "/"), 200));
    assert_eq!(bad.heads(), before, "it is left out");
    weir.reload(&config(&servers, &lines(0)));
    wait_until("it is asked again", || {
        assert_eq!(ask(&mut client, 1, "/"), 200);
        bad.heads() > before
    });
}
