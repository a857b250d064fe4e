//! The access log of responses that Weir has made itself.

use serde_json::Value;

use crate::support::{Config, Upstream, Weir, get, get_with, wait_until};

fn lines(weir: &Weir) -> Vec<Value> {
    let text = std::fs::read_to_string(weir.directory().join("access.log")).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

const LOG: &str = "[telemetry]\naccess_log = \"access.log\"";

#[test]
fn a_line_names_the_error_that_the_answer_names() {
    let upstream = Upstream::ok();
    let limit = "key = \"header:x-user\"\nrate = \"1/day\"\nburst = 2\nmissing = \"deny\"\n\
        cost = { from = \"header:x-cost\", max = 9 }";
    let identity = "[identity]\nuser = \"header:x-user\"\n[access]\ndeny = { user = [\"eve\"] }";
    let gone =
        Config::to(&upstream).limit(limit).also(identity).also(LOG).server("max_body = \"9B\"");
    let weir = Weir::start(&gone);
    let long = "POST / HTTP/1.1\r\nHost: a\r\nX-User: b\r\nContent-Length: 10\r\n\r\n0123456789";
    let rows = [
        (get_with("/", "X-User: ann\r\n"), 200, None),
        (get_with("/", "X-User: ann\r\nX-Cost: 9\r\n"), 429, Some("cost_exceeds_limit")),
        (get_with("/", "X-User: ann\r\nX-Cost: 2\r\n"), 429, Some("rate_limit_exceeded")),
        (get_with("/", "X-User: eve\r\n"), 403, Some("denied")),
        (get("/"), 403, Some("missing_key")),
        (get_with("/", "X-User: a\r\nX-User: b\r\n"), 400, Some("bad_request")),
        (long.to_owned(), 413, Some("body_too_large")),
        ("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 405, Some("method_not_allowed")),
        ("nonsense\r\n\r\n".to_owned(), 400, Some("bad_request")),
    ];
    for (number, (request, status, error)) in rows.iter().enumerate() {
        let response = weir.ask(request);
        assert_eq!(response.status, *status, "{request}");
        wait_until("it is logged", || lines(&weir).len() > number);
        let line = &lines(&weir)[number];
        assert_eq!(line["status"], *status, "{line}");
        assert_eq!(line.get("error").and_then(Value::as_str), *error, "{line}");
        if let Some(error) = error {
            assert_eq!(response.error(), *error, "as its body does");
        }
    }
    drop(upstream);
    assert_eq!(weir.ask(get_with("/", "X-User: fred\r\n")).status, 502);
    wait_until("it is logged", || lines(&weir).len() > rows.len());
    assert_eq!(lines(&weir)[rows.len()]["error"], "upstream_unavailable");
}

#[test]
fn a_body_that_is_announced_too_large_is_logged_as_any_other_request() {
    let upstream = Upstream::ok();
    let config = Config::to(&upstream).also(LOG).server("max_body = \"10B\"");
    let weir = Weir::start(&config);
    for (lines_of, length) in [("", 11), ("", 5_000_000), ("Expect: 100-continue\r\n", 11)] {
        let before = lines(&weir).len();
        let request = format!(
            "PUT /a/b?c HTTP/1.1\r\nHost: x.test\r\n{lines_of}Content-Length: {length}\r\n\r\n"
        );
        let mut client = weir.connect();
        client.send(&request);
        let response = client.response();
        assert_eq!((response.status, response.error()), (413, "body_too_large".into()));
        assert!(response.interim.is_empty(), "nobody asks for it");
        assert_eq!(response.one("connection"), "close");
        wait_until("it is logged", || lines(&weir).len() > before);
        let line = &lines(&weir)[before];
        for (name, value) in
            [("method", "PUT"), ("path", "/a/b"), ("host", "x.test"), ("error", "body_too_large")]
        {
            assert_eq!(line[name], value, "{line}");
        }
        assert_eq!(line["route"], "all", "{line}");
        assert_eq!(line["request_id"], response.one("x-request-id"));
    }
    assert_eq!(upstream.heads(), 0);
    let labels = [("route", "all"), ("status", "413")];
    wait_until("they count for their route", || {
        weir.metrics().value("weir_requests_total", &labels) == Some(3.0)
    });
}

#[test]
fn lines_can_be_as_nginx_writes_them() {
    let upstream = Upstream::ok();
    let log = format!("{LOG}\naccess_log_format = \"combined\"");
    let weir = Weir::start(&Config::to(&upstream).open().also(&log));
    let agent = "Referer: http://x/?q=\"1\"\r\nUser-Agent: a\\b \u{e9}\r\n";
    let answer = weir.ask(get_with("/a/b?secret=1", agent));
    assert_eq!(answer.status, 200);
    weir.ask("nonsense\r\n\r\n");
    let read = || std::fs::read_to_string(weir.directory().join("access.log")).unwrap_or_default();
    wait_until("both are logged", || read().lines().count() == 2);
    let text = read();
    let (first, second) = text.split_once('\n').unwrap();
    let (client, rest) = first.split_once(" - - [").unwrap();
    let (time, rest) = rest.split_once("] ").unwrap();
    assert_eq!((client, time.len()), ("127.0.0.1", 26), "{first}");
    assert!(time.ends_with(" +0000"), "{time}");
    let fields = "\"GET /a/b HTTP/1.1\" 200 2 \"http://x/?q=\\x221\\x22\" \"a\\x5Cb \\xC3\\xA9\"";
    assert_eq!(rest, fields);
    assert!(second.contains("] \"-\" 400 "), "{second}");
}
