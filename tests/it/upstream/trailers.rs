//! What may stand behind a body, in both directions: nothing that the head may not say, either.

use std::collections::BTreeSet;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use tokio::net::TcpStream;

use super::http2;
use crate::support::http2_upstream::{Http2Options, Http2Upstream};
use crate::support::{Config, Upstream, Weir, get, wait_until};

/// Trailers that say nothing that anybody acts on.
const HARMLESS: [&str; 4] = ["content-digest", "grpc-status", "server-timing", "x-note"];

const IDENTITY: &str = "[identity]\nuser = \"header:x-api-key\"\n\
    plan = \"header:x-plan-of\"\n\
    trusted_proxies = [\"127.0.0.0/8\"]\naddress_header = \"x-edge-ip\"\n\
    forward = { user = \"x-user-id\", plan = \"x_plan\" }\n";

/// Sends a request with trailers of these names over HTTP/2, and announces them. The names of the
/// trailers that come back.
fn ask(weir: &Weir, path: &str, trailers: &[&str]) -> BTreeSet<String> {
    ask_announcing(weir, path, trailers, Some(&trailers.join(", ")))
}

/// The same with this `Trailer` field, or none.
fn ask_announcing(
    weir: &Weir,
    path: &str,
    trailers: &[&str],
    announced: Option<&str>,
) -> BTreeSet<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = TcpStream::connect(weir.address()).await.unwrap();
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let mut client = client.ready().await.unwrap();
        let mut head = Request::post(format!("http://weir.test{path}")).header("x-api-key", "ann");
        if let Some(announced) = announced.filter(|it| !it.is_empty()) {
            head = head.header("trailer", announced);
        }
        let (response, mut body) = client.send_request(head.body(()).unwrap(), false).unwrap();
        body.send_data(Bytes::from_static(b"hello"), false).unwrap();
        body.send_trailers(fields(trailers)).unwrap();
        let response = response.await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        let mut body = response.into_body();
        while let Some(data) = body.data().await {
            let _ = body.flow_control().release_capacity(data.unwrap().len());
        }
        names(body.trailers().await.unwrap())
    })
}

fn fields(names: &[&str]) -> HeaderMap {
    let name = |it: &&str| HeaderName::from_bytes(it.as_bytes()).unwrap();
    names.iter().map(|it| (name(it), HeaderValue::from_static("1"))).collect()
}

fn names(fields: Option<HeaderMap>) -> BTreeSet<String> {
    fields.unwrap_or_default().keys().map(HeaderName::to_string).collect()
}

fn harmless() -> BTreeSet<String> {
    HARMLESS.map(str::to_owned).into()
}

#[test]
fn clients_say_nothing_in_trailers_that_they_may_not_say_in_the_head() {
    let upstream = Http2Upstream::start();
    let config = http2::config(&upstream).limit("key = \"user\"\nrate = \"100/second\"");
    let config = config.also(IDENTITY).route("all", "/*", &["per-ip"]).route_lines(
        "request_headers = { set = { x-tier = \"free\" }, remove = [\"x-internal\"] }",
    );
    let weir = Weir::start(&config);
    let withheld = [
        "x-user-id",
        "x_user_id",
        "x-user_id",
        "x-plan",
        "x_plan",
        "x-request-id",
        "x_request_id",
        "traceparent",
        "x-api-key",
        "x_api_key",
        "x-edge-ip",
        "x-tier",
        "x_tier",
        "x-internal",
        "x_internal",
        "x-forwarded-for",
        "x_forwarded_for",
        "forwarded",
        "proxy-authorization",
        "proxy_authorization",
        "authorization",
        "x-weir-degraded",
        "x_weir_warning",
        "content_length",
    ];
    for name in withheld {
        ask(&weir, "/", &[&HARMLESS[..], &[name]].concat());
        let received = upstream.requests().pop().unwrap();
        assert_eq!(names(received.trailers), harmless(), "{name}");
        assert_eq!(received.headers["x-user-id"], "ann");
    }
}

