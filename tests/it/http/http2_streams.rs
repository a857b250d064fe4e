//! Streams of one connection: each is a request of its own, with its own place, slots and charges.

use crate::support::frames::{
    self, CANCEL, DATA, END_HEADERS, END_STREAM, FrameClient, HEADERS, WINDOW_UPDATE, block,
    request,
};
use crate::support::{Config, HeldUpstream, Upstream, Weir, upstream, wait_until};

const HOURLY: &str = "key = \"ip\"\nrate = \"1/hour\"\n";

/// The frames of so many requests, each on a stream of its own.
fn whole_requests(client: &mut FrameClient, count: usize) -> Vec<u8> {
    let get = block(&request("GET", "/"));
    let frame = |_| frames::frame(HEADERS, END_HEADERS | END_STREAM, client.next_id(), &get);
    (0..count).flat_map(frame).collect()
}

#[test]
fn exactly_the_burst_passes_over_the_streams_of_one_connection() {
    let weir = Weir::start(&Config::echo().limit(&format!("{HOURLY}burst = 40")));
    for _ in 0..10 {
        assert_eq!(weir.get("/").status, 200);
    }
    let mut client = FrameClient::connect(weir.address());
    let streams: Vec<_> = (0..60).map(|_| client.get("/")).collect();
    let statuses: Vec<_> = streams.into_iter().map(|stream| client.status(stream)).collect();
    let count = |status: u16| statuses.iter().filter(|it| **it == status).count();
    assert_eq!((count(200), count(429)), (30, 30), "{statuses:?}");
    assert_eq!(weir.get("/").status, 429);
}

#[test]
fn stream_that_is_reset_at_once_was_charged() {
    const STREAMS: usize = 50;
    let weir = Weir::start(&Config::echo().limit(&format!("{HOURLY}burst = 100")));
    let mut client = FrameClient::connect(weir.address());
    // All in one write: the codec has read the reset before anything is done about the request.
    let (mut wire, get) = (Vec::new(), block(&request("GET", "/")));
    for _ in 0..STREAMS {
        let id = client.next_id();
        wire.extend(frames::frame(HEADERS, END_HEADERS | END_STREAM, id, &get));
        wire.extend(frames::frame(frames::RST_STREAM, 0, id, &CANCEL.to_be_bytes()));
    }
    client.wire.write(&wire);
    let stream = client.get("/");
    assert_eq!(client.status(stream), 200);
    let remaining = weir.get("/").one("x-ratelimit-remaining").to_owned();
    assert_eq!(remaining, (100 - STREAMS - 2).to_string());
}

#[test]
fn stream_was_charged_though_its_connection_ends_at_once() {
    let weir = Weir::start(&Config::echo().limit(&format!("{HOURLY}burst = 100")));
    let mut client = FrameClient::connect(weir.address());
    let wire = whole_requests(&mut client, 20);
    client.wire.write(&wire);
    client.wire.finish_writing();
    assert!(client.ends());
    assert_eq!(weir.get("/").one("x-ratelimit-remaining"), "79");
}

#[test]
fn streams_were_charged_though_an_error_of_the_connection_follows() {
    let increment = |by: u32| frames::frame(WINDOW_UPDATE, 0, 0, &by.to_be_bytes());
    for error in [
        increment(0),
        increment((1 << 31) - 1).repeat(2),
        frames::frame(frames::PING, 0, 0, b"short"),
        frames::frame(frames::SETTINGS, 0, 0, &[0, 4, 0xff, 0xff, 0xff, 0xff]),
        frames::frame(DATA, 0, 99, b"x"),
        frames::frame(HEADERS, END_HEADERS | END_STREAM, 2, &block(&request("GET", "/"))),
        frames::frame(frames::CONTINUATION, END_HEADERS, 1, b""),
    ] {
        let weir = Weir::start(&Config::echo().limit(&format!("{HOURLY}burst = 100")));
        let mut client = FrameClient::connect(weir.address());
        let mut wire = whole_requests(&mut client, 20);
        wire.extend_from_slice(&error);
        client.wire.write(&wire);
        assert!(client.ends(), "{error:?}");
        assert_eq!(weir.get("/").one("x-ratelimit-remaining"), "79", "{error:?}");
    }
}

#[test]
fn stream_that_waits_in_a_queue_gives_up_its_place_when_it_is_reset() {
    let limit = "key = \"ip\"\nrate = \"1/second\"\nburst = 1\nstrategy = \"queue\"\n\
                 max_wait = \"1m\"\nmax_queue = 2";
    let weir = Weir::start(&Config::echo().limit(limit));
    let depth = || weir.metrics().value("weir_queue_depth", &[("limit", "per-ip")]).unwrap_or(0.0);
    let mut client = FrameClient::connect(weir.address());
    let first = client.get("/");
    assert_eq!(client.status(first), 200);
    let waiting = [client.get("/"), client.get("/")];
    wait_until("both wait", || depth() == 2.0);
    let full = client.get("/");
    assert_eq!(client.status(full), 429);
    client.reset(waiting[1], CANCEL);
    wait_until("one has left", || depth() <= 1.0);
    let another = client.get("/");
    assert_eq!(client.status(waiting[0]), 200);
    assert_eq!(client.status(another), 200);
}

