//! Degraded requests whose own upstream is down.

use crate::support::ports::nobody;
use crate::support::{Config, Upstream, Weir, get, post};

#[test]
fn a_degraded_request_falls_back_to_the_routes_own_upstream() {
    let own = Upstream::ok();
    let limit = "key = \"ip\"\nrate = \"1/day\"\nburst = 1\nstrategy = \"degrade\"";
    let config = Config::to(&own)
        .limit(limit)
        .route("all", "/*", &["per-ip"])
        .route_lines("degrade = { upstream = \"cheap\" }")
        .also(&format!("[upstreams.cheap]\nservers = [\"http://{}\"]", nobody()));
    let weir = Weir::start(&config);
    let mut client = weir.connect();
    assert_eq!(client.ask(get("/first")).status, 200);
    assert!(!own.last().has("x-weir-degraded"));
    for request in [get("/second"), post("/third", "a body")] {
        assert_eq!(client.ask(request).status, 200);
        assert_eq!(own.last().one("x-weir-degraded"), "per-ip");
    }
    assert_eq!(own.last().body, b"a body");

    // One that was reached and failed has had the request.
    let broken = Upstream::scripted(|_| crate::support::After::Close);
    let config = Config::to(&own)
        .limit(limit)
        .route("all", "/*", &["per-ip"])
        .route_lines("degrade = { upstream = \"cheap\" }")
        .also(&format!(
            "[upstreams.cheap]\nretries = 0\nservers = [\"http://{}\"]",
            broken.address()
        ));
    let seen = own.heads();
    weir.reload(&config);
    assert_eq!(client.ask(post("/fourth", "x")).status, 502);
    assert_eq!(own.heads(), seen);
}
