//! `weir_upstream_errors_total`: every failure of an upstream is counted by its kind.

use std::sync::{Mutex, mpsc};

use crate::support::ports::nobody;
use crate::support::upstream::ok;
use crate::support::{After, Config, PATIENCE, Upstream, Weir, get, post, wait_until};

const ERRORS: [&str; 5] = ["unreachable", "timeout", "broken", "cut_off", "status_5xx"];

/// How often each of [`ERRORS`] was counted.
#[track_caller]
fn counted(weir: &Weir) -> [f64; 5] {
    let metrics = weir.metrics();
    ERRORS.map(|error| {
        let labels = [("upstream", "api"), ("error", error)];
        metrics.value("weir_upstream_errors_total", &labels).expect(error)
    })
}

/// These are counted, and no more by the time that another request has been.
#[track_caller]
fn are(weir: &Weir, expected: [f64; 5]) {
    wait_until("they are counted", || counted(weir).iter().sum::<f64>() >= expected.iter().sum());
    assert_eq!(counted(weir), expected);
}

/// Answers whose header came: with what failed before it, all that was tried.
#[track_caller]
fn answered(weir: &Weir) -> f64 {
    weir.metrics().value("weir_upstream_seconds_count", &[("upstream", "api")]).unwrap()
}

fn answer(status: u16, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
}

#[test]
fn every_error_series_exists_from_the_start_except_for_the_echo() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&Config::to(&upstream).open());
    assert_eq!(counted(&weir), [0.0; 5]);
    let echo = Weir::start(&Config::echo().open());
    assert_eq!(echo.get("/").status, 200);
    assert_eq!(echo.metrics().value("weir_upstream_errors_total", &[]), None);
}

#[test]
fn a_server_that_cannot_be_reached_is_counted() {
    let weir = Weir::start(&Config::to_servers(&[nobody(), nobody()]).open());
    for request in [get("/"), post("/", "hello")] {
        assert_eq!(weir.ask(request).status, 502);
    }
    // Each request once, whatever was tried for it.
    are(&weir, [2.0, 0.0, 0.0, 0.0, 0.0]);
    let named = "[[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"named\"\n\
                 [upstreams.named]\nservers = [\"http://nobody.invalid\"]";
    weir.reload(&Config::to_servers(&[nobody()]).open().routes(named));
    // Where no name server answers, it times out instead.
    let error = if weir.get("/").status == 502 { "unreachable" } else { "timeout" };
    let labels = [("upstream", "named"), ("error", error)];
    let counted = || weir.metrics().value("weir_upstream_errors_total", &labels);
    wait_until("it is counted", || counted() == Some(1.0));
    are(&weir, [2.0, 0.0, 0.0, 0.0, 0.0]);
}

#[test]
fn an_upstream_that_takes_too_long_is_counted() {
    let (end, over) = mpsc::channel::<()>();
    let over = Mutex::new(over);
    let upstream = Upstream::scripted(move |exchange| {
        match exchange.request.target.as_str() {
            "/half" => exchange.reply("HTTP/1.1 200 OK\r\nX-A: "),
            "/body" => exchange.reply("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"),
            _ => {}
        };
        let _ = over.lock().unwrap().recv_timeout(PATIENCE);
        After::Close
    });
    // Only what never comes has little time: however slow the machine is, the rest comes in time.
    let routes = "[[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"api\"\ntimeout = \"200ms\"\n\
                  [[routes]]\nname = \"body\"\npath = \"/body\"\nupstream = \"api\"\ntimeout = \"10m\"";
    let config = Config::to(&upstream).open().routes(routes);
    let weir = Weir::start(&config.server("request_timeout = \"1s\""));
    for request in [get("/"), get("/half"), post("/", "hello")] {
        assert_eq!(weir.ask(request).status, 504);
    }
    are(&weir, [0.0, 3.0, 0.0, 0.0, 0.0]);
    // A body that stands still, when the answer has long begun.
    let _ = weir.connect().try_ask(get("/body"));
    are(&weir, [0.0, 3.0, 0.0, 1.0, 0.0]);
    drop(end);
}

