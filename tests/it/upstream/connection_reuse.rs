//! Upstream connections that are used again, and what must not come with them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use crate::support::upstream::{Received, ok};
use crate::support::{After, Config, Exchange, PATIENCE, Upstream, Weir, get, post, wait_until};

/// One worker, so that every request finds the connections of those before it.
fn gateway(upstream: &Upstream, more: &str) -> Weir {
    Weir::start(&Config::to(upstream).open().server("workers = 1").upstream(more))
}

/// Whether the gateway has sent another request on the connection already.
fn is_used_again(exchange: &Exchange<'_>) -> bool {
    let stream = exchange.wire.stream();
    stream.set_nonblocking(true).unwrap();
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(false).unwrap();
    peeked.is_ok_and(|bytes| bytes > 0)
}

#[test]
fn stray_response_that_came_in_time_answers_no_pipelined_request() {
    // A while for the gateway to read what was sent.
    const MOMENT: Duration = Duration::from_millis(2);
    for writes in [1, 2] {
        // A request that was sent before the stray bytes came cannot be told from their cause.
        let overtaken = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&overtaken);
        let upstream = Upstream::scripted(move |exchange| {
            if exchange.request.target != "/api/extra" {
                exchange.reply(ok("fine"));
            } else if writes == 1 {
                exchange.reply([ok("first"), ok("poison")].concat());
            } else {
                exchange.reply(ok("first"));
                std::thread::sleep(MOMENT);
                exchange.wire.write(&ok("poison"));
                std::thread::sleep(MOMENT);
                count.fetch_add(usize::from(is_used_again(exchange)), Ordering::SeqCst);
            }
            After::Keep
        });
        let routes = "[[routes]]\nname = \"api\"\npath = \"/api/*\"\nupstream = \"api\"";
        let config = Config::to(&upstream).open().server("workers = 1").routes(routes);
        // Requests without a route keep the worker busy while the stray bytes arrive.
        let busy = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n".repeat(120);
        let rest: String = (1..7).map(|n| get(&format!("/api/{n}"))).collect();
        let mut poisoned = 0;
        let mut rounds = 0;
        // On a busy machine the gateway may be faster in all of them.
        while rounds < 10 || (overtaken.load(Ordering::SeqCst) == rounds && rounds < 100) {
            rounds += 1;
            // Its own for each round: one that was overtaken may spoil what follows.
            let weir = Weir::start(&config);
            let mut client = weir.connect();
            client.send([get("/api/extra"), busy.clone(), rest.clone()].concat());
            assert_eq!(client.response().text(), "first");
            (0..120).for_each(|_| assert_eq!(client.response().status, 404));
            let answers: Vec<_> = (0..6).map(|_| client.response().text()).collect();
            poisoned += usize::from(answers.iter().any(|answer| answer != "fine"));
        }
        let unavoidable = overtaken.load(Ordering::SeqCst);
        assert!(poisoned <= unavoidable, "{poisoned} times, of which {unavoidable} too late");
        assert!(unavoidable < rounds, "nothing was tried");
    }
}

/// An upstream that sends a stray response when a test wants it to.
struct StrayUpstream {
    upstream: Upstream,
    go: mpsc::Sender<()>,
    written: mpsc::Receiver<()>,
}

