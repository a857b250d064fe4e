//! Traces and ids: what upstreams and clients are told.

use crate::support::{Config, Upstream, Weir, get, get_with};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const ON: &str = "[telemetry.traces]\nenabled = true";

/// The values of a header in the last request that the upstream got.
fn told(upstream: &Upstream, name: &str) -> Vec<String> {
    let last = upstream.last();
    last.all(name).into_iter().map(str::to_owned).collect()
}

fn passed_on(weir: &Weir, upstream: &Upstream, lines: &str) -> (String, Vec<String>) {
    assert_eq!(weir.ask(get_with("/", lines)).status, 200);
    let parents = told(upstream, "traceparent");
    assert_eq!(parents.len(), 1, "{parents:?}");
    (parents[0].clone(), told(upstream, "tracestate"))
}

#[test]
fn a_trace_goes_on_with_another_parent() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&Config::to(&upstream).open().also(ON));
    let lines = format!("Traceparent: {PARENT}\r\nTracestate: a=1\r\nTracestate: b=2\r\n");
    let (parent, state) = passed_on(&weir, &upstream, &lines);
    assert!(parent.starts_with("00-0af7651916cd43dd8448eb211c80319c-"), "{parent}");
    assert!(parent.ends_with("-01") && !parent.contains("b7ad6b7169203331"), "{parent}");
    assert_eq!(state, ["a=1,b=2"]);
    let (other, _) = passed_on(&weir, &upstream, &lines);
    assert_ne!(other, parent, "each request is a span of its own");
}

#[test]
fn without_a_valid_trace_one_begins() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&Config::to(&upstream).open().also(ON));
    let twice = format!("Traceparent: {PARENT}\r\nTraceparent: {PARENT}\r\n");
    let zero = PARENT.replace("b7ad6b7169203331", "0000000000000000");
    for lines in ["", "Traceparent: nonsense\r\n", &twice, &format!("Traceparent: {zero}\r\n")] {
        let lines = format!("{lines}Tracestate: a=1\r\n");
        let (parent, state) = passed_on(&weir, &upstream, &lines);
        assert_eq!((parent.len(), parent.contains("0af76519")), (55, false), "{parent}");
        assert!(parent.ends_with("-02"), "random and not sampled: {parent}");
        assert!(state.is_empty(), "{state:?}");
    }
    weir.reload(&Config::to(&upstream).open().also(&format!("{ON}\nsample = 1.0")));
    let (parent, _) = passed_on(&weir, &upstream, "");
    assert!(parent.ends_with("-03"), "{parent}");
}

#[test]
fn traces_of_strangers_are_not_continued_where_only_proxies_may_name_them() {
    let upstream = Upstream::ok();
    let config = Config::to(&upstream).open().also(&format!("{ON}\naccept = \"trusted\""));
    let weir = Weir::start(&config);
    let lines = format!("Traceparent: {PARENT}\r\nTracestate: a=1\r\n");
    let (parent, state) = passed_on(&weir, &upstream, &lines);
    assert!(!parent.contains("0af76519") && state.is_empty(), "{parent} {state:?}");
    let trusting = config.also("[identity]\ntrusted_proxies = [\"127.0.0.0/8\"]");
    weir.reload(&trusting);
    let (parent, state) = passed_on(&weir, &upstream, &lines);
    assert!(parent.contains("0af76519"), "{parent}");
    assert_eq!(state, ["a=1"]);
}

#[test]
fn switched_off_they_pass_as_they_are() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&Config::to(&upstream).open());
    let answer = weir.ask(get_with("/", "Traceparent: what\r\nTracestate: ever\r\n"));
    assert!(answer.all("x-request-id").is_empty());
    assert_eq!(told(&upstream, "traceparent"), ["what"]);
    assert_eq!(told(&upstream, "tracestate"), ["ever"]);
    assert_eq!(weir.get("/").status, 200);
    assert!(told(&upstream, "traceparent").is_empty());
    assert!(told(&upstream, "x-request-id").is_empty());
}

#[test]
fn a_request_has_one_id_on_its_whole_way() {
    let upstream = Upstream::ok();
    let of = |source: &str| {
        let telemetry = format!("[telemetry]\nrequest_id = \"{source}\"");
        Config::to(&upstream).limit("key = \"ip\"\nrate = \"1/day\"\nburst = 9").also(&telemetry)
    };
    let weir = Weir::start(&of("trusted"));
    let brought = "X-Request-Id: mine-1\r\n";
    let ask = || {
        let answer = weir.ask(get_with("/", brought));
        let id = answer.one("x-request-id").to_owned();
        if answer.status == 200 {
            assert_eq!(
                told(&upstream, "x-request-id"),
                [id.as_str()],
                "the upstream's is the same"
            );
        }
        id
    };
    let one = ask();
    assert_eq!((one.len(), one == ask()), (32, false), "a new one for each");
    weir.reload(&of("trusted").also("[identity]\ntrusted_proxies = [\"127.0.0.1\"]"));
    assert_eq!(ask(), "mine-1", "from a trusted proxy");
    weir.reload(&of("any"));
    assert_eq!(ask(), "mine-1");
    let refused = std::iter::repeat_with(|| weir.get("/")).take(20).find(|it| it.status == 429);
    assert_eq!(refused.unwrap().one("x-request-id").len(), 32, "refusals have one, too");
    assert_eq!(weir.ask(get("/../..")).one("x-request-id").len(), 32, "and so have faults");
}