#[test]
fn incomplete_response_is_counted() {
    let upstream = Upstream::scripted(|exchange| {
        exchange.read_body();
        match exchange.request.target.as_str() {
            "/nonsense" => exchange.reply("nonsense\r\n\r\n"),
            "/head" => exchange.reply("HTTP/1.1 200 OK\r\nX-A: "),
            "/framing" => exchange.reply("HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok"),
            "/length" => exchange.reply("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"),
            "/chunk" => {
                exchange.reply("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n");
            }
            "/chunks" => {
                exchange.reply("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello");
            }
            _ => {}
        }
        After::Close
    });
    let weir = Weir::start(&Config::to(&upstream).open());
    for (n, target) in (1..).zip(["/nothing", "/nonsense", "/head", "/framing"]) {
        let _ = weir.connect().try_ask(get(target));
        are(&weir, [0.0, 0.0, f64::from(n), 0.0, 0.0]);
    }
    let _ = weir.connect().try_ask(post("/nothing", "hello"));
    are(&weir, [0.0, 0.0, 5.0, 0.0, 0.0]);
    assert_eq!(answered(&weir), 0.0);
    // From the header on it is an answer, and cut off.
    for (n, target) in (1..).zip(["/length", "/chunk", "/chunks"]) {
        let _ = weir.connect().try_ask(get(target));
        are(&weir, [0.0, 0.0, 5.0, f64::from(n), 0.0]);
        assert_eq!(answered(&weir), f64::from(n));
    }
}

#[test]
fn answers_of_500_and_more_are_counted_once() {
    let upstream = Upstream::scripted(|exchange| {
        let target = &exchange.request.target[1..];
        if target == "cut" {
            exchange.reply("HTTP/1.1 503 X\r\nContent-Length: 10\r\n\r\nhello");
            return After::Close;
        }
        let status = target.parse().unwrap();
        exchange.reply(answer(status, "words"));
        After::Keep
    });
    let weir = Weir::start(&Config::to(&upstream).open());
    for status in [200, 301, 400, 404, 429, 499] {
        assert_eq!(weir.get(&format!("/{status}")).status, status);
    }
    for (n, status) in (1..).zip([500, 502, 503, 504, 599]) {
        assert_eq!(weir.get(&format!("/{status}")).status, status);
        are(&weir, [0.0, 0.0, 0.0, 0.0, f64::from(n)]);
    }
    let _ = weir.connect().try_ask(get("/cut"));
    are(&weir, [0.0, 0.0, 0.0, 0.0, 6.0]);
    // What has been counted outlives the configuration.
    weir.reload(&Config::to(&upstream).open().also("# touched"));
    are(&weir, [0.0, 0.0, 0.0, 0.0, 6.0]);
}

#[test]
fn error_mended_by_a_retry_is_not_counted() {
    let upstream = Upstream::ok();
    let config = Config::to_servers(&[nobody(), upstream.address()]).open();
    let weir = Weir::start(&config.upstream("balance = \"round_robin\"\nretries = 1"));
    for _ in 0..10 {
        assert_eq!(weir.get("/").status, 200);
    }
    assert_eq!(counted(&weir), [0.0; 5]);
}

#[test]
fn request_aborted_by_the_client_is_not_counted() {
    let (end, over) = mpsc::channel::<()>();
    let over = Mutex::new(over);
    let upstream = Upstream::scripted(move |exchange| match exchange.request.target.as_str() {
        "/long" => {
            exchange.reply("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello");
            let _ = over.lock().unwrap().recv_timeout(PATIENCE);
            After::Close
        }
        "/fine" => {
            exchange.reply(ok("fine"));
            After::Keep
        }
        _ => {
            while exchange.wire.fill().is_ok() {}
            After::Close
        }
    });
    let weir = Weir::start(&Config::to(&upstream).open().server("request_timeout = \"300ms\""));
    let of = |status: &str| {
        let labels = [("route", "all"), ("status", status)];
        weir.metrics().value("weir_requests_total", &labels).unwrap_or(0.0)
    };
    // It leaves before the answer, within it, and does not send what it has announced.
    let mut client = weir.connect();
    client.send(get("/silent"));
    wait_until("it is in flight", || upstream.heads() == 1);
    client.wire.reset();
    wait_until("it has left", || of("499") == 1.0);
    let mut client = weir.connect();
    client.send(get("/long"));
    wait_until("it is in flight", || of("200") == 1.0);
    client.wire.reset();
    let stuck = "POST /silent HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhel";
    assert_eq!(weir.ask(stuck).status, 408);
    assert_eq!(weir.get("/fine").text(), "fine");
    assert_eq!(counted(&weir), [0.0; 5]);
    drop(end);
}