impl StrayUpstream {
    /// Requests that `first` has an answer to are followed by the stray one, all others are fine.
    fn start(
        first: impl Fn(&Received) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> StrayUpstream {
        let (go, wait) = mpsc::channel();
        let (done, written) = mpsc::channel();
        let wait = Mutex::new(wait);
        let upstream = Upstream::scripted(move |exchange| {
            let Some(first) = first(&exchange.request) else {
                exchange.reply(ok("fine"));
                return After::Keep;
            };
            exchange.reply(first);
            let _ = wait.lock().unwrap().recv_timeout(PATIENCE);
            exchange.wire.write(&ok("poison"));
            let _ = done.send(());
            After::Keep
        });
        StrayUpstream { upstream, go, written }
    }

    /// Has the stray response sent, and waits until it is.
    fn poison(&self) {
        self.go.send(()).unwrap();
        self.written.recv_timeout(PATIENCE).unwrap();
    }
}

#[test]
fn a_stray_answer_does_not_reach_another_client() {
    let stray = StrayUpstream::start(|request| (request.target == "/extra").then(|| ok("first")));
    let weir = gateway(&stray.upstream, "");
    for _ in 0..20 {
        assert_eq!(weir.get("/extra").text(), "first");
        stray.poison();
        let mut client = weir.connect();
        client.send(get("/").repeat(6));
        (0..6).for_each(|_| assert_eq!(client.response().text(), "fine"));
    }
}

const WARM: usize = 6;

/// Answers once `WARM` requests are there, so that each has a connection of its own. Once `dies`
/// is set, reads requests and closes without a response.
fn mortal(dies: &Arc<AtomicBool>) -> Upstream {
    let (dies, waiting) = (Arc::clone(dies), AtomicUsize::new(0));
    Upstream::scripted(move |exchange| {
        exchange.read_body();
        if dies.load(Ordering::SeqCst) {
            return After::Close;
        }
        waiting.fetch_add(1, Ordering::SeqCst);
        wait_until("all are there", || waiting.load(Ordering::SeqCst) % WARM == 0);
        exchange.reply(ok("ok"));
        After::Keep
    })
}

#[test]
fn stale_connections_do_not_multiply_a_request() {
    for retries in [0, 1] {
        // How often each is sent, on stale connections or fresh ones.
        let rows = [
            ("GET", 1 + retries),
            ("HEAD", 1 + retries),
            ("PUT", 1 + retries),
            ("DELETE", 1 + retries),
            ("POST", 1),
            ("PATCH", 1),
        ];
        for (method, times) in rows {
            let dies = Arc::new(AtomicBool::new(false));
            let upstream = mortal(&dies);
            let weir = gateway(&upstream, &format!("retries = {retries}"));
            let mut warm: Vec<_> = (0..WARM).map(|_| weir.connect()).collect();
            warm.iter_mut().for_each(|client| client.send(get("/warm")));
            warm.iter_mut().for_each(|client| assert_eq!(client.response().status, 200));
            assert_eq!(upstream.connections(), WARM);
            dies.store(true, Ordering::SeqCst);
            for body in ["", "Content-Length: 5\r\n\r\nhello"] {
                let target = format!("/{}", body.len());
                let end = if body.is_empty() { "\r\n" } else { body };
                let mut client = weir.connect();
                client.send(format!("{method} {target} HTTP/1.1\r\nHost: a\r\n{end}"));
                let response =
                    if method == "HEAD" { client.head_response() } else { client.response() };
                assert_eq!(response.status, 502, "{method} {target}");
                let sent = upstream.requests().iter().filter(|it| it.target == target).count();
                let times = if body.is_empty() { times } else { 1 };
                assert_eq!(sent, times, "{method}, {body:?}, {retries} retries");
            }
        }
    }
}

#[test]
fn a_connection_idle_for_too_long_is_not_used_again() {
    let upstream = Upstream::ok();
    let weir = gateway(&upstream, "keepalive_timeout = \"300ms\"");
    let mut used = BTreeSet::new();
    for _ in 0..3 {
        assert_eq!(weir.get("/").status, 200);
        assert!(used.insert(upstream.last().connection), "used again");
        // It is the passing of time itself that counts here.
        std::thread::sleep(Duration::from_millis(320));
    }
}

#[test]
fn answers_to_head_and_304_leave_their_connection_for_the_next() {
    let upstream = Upstream::replying(|request| match request.method.as_str() {
        "HEAD" if request.target == "/chunked" => {
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec()
        }
        "HEAD" => b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n".to_vec(),
        _ => b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nETag: \"x\"\r\n\r\n".to_vec(),
    });
    let weir = gateway(&upstream, "");
    let mut client = weir.connect();
    for _ in 0..100 {
        for target in ["/", "/chunked"] {
            client.send(get(target).replace("GET", "HEAD"));
            assert_eq!(client.head_response().status, 200);
        }
        assert_eq!(client.ask(get("/")).status, 304);
    }
    // Until the server was seen to keep silent, they serve HEAD alone.
    assert!(upstream.connections() <= 60, "{}", upstream.connections());
    let before = upstream.connections();
    for _ in 0..50 {
        client.send(get("/").replace("GET", "HEAD"));
        assert_eq!(client.head_response().status, 200);
        assert_eq!(client.ask(get("/")).status, 304);
    }
    assert_eq!(upstream.connections(), before);
}

/// A body that is no response, a moment after the head that it does not belong to.
#[test]
fn late_body_to_head_answers_no_other_request() {
    let upstream = Upstream::scripted(|exchange| {
        if exchange.request.method == "HEAD" {
            exchange.reply("HTTP/1.1 200 OK\r\nContent-Length: 23\r\n\r\n");
            // That the body is late is what is tested.
            std::thread::sleep(Duration::from_millis(5));
            exchange.wire.write(b"<html>\nnot asked\n</html>");
        } else {
            exchange.reply(ok("fine"));
        }
        After::Keep
    });
    let weir = gateway(&upstream, "");
    let mut client = weir.connect();
    for _ in 0..20 {
        client.send(get("/").replace("GET", "HEAD"));
        assert_eq!(client.head_response().status, 200);
        let answer = client.ask(get("/"));
        assert_eq!((answer.status, answer.text()), (200, "fine".to_owned()));
    }
}

#[test]
fn server_that_sends_a_body_to_head_is_detected() {
    let stray = StrayUpstream::start(|request| {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n";
        (request.method == "HEAD").then(|| head.into())
    });
    let upstream = &stray.upstream;
    let weir = gateway(upstream, "");
    let head = |client: &mut crate::support::Client| {
        client.send(get("/").replace("GET", "HEAD"));
        assert_eq!(client.head_response().status, 200);
    };
    let mut client = weir.connect();
    head(&mut client);
    stray.poison();
    assert_eq!(client.ask(get("/")).text(), "fine");
    assert_eq!(upstream.connections(), 2);
    // From now on its connections are not used again after HEAD, however late the body is.
    head(&mut client);
    assert_eq!(client.ask(get("/")).text(), "fine");
    let last = upstream.last().connection;
    let to_head = upstream.requests().iter().rfind(|it| it.method == "HEAD").unwrap().connection;
    assert_ne!(last, to_head);
    stray.go.send(()).unwrap();
}

#[test]
fn requests_lost_on_stale_connections_are_repeated_within_the_budget() {
    const ASKED: usize = 100;
    let upstream = Upstream::scripted(|exchange| {
        if exchange.request.target == "/lost" {
            return After::Close;
        }
        exchange.reply(ok("fine"));
        After::Keep
    });
    let weir = gateway(&upstream, "");
    let mut client = weir.connect();
    for _ in 0..ASKED {
        assert_eq!(client.ask(get("/")).status, 200);
        assert_eq!(client.ask(get("/lost")).status, 502);
    }
    let sent = upstream.requests().iter().filter(|it| it.target == "/lost").count();
    // Ten at once, and a fifth of all requests.
    let most = ASKED + 10 + 2 * ASKED / 5;
    assert!((ASKED + 10..=most).contains(&sent), "{sent} for {ASKED}");
}

#[test]
fn connections_closed_while_idle_fail_nothing_and_need_no_retries() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.reply(ok("fine"));
        After::Close
    });
    let weir = gateway(&upstream, "retries = 0");
    let mut client = weir.connect();
    for round in 0..50 {
        assert_eq!(client.ask(post("/", "hello")).status, 200, "round {round}");
        // Time for the close to arrive: what comes at the same instant cannot be told from a loss.
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn late_body_to_head_repeats_no_request_without_retries() {
    let upstream = Upstream::scripted(|exchange| {
        if exchange.request.method == "HEAD" {
            exchange.reply("HTTP/1.1 200 OK\r\nContent-Length: 23\r\n\r\n");
            return After::Keep;
        }
        exchange.reply("<html>\nnot asked\n</html>");
        After::Keep
    });
    let weir = gateway(&upstream, "retries = 0");
    let mut client = weir.connect();
    client.send(get("/").replace("GET", "HEAD"));
    assert_eq!(client.head_response().status, 200);
    // Past the time for which such a connection is watched.
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(client.ask(get("/once")).status, 502);
    assert_eq!(upstream.requests().iter().filter(|it| it.target == "/once").count(), 1);
}