#[test]
fn slots_are_held_and_freed_by_streams() {
    let held = HeldUpstream::start();
    let limit = "key = \"ip\"\nalgorithm = \"concurrency\"\nlimit = 2";
    let weir = Weir::start(&Config::to(&held.upstream).limit(limit));
    let mut client = FrameClient::connect(weir.address());
    let first = client.get("/held/1");
    let second = client.get("/held/2");
    wait_until("both are held", || held.upstream.heads() == 2);
    let third = client.get("/");
    assert_eq!(client.status(third), 429);
    client.reset(second, CANCEL);
    wait_until("the slot is free", || {
        let again = client.get("/");
        client.status(again) == 200
    });
    held.release("/held/1");
    assert_eq!(client.status(first), 200);
}

#[test]
fn body_that_is_cut_off_by_a_reset_is_no_whole_request() {
    // NO_ERROR, CANCEL
    for code in [0, 8] {
        let upstream = Upstream::ok();
        let weir = Weir::start(&Config::to(&upstream).open());
        let mut client = FrameClient::connect(weir.address());
        let stream = client.open(&block(&request("POST", "/upload")), 0);
        client.send(DATA, 0, stream, b"the beginning");
        wait_until("the upstream has the head", || upstream.heads() == 1);
        client.reset(stream, code);
        let next = client.get("/next");
        assert_eq!(client.status(next), 200);
        let whole = upstream.requests().into_iter().filter(|it| it.complete);
        let whole: Vec<_> = whole.map(|it| it.target).collect();
        assert_eq!(whole, ["/next"], "{code}");
    }
}

#[test]
fn client_that_does_not_read_holds_up_its_own_stream_only() {
    let body = "x".repeat(4_000_000);
    let upstream = Upstream::replying(move |request| match request.target.as_str() {
        "/large" => upstream::ok(&body),
        _ => upstream::ok("ok"),
    });
    let config = Config::to(&upstream).open().server("request_timeout = \"1s\"");
    let weir = Weir::start(&config);
    let mut client = FrameClient::connect(weir.address());
    client.reads = false;
    // Room for others on the connection, but not on the stream.
    client.send(WINDOW_UPDATE, 0, 0, &1_000_000u32.to_be_bytes());
    let large = client.get("/large");
    let small = client.get("/small");
    assert_eq!(client.status(small), 200);
    let outcome = client.outcome(large);
    assert_eq!((outcome.status, outcome.ended), (Some(200), false));
    assert!(outcome.reset.is_some(), "{} bytes", outcome.body.len());
    assert_eq!(outcome.body.len(), 65_535);
}

#[test]
fn body_that_stands_still_is_refused() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&Config::to(&upstream).open().server("request_timeout = \"300ms\""));
    let mut client = FrameClient::connect(weir.address());
    let stream = client.open(&block(&request("POST", "/")), 0);
    client.send(DATA, 0, stream, b"the beginning");
    assert_eq!(client.status(stream), 408);
}

#[test]
fn drain_lets_streams_finish_and_then_closes() {
    let held = HeldUpstream::start();
    let mut weir = Weir::start(&Config::to(&held.upstream).open());
    let mut client = FrameClient::connect(weir.address());
    let mut idle = FrameClient::connect(weir.address());
    let warm = idle.get("/");
    assert_eq!(idle.status(warm), 200);
    let stream = client.get("/held");
    wait_until("it is under way", || held.upstream.heads() == 2);
    weir.signal(rustix::process::Signal::TERM);
    assert!(idle.ends());
    assert_eq!(idle.farewells.first(), Some(&0));
    while client.farewells.is_empty() {
        client.next().expect("a farewell");
    }
    held.release("/held");
    assert_eq!(client.status(stream), 200);
    assert!(client.ends());
    assert!(weir.exit().success());
}

