//! Floods of frames: the connection is closed, memory stays flat, and others are served.

use crate::support::frames::{
    self, CANCEL, CONTINUATION, DATA, END_HEADERS, END_STREAM, FrameClient, HEADERS, PING,
    PRIORITY, RST_STREAM, SETTINGS, WINDOW_UPDATE, block, frame, request, string,
};
use crate::support::{Config, Upstream, Weir, upstream, wait_until, wait_until_steady};

/// ENHANCE_YOUR_CALM of RFC 9113 section 7.
const ENHANCE_YOUR_CALM: u32 = 11;

/// How many connections were ended for a flood.
fn floods(weir: &Weir) -> f64 {
    let metrics = weir.metrics();
    let count = |reason| metrics.value("weir_http2_floods_total", &[("reason", reason)]);
    ["codec", "frames", "streams"].map(|reason| count(reason).expect(reason)).iter().sum()
}

/// Sends a flood until the connection is closed, and makes sure that others are served meanwhile.
#[track_caller]
fn is_closed(what: &str, mut flood: impl FnMut(&mut FrameClient) -> Vec<u8>) {
    let weir = Weir::start(&Config::echo().open());
    let mut other = weir.connect();
    let mut client = FrameClient::connect(weir.address());
    let before = weir.peak_memory();
    let mut sent = 0;
    // Far more than is ever allowed.
    while sent < 20_000_000 {
        let piece = flood(&mut client);
        sent += piece.len();
        if !client.wire.write(&piece) {
            break;
        }
    }
    assert!(client.ends(), "{what}: still there after {sent} bytes");
    assert_eq!(other.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").status, 200);
    wait_until("the flood is counted", || floods(&weir) == 1.0);
    let grown = weir.peak_memory().saturating_sub(before);
    assert!(grown < 16 << 20, "{what}: {grown} bytes more");
}

#[test]
fn frames_that_ask_for_nothing_run_out() {
    is_closed("pings", |_| frame(PING, 0, 0, &[0; 8]).repeat(100));
    is_closed("settings", |_| frame(SETTINGS, 0, 0, &[]).repeat(100));
    is_closed("priorities", |_| frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 1]).repeat(100));
    is_closed("window updates", |_| frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]).repeat(100));
    is_closed("unknown frames", |_| frame(0xbb, 0, 0, &[]).repeat(100));
}

#[test]
fn empty_data_runs_out() {
    let mut stream = 0;
    is_closed("empty data", |client| {
        if stream == 0 {
            stream = client.open(&block(&request("POST", "/")), 0);
        }
        frame(DATA, 0, stream, &[]).repeat(100)
    });
}

#[test]
fn header_that_never_ends_is_closed() {
    let mut begun = false;
    is_closed("continuations", |client| {
        if !std::mem::replace(&mut begun, true) {
            let id = client.next_id();
            client.send(HEADERS, 0, id, &block(&request("GET", "/")));
        }
        frame(CONTINUATION, 0, 1, &block(&[("x-a", "b")])).repeat(100)
    });
    let mut begun = false;
    is_closed("empty continuations", |client| {
        if !std::mem::replace(&mut begun, true) {
            let id = client.next_id();
            client.send(HEADERS, 0, id, &block(&request("GET", "/")));
        }
        frame(CONTINUATION, 0, 1, &[]).repeat(100)
    });
}

#[test]
fn header_bomb_is_closed() {
    is_closed("a bomb", |client| {
        // One field of almost 4 KiB into the dynamic table, and ten thousand references to it.
        let mut bomb = block(&request("GET", "/"));
        bomb.push(0x40);
        string(&mut bomb, b"x-bomb");
        string(&mut bomb, &[b'x'; 4000]);
        bomb.extend_from_slice(&[0xbe; 10_000]);
        let id = client.next_id();
        frame(HEADERS, END_HEADERS | END_STREAM, id, &bomb)
    });
}

#[test]
fn rapid_resets_run_out() {
    let get = block(&request("GET", "/"));
    is_closed("rapid resets", |client| {
        let mut wire = Vec::new();
        for _ in 0..100 {
            let id = client.next_id();
            wire.extend(frame(HEADERS, END_HEADERS | END_STREAM, id, &get));
            wire.extend(frame(RST_STREAM, 0, id, &CANCEL.to_be_bytes()));
        }
        wire
    });
}

/// Opens streams that come to nothing, ten at a time, until the connection is closed. Returns how many.
fn streams_until_closed(client: &mut FrameClient, mut waste: impl FnMut(u32) -> Vec<u8>) -> usize {
    for opened in (0..2000).step_by(10) {
        let streams: Vec<_> = (0..10).map(|_| client.next_id()).collect();
        let wire: Vec<_> = streams.iter().flat_map(|id| waste(*id)).collect();
        client.wire.write(&wire);
        client.send(PING, 0, 0, &[0; 8]);
        // The answer to the ping comes when they were seen to.
        loop {
            match client.next() {
                Ok(frame) if frame.kind == PING => break,
                Ok(_) => {}
                Err(_) => return opened,
            }
        }
    }
    panic!("still there");
}

