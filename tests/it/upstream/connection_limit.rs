//! `max_connections` and `max_pending` of a server.
//!
//! What they promise holds for both versions of HTTP. Over HTTP/2 the server allows one stream a
//! connection, so that requests need as many connections as over HTTP/1.1.

use std::thread;
use std::time::Duration;

use crate::support::http2_upstream::{Http2Options, Http2Upstream};
use crate::support::{Config, HeldUpstream, Upstream, Weir, get, wait_until};

/// A server that holds requests until they are released.
enum Server {
    Http1(HeldUpstream),
    Http2(Http2Upstream),
}

impl Server {
    /// One of each version.
    fn both() -> [Server; 2] {
        let options = Http2Options { max_streams: Some(1), ..Http2Options::default() };
        [Server::Http1(HeldUpstream::start()), Server::Http2(Http2Upstream::with(options))]
    }

    fn config(&self, lines: &str) -> Config {
        match self {
            Server::Http1(held) => held.config().open().upstream(lines),
            Server::Http2(held) => {
                let config = Config::to_servers(&[held.address()]).open();
                config.upstream("http2 = true").upstream(lines)
            }
        }
    }

    fn held_count(&self) -> usize {
        match self {
            Server::Http1(held) => held.held_count(),
            Server::Http2(held) => held.open(),
        }
    }

    /// The most that were ever under way.
    fn most_at_once(&self) -> usize {
        match self {
            Server::Http1(held) => held.most_at_once(),
            Server::Http2(held) => held.most_open(),
        }
    }

    fn connections(&self) -> usize {
        match self {
            Server::Http1(held) => held.upstream.connections(),
            Server::Http2(held) => held.connections(),
        }
    }

    fn open_connections(&self) -> usize {
        match self {
            Server::Http1(held) => held.upstream.open_connections(),
            Server::Http2(held) => held.open_connections(),
        }
    }

    /// The paths of all requests that have come.
    fn targets(&self) -> Vec<String> {
        match self {
            Server::Http1(held) => {
                held.upstream.requests().into_iter().map(|it| it.target).collect()
            }
            Server::Http2(held) => {
                held.requests().iter().map(|it| it.uri.path().to_owned()).collect()
            }
        }
    }

    /// Waits until so many requests have come, and so many of them are held: one that has come is not
    /// released as long as it is not held.
    #[track_caller]
    fn wait_until_held(&self, what: &str, come: usize, held: usize) {
        wait_until(what, || self.targets().len() == come && self.held_count() == held);
    }

    /// Answers those that are held now: of this path, or over HTTP/2 all.
    fn release(&self, target: &str) {
        match self {
            Server::Http1(held) => held.release(target),
            Server::Http2(held) => held.release(),
        }
    }
}

fn pending(weir: &Weir) -> f64 {
    weir.metrics().value("weir_upstream_pending", &[("upstream", "api")]).unwrap()
}

/// No test waits for as long as requests may.
const PATIENT: &str = "connect_timeout = \"60s\"";

#[test]
fn a_server_never_has_more_connections_than_it_may_and_nobody_is_left_waiting() {
    for server in Server::both() {
        let weir = Weir::start(&server.config("max_connections = 3").upstream(PATIENT));
        // Over both workers.
        let mut clients: Vec<_> = (0..12).map(|_| weir.connect()).collect();
        clients.iter_mut().for_each(|client| client.send(get("/held")));
        wait_until("three are held and the rest waits", || {
            server.held_count() == 3 && pending(&weir) == 9.0
        });
        for round in 1..=4 {
            server.release("/held");
            let come = (3 * (round + 1)).min(12);
            server.wait_until_held("the next are held", come, come - 3 * round);
        }
        assert!(clients.iter_mut().all(|client| client.response().status == 200));
        assert_eq!(server.most_at_once(), 3);
        assert_eq!(pending(&weir), 0.0);
        // Many more, without holding: connections are handed on.
        for _ in 0..10 {
            clients.iter_mut().for_each(|client| client.send(get("/slow")));
            assert!(clients.iter_mut().all(|client| client.response().status == 200));
        }
        assert_eq!(server.most_at_once(), 3);
    }
}

#[test]
fn requests_of_a_worker_wait_in_the_order_in_which_they_came() {
    for server in Server::both() {
        let config = server.config("max_connections = 1").upstream(PATIENT).server("workers = 1");
        let weir = Weir::start(&config);
        let mut clients = Vec::new();
        for number in 0..5 {
            let mut client = weir.connect();
            client.send(get(&format!("/held/{number}")));
            wait_until("it waits", || {
                server.held_count() == 1 && pending(&weir) == f64::from(number)
            });
            clients.push(client);
            // The first have then waited for so long that they have asked other workers again.
            thread::sleep(Duration::from_millis(40));
        }
        for (number, client) in clients.iter_mut().enumerate() {
            let target = format!("/held/{number}");
            wait_until("it is its turn", || {
                server.targets().last() == Some(&target) && server.held_count() == 1
            });
            server.release(&target);
            assert_eq!(client.response().status, 200);
        }
        assert_eq!(server.targets().len(), 5);
        assert_eq!(server.connections(), 1, "one connection was handed on");
    }
}

