//! Methods: which of them a limit takes for which, and which the gateway answers itself.

use crate::support::{Config, Upstream, Weir, get, get_with};

/// One request an hour, of these methods.
fn limited(upstream: &Upstream, methods: &str) -> Config {
    let limit = "key = \"ip\"\nrate = \"1/hour\"\nburst = 1\nwhen = { method = METHODS }";
    Config::to(upstream).limit(&limit.replace("METHODS", methods))
}

#[test]
fn head_counts_as_get_where_a_limit_asks_for_the_method() {
    let upstream = Upstream::ok();
    let head = |weir: &Weir| {
        let mut client = weir.connect();
        client.send(get("/").replace("GET", "HEAD"));
        client.head_response().status
    };
    let weir = Weir::start(&limited(&upstream, "[\"GET\", \"DELETE\"]"));
    assert_eq!((head(&weir), weir.get("/").status, head(&weir)), (200, 429, 429));
    assert_eq!(weir.ask(get("/").replace("GET", "POST")).status, 200);
    // Not the other way round: GET is more than HEAD.
    let weir = Weir::start(&limited(&upstream, "\"HEAD\""));
    assert_eq!((head(&weir), head(&weir), weir.get("/").status), (200, 429, 200));
}

#[test]
fn a_header_cannot_override_a_method_that_a_limit_asks_for() {
    const OVERRIDES: [&str; 4] =
        ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "X_HTTP_Method_Override"];
    let upstream = Upstream::ok();
    let sent = |config: &Config, name: &str| {
        let weir = Weir::start(config);
        let request = get_with("/", &format!("{name}: DELETE\r\n")).replace("GET", "POST");
        assert_eq!(weir.ask(request).status, 200);
        upstream.last().has(name)
    };
    for name in OVERRIDES {
        assert!(!sent(&limited(&upstream, "\"DELETE\""), name), "{name} went through");
        assert!(sent(&Config::to(&upstream), name), "{name} was nobody's business");
    }
}