/// nginx ends a connection over any trailer of a request, and others over a section with nothing in it.
#[test]
fn trailers_of_a_request_are_sent_on_no_connection_that_others_share() {
    let upstream = Http2Upstream::start();
    let weir = Weir::start(&http2::config(&upstream));
    let mut held = weir.connect();
    held.send(get("/held"));
    wait_until("it is there", || upstream.open() == 1);
    let last = |upstream: &Http2Upstream| upstream.requests().pop().unwrap();
    // Announced: alone, with what the next hop may be told of them.
    ask(&weir, "/", &["x-note", "x-forwarded-for"]);
    let received = last(&upstream);
    assert_eq!((received.connection, received.body), (1, 5));
    assert_eq!(received.headers["trailer"], "x-note, x-forwarded-for");
    assert_eq!(names(received.trailers), BTreeSet::from(["x-note".to_owned()]));
    // Nothing is left of them.
    ask(&weir, "/", &["x-forwarded-for"]);
    let received = last(&upstream);
    assert_eq!((received.connection, received.body, received.trailers), (2, 5, None));
    // Not announced: with the others, and without trailers. gRPC asks for those of the response only.
    ask_announcing(&weir, "/", &["x-note"], None);
    let received = last(&upstream);
    assert_eq!((received.connection, received.body, received.trailers), (0, 5, None));
    upstream.release();
    assert_eq!(held.response().status, 200);
}

#[test]
fn announced_trailers_are_dropped_where_no_other_connection_may_be_made() {
    let upstream = Http2Upstream::start();
    let weir = Weir::start(&http2::config(&upstream).upstream("max_connections = 1"));
    let mut held = weir.connect();
    held.send(get("/held"));
    wait_until("it is there", || upstream.open() == 1);
    ask(&weir, "/", &["x-note"]);
    let received = upstream.requests().pop().unwrap();
    assert_eq!((received.connection, received.body, received.trailers), (0, 5, None));
    assert!(!received.headers.contains_key("trailer"), "none come");
    upstream.release();
    assert_eq!(held.response().status, 200);
}

#[test]
fn upstreams_say_nothing_in_trailers_that_the_route_or_the_gateway_says() {
    let upstream = Http2Upstream::start();
    let config = http2::config(&upstream).route("all", "/*", &[]).route_lines(
        "response_headers = { set = { x-served-by = \"edge\" }, remove = [\"x-internal\"] }",
    );
    let weir = Weir::start(&config);
    let withheld = [
        "x-internal",
        "x_internal",
        "x-served-by",
        "ratelimit",
        "ratelimit-policy",
        "ratelimit-limit",
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
        "retry-after",
        "x-weir-warning",
        "x-weir-degraded",
        "x-request-id",
        "content-length",
        "set-cookie",
    ];
    for name in withheld {
        let path = format!("/trailers/{},{name}", HARMLESS.join(","));
        assert_eq!(ask(&weir, &path, &[]), harmless(), "{name}");
    }
}

#[test]
fn trailers_of_http1_go_no_further() {
    let upstream = Http2Upstream::with(Http2Options::default());
    let weir = Weir::start(&http2::config(&upstream));
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                   5\r\nhello\r\n0\r\nX-User-Id: mallory\r\nX-Note: 1\r\n\r\n";
    assert_eq!(weir.ask(chunked).status, 200);
    let received = upstream.requests().pop().unwrap();
    assert_eq!((received.body, received.trailers), (5, None));
    let upstream = Upstream::replying(|_| {
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
          2\r\nok\r\n0\r\nX-Internal: 1\r\nRateLimit: \"x\";r=1\r\n\r\n"
            .to_vec()
    });
    let weir = Weir::start(&Config::to(&upstream).open());
    assert_eq!(ask(&weir, "/", &["x-user-id", "x-note"]), BTreeSet::new());
    assert_eq!(upstream.last().trailers, [""; 0]);
}