#[test]
fn requests_beyond_those_that_may_wait_are_refused_at_once_and_who_leaves_makes_room() {
    for (server, workers) in Server::both().into_iter().zip([2, 1]) {
        let config = server.config("max_connections = 1\nmax_pending = 1").upstream(PATIENT);
        let weir = Weir::start(&config.server(&format!("workers = {workers}")));
        let (mut first, mut second, mut third) = (weir.connect(), weir.connect(), weir.connect());
        first.send(get("/held"));
        wait_until("one is held", || server.held_count() == 1);
        second.send(get("/held/second"));
        wait_until("one waits", || pending(&weir) == 1.0);
        let refused = third.ask(get("/third"));
        assert_eq!((refused.status, refused.error()), (503, "overloaded".into()));
        assert_eq!(refused.one("retry-after"), "1");

        drop(second);
        wait_until("its place is free", || pending(&weir) == 0.0);
        third.send(get("/held/third"));
        wait_until("another waits", || pending(&weir) == 1.0);
        server.release("/held");
        server.wait_until_held("it is its turn", 2, 1);
        server.release("/held/third");
        assert_eq!((first.response().status, third.response().status), (200, 200));
        assert_eq!(server.targets(), ["/held", "/held/third"]);
    }
}

#[test]
fn a_request_waits_no_longer_than_for_a_connection() {
    for server in Server::both() {
        let lines = "max_connections = 1\nconnect_timeout = \"100ms\"";
        // On one worker over HTTP/2 the third waits for a connection that the second is to make.
        let weir = Weir::start(&server.config(lines).server("workers = 1"));
        let (mut first, mut second, mut third) = (weir.connect(), weir.connect(), weir.connect());
        first.send(get("/held"));
        wait_until("one is held", || server.held_count() == 1);
        second.send(get("/"));
        third.send(get("/"));
        for refused in [second.response(), third.response()] {
            assert_eq!((refused.status, refused.error()), (503, "overloaded".into()));
        }
        server.release("/held");
        assert_eq!(first.response().status, 200);
    }
}

/// A connection on which a body could still come, after the response to HEAD, serves no other request for
/// a moment.
#[test]
fn a_request_waits_only_for_a_moment_for_connections_that_served_head() {
    let upstream = Upstream::replying(|request| {
        let body = if request.method == "HEAD" { "" } else { "hello" };
        format!("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{body}").into_bytes()
    });
    let config = Config::to_servers(&[upstream.address()]).open();
    let config = config.upstream("max_connections = 2\nconnect_timeout = \"2s\"");
    let weir = Weir::start(&config.server("workers = 1"));
    let mut clients = [(); 5].map(|()| weir.connect());
    let (heads, gets) = clients.split_at_mut(2);
    heads.iter_mut().for_each(|client| client.send(get("/").replace("GET", "HEAD")));
    assert!(heads.iter_mut().all(|client| client.head_response().status == 200));
    gets.iter_mut().for_each(|client| client.send(get("/")));
    assert!(gets.iter_mut().all(|client| client.response().status == 200));
    assert!(upstream.connections() <= 2);
}

#[test]
fn an_idle_connection_of_one_worker_is_no_hindrance_to_another() {
    for server in Server::both() {
        let weir = Weir::start(&server.config("max_connections = 1"));
        // Connections are dealt to the worker that has the fewest.
        let (mut one, mut other) = (weir.connect(), weir.connect());
        for _ in 0..5 {
            assert_eq!((one.ask(get("/")).status, other.ask(get("/")).status), (200, 200));
        }
        assert!(server.connections() >= 2, "the first was closed for the second");
    }
}

#[test]
fn a_reload_changes_how_many_connections_there_may_be() {
    for server in Server::both() {
        let config = |lines: &str| server.config(lines).upstream(PATIENT);
        let weir = Weir::start(&config("max_connections = 1"));
        let mut clients: Vec<_> = (0..4).map(|_| weir.connect()).collect();
        clients.iter_mut().for_each(|client| client.send(get("/held")));
        wait_until("one is held", || server.held_count() == 1 && pending(&weir) == 3.0);
        weir.reload(&config("max_connections = 3"));
        wait_until("three are held", || server.held_count() == 3);
        server.release("/held");
        server.wait_until_held("the last is held", 4, 1);
        server.release("/held");
        assert!(clients.iter_mut().all(|client| client.response().status == 200));
    }
}