#[test]
fn client_that_acknowledges_no_ping_opens_no_streams_for_long_in_a_drain() {
    let held = HeldUpstream::start();
    let mut weir = Weir::start(&Config::to(&held.upstream).open().server("drain = \"1h\""));
    let mut client = FrameClient::connect(weir.address());
    client.acknowledges = false;
    let stream = client.get("/held");
    wait_until("it is under way", || held.upstream.heads() == 1);
    weir.signal(rustix::process::Signal::TERM);
    wait_until("streams are refused", || {
        let late = client.get("/");
        // REFUSED_STREAM
        client.outcome(late).reset == Some(7)
    });
    let taken = held.upstream.heads();
    let late = client.get("/");
    assert_eq!(client.outcome(late).reset, Some(7));
    held.release("/held");
    assert_eq!(client.status(stream), 200, "what is open is finished");
    assert!(client.ends());
    assert_eq!(held.upstream.heads(), taken);
    assert!(weir.exit().success());
}

#[test]
fn refused_streams_keep_no_connection_open_in_a_drain() {
    let mut weir = Weir::start(&Config::echo().open().server("drain = \"1h\""));
    let mut client = FrameClient::connect(weir.address());
    client.acknowledges = false;
    let warm = client.get("/");
    assert_eq!(client.status(warm), 200);
    weir.signal(rustix::process::Signal::TERM);
    wait_until("the connection is closed", || {
        let late = client.get("/");
        let outcome = client.outcome(late);
        outcome.reset.is_none() && outcome.status.is_none()
    });
    assert!(weir.exit().success());
}

#[test]
fn idle_connection_is_told_and_closed() {
    let config =
        Config::echo().open().server("idle_timeout = \"200ms\"\nheader_timeout = \"200ms\"");
    let weir = Weir::start(&config);
    let mut client = FrameClient::connect(weir.address());
    let stream = client.get("/");
    assert_eq!(client.status(stream), 200);
    assert!(client.ends());
    assert_eq!(client.farewells.first(), Some(&0));
    // One that has asked for nothing, and one that does not finish what it says.
    let mut silent = FrameClient::connect(weir.address());
    assert!(silent.ends());
    let mut half = FrameClient::connect(weir.address());
    let stream = half.get("/");
    assert_eq!(half.status(stream), 200);
    let id = half.next_id();
    half.send(HEADERS, 0, id, &block(&request("GET", "/")));
    assert!(half.ends());
}

#[test]
fn bodies_that_nobody_takes_hold_up_no_other() {
    const STREAMS: usize = 16;
    const WINDOW: usize = 64 << 10;
    // One passes, and the others wait with their bodies unread.
    let limit = "key = \"ip\"\nrate = \"1/minute\"\nburst = 1\nstrategy = \"queue\"\n\
                 max_wait = \"1h\"\nmax_queue = 100";
    let upstream = Upstream::ok();
    let config = Config::to(&upstream)
        .server("http2 = { max_streams = 16, stream_window = \"64KiB\" }\nrequest_timeout = \"1s\"")
        .add_limit("waiting", limit)
        .route("free", "/free", &[])
        .route("queued", "/queued", &["waiting"]);
    let weir = Weir::start(&config);
    assert_eq!(weir.get("/queued").status, 200);
    let mut client = FrameClient::connect(weir.address());
    let mut window = 65_535;
    while window <= 65_535 {
        let frame = client.next().unwrap();
        if frame.kind == WINDOW_UPDATE && frame.stream == 0 {
            window += u32::from_be_bytes(frame.payload[..4].try_into().unwrap()) as usize;
        }
    }
    let post = |path| block(&request("POST", path));
    for _ in 1..STREAMS {
        let stream = client.open(&post("/queued"), 0);
        // As much as both windows allow.
        for _ in 0..WINDOW / 16_384 {
            let piece = window.min(16_384);
            client.send(DATA, 0, stream, &vec![b'x'; piece]);
            window -= piece;
        }
    }
    let depth = || weir.metrics().value("weir_queue_depth", &[("limit", "waiting")]);
    wait_until("they wait", || depth() == Some(STREAMS as f64 - 1.0));
    let innocent = client.open(&post("/free"), 0);
    if window >= 5 {
        client.send(DATA, END_STREAM, innocent, b"hello");
    }
    assert_eq!(client.status(innocent), 200);
    assert_eq!(upstream.last().body, b"hello");
}

#[test]
fn stall_timeout_of_an_open_connection_follows_a_reload() {
    let body = "x".repeat(4_000_000);
    let upstream = Upstream::replying(move |_| upstream::ok(&body));
    let config = |timeout: &str| {
        Config::to(&upstream).open().server(&format!("request_timeout = \"{timeout}\""))
    };
    let weir = Weir::start(&config("1h"));
    let mut client = FrameClient::connect(weir.address());
    client.reads = false;
    client.send(WINDOW_UPDATE, 0, 0, &1_000_000u32.to_be_bytes());
    let before = client.get("/");
    while client.known(before).body.len() < 65_535 {
        client.next().unwrap();
    }
    weir.reload(&config("300ms"));
    let after = client.get("/");
    assert!(client.outcome(after).reset.is_some());
    assert_eq!(client.known(before).reset, None);
}
