//! Against a stand-in for a collector that reads what it is sent.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use http::StatusCode;
use http::request::Parts;
use serde_json::Value;

use super::*;
use crate::config::settings::{IdSource, Traces};
use crate::telemetry::traces::{RequestTrace, Tracing};

fn dropped() -> IntCounter {
    IntCounter::new("dropped", "dropped").unwrap()
}

fn endpoint(listener: &TcpListener) -> OtlpEndpoint {
    let address = listener.local_addr().unwrap();
    OtlpEndpoint {
        host: address.ip().to_string(),
        port: address.port(),
        authority: address.to_string(),
        path: "/v1/traces".to_owned(),
    }
}

fn resource() -> Resource {
    Resource { service_name: "shop".to_owned(), node: "weir-1".to_owned() }
}

fn tracing(sink: SpanSink) -> Tracing {
    let settings = Traces {
        enabled: true,
        accept: Some(IdSource::Any),
        sample_thousandths: 1000,
        ..Traces::default()
    };
    Tracing::new(&settings, Some(sink)).unwrap()
}

fn parts(headers: &[(&'static str, &'static str)]) -> Parts {
    let mut request = Request::get("/orders/7?secret=1").header("host", "a.example");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

fn begun(tracing: &Tracing, parts: &mut Parts) -> Box<RequestTrace> {
    tracing.begin(parts, false).expect("it is sampled")
}

/// Reads one request and answers it; what it carried, and its head.
fn receive(stream: &mut TcpStream, status: &str) -> (String, Value) {
    let (mut text, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        let whole = String::from_utf8_lossy(&text).into_owned();
        if let Some((head, body)) = whole.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|it| it.strip_prefix("content-length: "));
            if body.len() >= length.unwrap().parse().unwrap() {
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\n{{}}");
                stream.write_all(answer.as_bytes()).unwrap();
                return (head.to_owned(), serde_json::from_str(body).unwrap());
            }
        }
        let count = stream.read(&mut chunk).unwrap();
        assert!(count > 0, "a whole request: {whole}");
        text.extend_from_slice(&chunk[..count]);
    }
}

fn attribute<'a>(span: &'a Value, key: &str) -> &'a Value {
    let attributes = span["attributes"].as_array().unwrap();
    let found = attributes.iter().find(|it| it["key"] == key);
    &found.unwrap_or_else(|| panic!("no {key} in {span}"))["value"]
}

#[test]
fn a_request_arrives_as_three_spans_of_its_callers_trace() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (sink, guard) = start(&endpoint(&listener), resource(), &dropped()).unwrap();
    let tracing = tracing(sink);
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let mut parts = parts(&[("traceparent", parent)]);
    let mut trace = begun(&tracing, &mut parts);
    let told = parts.headers["traceparent"].to_str().unwrap().to_owned();
    let since = Instant::now();
    trace.set_client("192.0.2.7".to_owned());
    trace.decided(since);
    trace.forwarded("api", since);
    trace.finish("orders", StatusCode::OK);

    let (mut stream, _) = listener.accept().unwrap();
    let (head, body) = receive(&mut stream, "200 OK");
    assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("content-type: application/json"), "{head}");
    let resource = &body["resourceSpans"][0];
    assert_eq!(attribute(&resource["resource"], "service.name")["stringValue"], "shop");
    let spans = resource["scopeSpans"][0]["spans"].as_array().unwrap();
    let [request, decision, upstream] = &spans[..] else { panic!("{spans:#?}") };
    for span in spans {
        assert_eq!(span["traceId"], "0af7651916cd43dd8448eb211c80319c");
        let time = |key: &str| span[key].as_str().unwrap().parse::<u128>().unwrap();
        assert!(time("startTimeUnixNano") <= time("endTimeUnixNano"));
        assert!(time("startTimeUnixNano") > 1_600_000_000_000_000_000);
    }
    assert_eq!(request["parentSpanId"], "b7ad6b7169203331");
    assert_eq!((&request["name"], &request["kind"]), (&"GET orders".into(), &2.into()));
    assert_eq!(attribute(request, "http.response.status_code")["intValue"], "200");
    assert_eq!(attribute(request, "url.path")["stringValue"], "/orders/7");
    assert_eq!(attribute(request, "client.address")["stringValue"], "192.0.2.7");
    assert_eq!((&decision["name"], &decision["kind"]), (&"decide".into(), &1.into()));
    assert_eq!(attribute(decision, "weir.admitted")["boolValue"], true);
    assert_eq!(upstream["kind"], 3);
    for span in [decision, upstream] {
        assert_eq!(span["parentSpanId"], request["spanId"]);
    }
    let id = upstream["spanId"].as_str().unwrap();
    assert!(told.contains(&format!("-{id}-")), "the upstream was told {told}");
    drop(guard);
}

#[test]
fn a_refusal_names_its_limit_and_a_failure_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (sink, guard) = start(&endpoint(&listener), resource(), &dropped()).unwrap();
    let tracing = tracing(sink);
    let mut trace = begun(&tracing, &mut parts(&[]));
    trace.decided(Instant::now());
    trace.refused_by(Some("per-ip".to_owned()));
    trace.failed("rate_limit_exceeded");
    trace.finish("all", StatusCode::TOO_MANY_REQUESTS);
    let mut trace = begun(&tracing, &mut parts(&[]));
    trace.forwarded("api", Instant::now());
    trace.failed("upstream_unavailable");
    trace.finish("all", StatusCode::BAD_GATEWAY);
    // What is left when the process ends is sent.
    let ending = std::thread::spawn(move || drop(guard));
    let (mut stream, _) = listener.accept().unwrap();
    let (_, body) = receive(&mut stream, "200 OK");
    ending.join().unwrap();
    let spans = body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
    let [refused, decision, failed, upstream] = &spans[..] else { panic!("{spans:#?}") };
    assert_eq!(attribute(decision, "weir.limit")["stringValue"], "per-ip");
    assert_eq!(attribute(decision, "weir.admitted")["boolValue"], false);
    assert_eq!((refused.get("status"), refused.get("parentSpanId")), (None, None));
    assert_eq!(attribute(failed, "error.type")["stringValue"], "upstream_unavailable");
    assert_eq!((&failed["status"]["code"], &upstream["status"]["code"]), (&2.into(), &2.into()));
    assert_ne!(refused["traceId"], failed["traceId"]);
}

#[test]
fn what_a_collector_does_not_take_is_dropped_and_counted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let counter = dropped();
    let (sink, guard) = start(&endpoint(&listener), resource(), &counter).unwrap();
    let tracing = tracing(sink);
    begun(&tracing, &mut parts(&[])).finish("all", StatusCode::OK);
    for _ in 0..2 {
        let (mut stream, _) = listener.accept().unwrap();
        receive(&mut stream, "503 Service Unavailable");
    }
    while counter.get() == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(counter.get(), 1);
    drop(guard);
    begun(&tracing, &mut parts(&[])).finish("all", StatusCode::OK);
    assert_eq!(counter.get(), 2, "and so is what comes when nobody exports any more");
}

#[test]
fn a_queue_that_is_full_holds_up_nobody() {
    let counter = dropped();
    let (sink, waiting) = SpanSink::new(counter.clone());
    let tracing = tracing(sink);
    for _ in 0..5000 {
        begun(&tracing, &mut parts(&[])).finish("all", StatusCode::OK);
    }
    assert_eq!(counter.get() + waiting.len() as u64, 5000);
    assert!(counter.get() > 0);
}