#[test]
fn a_reload_that_lowers_how_many_connections_there_may_be_closes_idle_ones() {
    for server in Server::both() {
        let config = |lines: &str| server.config(lines).upstream(PATIENT);
        let weir = Weir::start(&config("max_connections = 4"));
        // Over both workers.
        let mut clients: Vec<_> = (0..6).map(|_| weir.connect()).collect();
        let (busy, more) = clients.split_at_mut(4);
        busy.iter_mut().for_each(|client| client.send(get("/held")));
        wait_until("four are held", || server.held_count() == 4);
        server.release("/held");
        assert!(busy.iter_mut().all(|client| client.response().status == 200));
        assert_eq!(server.open_connections(), 4);
        weir.reload(&config("max_connections = 2"));
        wait_until("two are closed", || server.open_connections() == 2);
        busy.iter_mut().chain(&mut *more).for_each(|client| client.send(get("/held")));
        wait_until("two are held and the rest waits", || {
            server.held_count() == 2 && pending(&weir) == 4.0
        });
        for come in [6, 8, 10] {
            server.wait_until_held("the next are held", come, 2);
            server.release("/held");
        }
        assert!(clients.iter_mut().all(|client| client.response().status == 200));
    }
}

/// Whichever worker hears of the reload first: each one has those in use once.
#[test]
fn a_reload_that_lowers_how_many_connections_there_may_be_spares_those_in_use_for_idle_ones() {
    for busy_worker in [0, 1] {
        for server in Server::both() {
            let config = |lines: &str| server.config(lines).upstream(PATIENT);
            let weir = Weir::start(&config("max_connections = 4"));
            // Dealt to the two workers by turns.
            let mut clients: Vec<_> = (0..4).map(|_| weir.connect()).collect();
            clients.iter_mut().for_each(|client| client.send(get("/held")));
            wait_until("each has a connection", || server.held_count() == 4);
            server.release("/held");
            assert!(clients.iter_mut().all(|client| client.response().status == 200));
            let mut busy: Vec<_> = clients.iter_mut().skip(busy_worker).step_by(2).collect();
            busy.iter_mut().for_each(|client| client.send(get("/held")));
            server.wait_until_held("those of one worker are in use", 6, 2);
            weir.reload(&config("max_connections = 2"));
            wait_until("the idle ones are closed", || server.open_connections() == 2);
            assert_eq!(server.held_count(), 2);
            server.release("/held");
            assert!(busy.iter_mut().all(|client| client.response().status == 200));
            busy.iter_mut().for_each(|client| client.send(get("/held")));
            server.wait_until_held("those in use are kept", 8, 2);
            assert_eq!((server.connections(), server.open_connections()), (4, 2));
            server.release("/held");
            assert!(busy.iter_mut().all(|client| client.response().status == 200));
        }
    }
}

#[test]
fn a_reload_that_lowers_how_many_connections_there_may_be_closes_those_in_use_as_their_requests_end()
 {
    for server in Server::both() {
        let config = |lines: &str| server.config(lines).upstream(PATIENT);
        let weir = Weir::start(&config("max_connections = 4"));
        let mut clients: Vec<_> = (0..8).map(|_| weir.connect()).collect();
        let (busy, more) = clients.split_at_mut(4);
        busy.iter_mut().for_each(|client| client.send(get("/held")));
        wait_until("four are held", || server.held_count() == 4);
        more.iter_mut().for_each(|client| client.send(get("/held/more")));
        wait_until("the rest waits", || pending(&weir) == 4.0);
        weir.reload(&config("max_connections = 1"));
        assert_eq!(server.held_count(), 4, "none ends early");
        server.release("/held");
        for come in 5..=8 {
            server.wait_until_held("one more is held", come, 1);
            wait_until("on the only connection", || server.open_connections() == 1);
            wait_until("the rest waits", || pending(&weir) == (8 - come) as f64);
            server.release("/held/more");
        }
        assert!(clients.iter_mut().all(|client| client.response().status == 200));
        weir.reload(&config("max_connections = 3"));
        let (first, _) = clients.split_at_mut(3);
        first.iter_mut().for_each(|client| client.send(get("/held")));
        wait_until("as many are held as may be now", || server.held_count() == 3);
        server.release("/held");
        assert!(first.iter_mut().all(|client| client.response().status == 200));
    }
}

#[test]
fn connections_of_a_server_that_comes_back_still_count() {
    for server in Server::both() {
        let other = HeldUpstream::start();
        let gone = other.config().open();
        let config = server.config("max_connections = 1").upstream(PATIENT);
        let weir = Weir::start(&config);
        let (mut first, mut second) = (weir.connect(), weir.connect());
        first.send(get("/held"));
        wait_until("one is held", || server.held_count() == 1);
        weir.reload(&gone);
        weir.reload(&config);
        second.send(get("/held"));
        wait_until("one waits", || pending(&weir) == 1.0);
        assert_eq!(server.connections(), 1);
        server.release("/held");
        server.wait_until_held("it is its turn", 2, 1);
        server.release("/held");
        assert_eq!((first.response().status, second.response().status), (200, 200));
    }
}