#[test]
fn client_that_takes_everything_back_is_told_to_calm_down() {
    let upstream = Upstream::silent();
    let weir = Weir::start(&Config::to(&upstream).open());
    let mut client = FrameClient::connect(weir.address());
    let get = block(&request("GET", "/"));
    let opened = streams_until_closed(&mut client, |id| {
        let reset = frame(RST_STREAM, 0, id, &CANCEL.to_be_bytes());
        [frame(HEADERS, END_HEADERS | END_STREAM, id, &get), reset].concat()
    });
    // Twice as many as may be open, and ten a second.
    assert!((250..500).contains(&opened), "{opened}");
    assert_eq!(client.farewells, [ENHANCE_YOUR_CALM]);
    let count = weir.metrics().value("weir_http2_floods_total", &[("reason", "streams")]);
    assert_eq!(count, Some(1.0));
}

#[test]
fn streams_that_the_server_is_made_to_reset_run_out_as_well() {
    let upstream = Upstream::silent();
    let weir = Weir::start(&Config::to(&upstream).open());
    let mut client = FrameClient::connect(weir.address());
    let mut fields = request("POST", "/");
    fields.push(("content-length", "1"));
    let post = block(&fields);
    let opened = streams_until_closed(&mut client, |id| {
        [frame(HEADERS, END_HEADERS, id, &post), frame(DATA, END_STREAM, id, b"ab")].concat()
    });
    assert!((250..500).contains(&opened), "{opened}");
    assert_eq!(client.farewells, [ENHANCE_YOUR_CALM]);
}

#[test]
fn answers_that_have_begun_may_be_left_without_end() {
    let upstream = Upstream::replying(|_| upstream::ok(&"x".repeat(1000)));
    let weir = Weir::start(&Config::to(&upstream).open());
    // Room for ten bytes of each answer.
    let mut client = FrameClient::with_settings(weir.address(), &[(1, 0), (4, 10)]);
    client.reads = false;
    let kept = client.get("/kept");
    for round in 0..1500 {
        let stream = client.get("/left");
        while client.known(stream).body.is_empty() {
            assert!(client.next().is_ok(), "closed in round {round}");
        }
        client.reset(stream, CANCEL);
    }
    client.send(WINDOW_UPDATE, 0, kept, &1000u32.to_be_bytes());
    assert_eq!(client.outcome(kept).body.len(), 1000);
    assert_eq!(floods(&weir), 0.0);
}

#[test]
fn streams_beyond_the_maximum_are_refused() {
    let upstream = Upstream::silent();
    let weir = Weir::start(&Config::to(&upstream).open().server("http2 = { max_streams = 10 }"));
    let mut client = FrameClient::connect(weir.address());
    let streams: Vec<_> = (0..12).map(|_| client.get("/")).collect();
    // REFUSED_STREAM
    assert_eq!(client.outcome(streams[10]).reset, Some(7));
    assert_eq!(client.outcome(streams[11]).reset, Some(7));
    assert_eq!(client.known(streams[0]), frames::Outcome::default());
    crate::support::wait_until("the others are under way", || upstream.heads() == 10);
}

#[test]
fn streams_that_come_in_one_flood_with_too_many_were_charged() {
    let upstream = Upstream::silent();
    let limit = "key = \"ip\"\nrate = \"1/hour\"\nburst = 1000";
    let weir = Weir::start(&Config::to(&upstream).limit(limit));
    let mut client = FrameClient::connect(weir.address());
    let get = block(&request("GET", "/"));
    let ids: Vec<_> = (0..10_000).map(|_| client.next_id()).collect();
    let wire = ids.iter().flat_map(|id| frame(HEADERS, END_HEADERS | END_STREAM, *id, &get));
    client.wire.write(&wire.collect::<Vec<_>>());
    assert!(client.ends());
    wait_until("the flood is counted", || floods(&weir) == 1.0);
    // Those that may be open at once, whether they got to the upstream before the connection ended or not.
    let charged = [("limit", "per-ip"), ("outcome", "allowed")];
    let charged = || weir.metrics().value("weir_decisions_total", &charged).unwrap_or(0.0);
    wait_until("they were charged", || charged() >= 128.0);
    assert_eq!(wait_until_steady("no more are", charged), 128.0);
}

#[test]
fn client_that_takes_streams_back_now_and_then_is_served() {
    let weir = Weir::start(&Config::echo().open());
    let mut client = FrameClient::connect(weir.address());
    for _ in 0..600 {
        let [kept, taken_back] = [client.get("/"), client.get("/")];
        client.reset(taken_back, CANCEL);
        assert_eq!(client.status(kept), 200);
    }
}
