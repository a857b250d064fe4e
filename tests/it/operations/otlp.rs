//! Spans at a collector: built with the feature `otlp` only.

use std::collections::HashMap;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::ports::nobody;
use crate::support::{Config, Upstream, Weir, get_with, wait_until};

/// The spans that a collector has, by their ids.
fn spans(collector: &Upstream) -> HashMap<String, Value> {
    let mut spans = HashMap::new();
    for request in collector.requests() {
        assert_eq!((request.method.as_str(), request.target.as_str()), ("POST", "/v1/traces"));
        assert_eq!(request.one("content-type"), "application/json");
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        for resource in body["resourceSpans"].as_array().unwrap() {
            for scope in resource["scopeSpans"].as_array().unwrap() {
                for span in scope["spans"].as_array().unwrap() {
                    let id = span["spanId"].as_str().unwrap().to_owned();
                    assert!(spans.insert(id, span.clone()).is_none(), "each is sent once");
                }
            }
        }
    }
    spans
}

fn exporting(upstream: &Upstream, to: std::net::SocketAddr) -> Config {
    let limit = "key = \"header:x-user\"\nrate = \"1/day\"\nburst = 1";
    let traces = format!("[telemetry.traces]\nenabled = true\nexport = \"http://{to}\"");
    Config::to(upstream).limit(limit).also(&traces)
}

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-";

#[test]
fn a_sampled_trace_has_spans_for_request_decision_and_upstream() {
    let (upstream, collector) = (Upstream::ok(), Upstream::ok());
    let mut weir = Weir::start(&exporting(&upstream, collector.address()));
    let ask = |flags: &str| {
        weir.ask(get_with("/", &format!("X-User: ann\r\nTraceparent: {PARENT}{flags}\r\n")))
    };
    assert_eq!(ask("01").status, 200);
    let told = upstream.last().one("traceparent").to_owned();
    assert_eq!(ask("01").status, 429);
    assert_eq!(ask("00").status, 429, "and this one is not sampled");
    wait_until("five spans are there", || spans(&collector).len() >= 5);
    weir.signal(Signal::TERM);
    assert_eq!(weir.exit().code(), Some(0));

    let spans = spans(&collector);
    assert_eq!(spans.len(), 5, "{spans:#?}");
    let of_upstream = &spans[&told[36..52]];
    assert_eq!(of_upstream["kind"], 3);
    let request = &spans[of_upstream["parentSpanId"].as_str().unwrap()];
    assert_eq!((&request["kind"], &request["name"]), (&2.into(), &"GET all".into()));
    assert_eq!(request["parentSpanId"], "b7ad6b7169203331");
    let decisions = spans.values().filter(|it| it["name"] == "decide");
    assert_eq!(decisions.count(), 2);
    for span in spans.values() {
        assert_eq!(span["traceId"], "0af7651916cd43dd8448eb211c80319c");
    }
}

#[test]
fn what_is_left_is_sent_at_the_end() {
    let (upstream, collector) = (Upstream::ok(), Upstream::ok());
    let mut weir = Weir::start(&exporting(&upstream, collector.address()));
    let request = get_with("/", &format!("X-User: ann\r\nTraceparent: {PARENT}01\r\n"));
    assert_eq!(weir.ask(request).status, 200);
    weir.signal(Signal::TERM);
    assert_eq!(weir.exit().code(), Some(0));
    assert_eq!(spans(&collector).len(), 3);
}

#[test]
fn a_collector_that_is_away_holds_up_nobody_and_is_counted() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&exporting(&upstream, nobody()));
    for user in 0..20 {
        let lines = format!("X-User: u{user}\r\nTraceparent: {PARENT}01\r\n");
        assert_eq!(weir.ask(get_with("/", &lines)).status, 200);
    }
    wait_until("all are dropped", || {
        weir.metrics().value("weir_trace_spans_dropped_total", &[]) == Some(60.0)
    });
    assert!(weir.output().contains("traces are dropped: the collector"), "{}", weir.output());
}
