//! What a gateway does about too many requests at once, and about bodies that hardly move.

use std::time::Duration;

use crate::support::held_upstream::UPGRADE;
use crate::support::queues::queue_depth;
use crate::support::{Client, Config, HeldUpstream, Upstream, Weir, get, wait_until};

#[test]
fn requests_beyond_the_maximum_are_refused_and_never_queued() {
    let upstream = HeldUpstream::start();
    let weir = Weir::start(&upstream.config().open().server("max_requests = 3"));
    let mut held: Vec<Client> = (0..2).map(|_| weir.connect()).collect();
    for client in &mut held {
        client.send(get("/held"));
    }
    let mut tunnel = weir.connect();
    tunnel.send(UPGRADE);
    wait_until("all are under way", || upstream.held_count() == 3);
    for _ in 0..3 {
        let response = weir.get("/");
        assert_eq!((response.status, response.error()), (503, "overloaded".into()));
        assert_eq!(response.one("retry-after"), "1");
    }
    // Connections are kept, and the next request on them is served once there is room.
    let mut waiting = weir.connect();
    assert_eq!(waiting.ask(get("/")).status, 503);
    upstream.release("/held");
    for client in &mut held {
        assert_eq!(client.response().status, 200);
    }
    wait_until("there is room", || waiting.ask(get("/")).status == 200);
    // A tunnel counts until it ends.
    for client in &mut held {
        client.send(get("/held"));
    }
    wait_until("all are under way", || upstream.held_count() == 3);
    assert_eq!(weir.get("/").status, 503);
    drop(tunnel);
    wait_until("the tunnel's place is free", || weir.get("/").status == 200);
    upstream.release("/held");
}

#[test]
fn a_client_that_leaves_frees_its_place() {
    let upstream = HeldUpstream::start();
    let weir = Weir::start(&upstream.config().open().server("max_requests = 1"));
    let mut client = weir.connect();
    client.send(get("/held"));
    wait_until("it is held", || upstream.held_count() == 1);
    assert_eq!(weir.get("/").status, 503);
    client.wire.reset();
    wait_until("its place is free", || weir.get("/").status == 200);
}

#[test]
fn requests_that_wait_in_a_queue_count() {
    let upstream = Upstream::ok();
    let limit = "key = \"global\"\nrate = \"1/20s\"\nburst = 1\nstrategy = \"queue\"\n\
                 max_wait = \"1m\"";
    let weir = Weir::start(&Config::to(&upstream).server("max_requests = 2").limit(limit));
    assert_eq!(weir.get("/").status, 200);
    let mut waiting: Vec<Client> = (0..2).map(|_| weir.connect()).collect();
    for client in &mut waiting {
        client.send(get("/"));
    }
    wait_until("both wait", || queue_depth(&weir) == 2);
    assert_eq!(weir.get("/").status, 503);
    drop(waiting);
}

/// A chunked or a sized request, without its body.
fn heads() -> [&'static str; 2] {
    [
        "POST / HTTP/1.1\r\nHost: weir.test\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 1000000\r\n\r\n",
    ]
}

#[test]
fn a_body_that_hardly_moves_is_given_up() {
    let upstream = Upstream::ok();
    let slow = "min_body_rate = \"1KiB\"\nbody_grace = \"300ms\"\nrequest_timeout = \"10m\"";
    let weir = Weir::start(&Config::to(&upstream).open().server(slow));
    for head in heads() {
        let mut client = weir.connect();
        client.send(head);
        let mut dripping = Client {
            wire: crate::support::wire::Wire::new(client.wire.stream().try_clone().unwrap()),
        };
        let dripper = std::thread::spawn(move || {
            for _ in 0..400 {
                // A chunk of one byte, or five bytes.
                if !dripping.wire.write(b"1\r\na\r\n") {
                    return;
                }
                // The slow pace is what is tested.
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let response = client.response();
        assert_eq!((response.status, response.error()), (408, "bad_request".into()));
        assert!(response.json()["error_description"].as_str().unwrap().contains("too slowly"));
        assert_eq!(response.one("connection"), "close");
        drop(client);
        dripper.join().unwrap();
    }
}

#[test]
fn a_body_that_keeps_the_rate_may_take_its_time() {
    let upstream = Upstream::ok();
    let slow = "min_body_rate = 1000\nbody_grace = \"1s\"";
    let weir = Weir::start(&Config::to(&upstream).open().server(slow));
    let mut client = weir.connect();
    client.send("POST / HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 40000\r\n\r\n");
    for _ in 0..20 {
        client.send("a".repeat(2000));
        // Longer in all than the grace: what has come earns the time.
        std::thread::sleep(Duration::from_millis(80));
    }
    assert_eq!(client.response().status, 200);
}

#[test]
fn an_upstream_that_reads_slowly_is_not_the_clients_fault() {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let upstream = Upstream::scripted(move |exchange| {
        let _ = wait.lock().unwrap().recv();
        exchange.read_body();
        exchange.reply(crate::support::upstream::ok("ok"));
        crate::support::After::Keep
    });
    let slow = "min_body_rate = \"1MiB\"\nbody_grace = \"200ms\"";
    let weir = Weir::start(&Config::to(&upstream).open().server(slow));
    let mut client = weir.connect();
    // More than all buffers on the way hold.
    let body = "a".repeat(32 << 20);
    let sender = {
        let wire = client.wire.stream().try_clone().unwrap();
        std::thread::spawn(move || {
            let mut client = Client { wire: crate::support::wire::Wire::new(wire) };
            client.send(format!(
                "POST / HTTP/1.1\r\nHost: weir.test\r\nContent-Length: {}\r\n\r\n",
                body.len()
            ));
            client.send(body);
        })
    };
    wait_until("the head is there", || upstream.heads() == 1);
    // Longer than the grace.
    std::thread::sleep(Duration::from_millis(600));
    go.send(()).unwrap();
    sender.join().unwrap();
    assert_eq!(client.response().status, 200);
}

#[test]
fn a_chunk_that_is_announced_in_part_is_no_way_to_stay() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&Config::to(&upstream).open().server("request_timeout = \"300ms\""));
    let mut client = weir.connect();
    client.send(format!("{}5", heads()[0]));
    assert_eq!(client.response().status, 408);
}
