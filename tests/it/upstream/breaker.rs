//! An upstream that is down is not asked any more, until a trial finds it back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::upstream::ok;
use crate::support::{After, Config, Upstream, Weir, get, post, wait_until};

#[test]
fn a_breaker_answers_at_once_while_it_is_open_and_closes_with_a_trial() {
    let broken = Arc::new(AtomicBool::new(true));
    let is_broken = broken.clone();
    let upstream = Upstream::scripted(move |exchange| {
        exchange.read_body();
        if is_broken.load(Ordering::SeqCst) {
            return After::Close;
        }
        exchange.reply(ok("ok"));
        After::Keep
    });
    let lines = "retries = 0\nbreaker = { failures = 4, window = \"1m\", open = \"1500ms\" }";
    let weir = Weir::start(&Config::to(&upstream).open().upstream(lines));
    let open = || weir.metrics().value("weir_upstream_breaker_open", &[("upstream", "api")]);
    assert_eq!(open(), Some(0.0));
    let mut client = weir.connect();
    for _ in 0..4 {
        assert_eq!(client.ask(post("/", "x")).status, 502);
    }
    assert_eq!(open(), Some(1.0));
    let response = client.ask(get("/"));
    assert_eq!((response.status, response.error()), (503, "upstream_unavailable".into()));
    assert!(matches!(response.one("retry-after"), "1" | "2"), "{response:?}");
    assert_eq!(response.one("proxy-status"), "weir; error=destination_unavailable");
    // All workers know of it.
    assert!((0..4).all(|_| weir.get("/").status == 503));
    assert_eq!(upstream.heads(), 4);

    broken.store(false, Ordering::SeqCst);
    wait_until("a trial has closed it", || client.ask(get("/")).status == 200);
    assert!((0..10).all(|_| client.ask(get("/")).status == 200));
    assert_eq!(open(), Some(0.0));
    let labels = [("upstream", "api"), ("error", "breaker_open")];
    assert!(weir.metrics().value("weir_upstream_errors_total", &labels).unwrap() >= 5.0);
    for text in ["the breaker of upstream `api` is open", "the breaker of upstream `api` is closed"]
    {
        assert_eq!(weir.output().matches(text).count(), 1, "{}", weir.output());
    }
}
