//! Which address a request counts by.

use crate::support::{Config, Upstream, Weir, get_with};

const TRUSTED: &str = "trusted_proxies = [\"127.0.0.0/8\", \"10.0.0.0/8\", \"fd00::/8\"]";

#[test]
fn one_route_limits_short_and_long_prefixes_together() {
    let upstream = Upstream::ok();
    let tables = format!(
        r#"
            [identity]
            {TRUSTED}
            [limits.near]
            key = "ip"
            rate = "1/day"
            burst = 1
            [limits.far]
            key = "ip/48"
            rate = "1/day"
            burst = 2
            [[routes]]
            name = "all"
            path = "/*"
            upstream = "api"
            limits = ["near", "far"]
        "#
    );
    let weir = Weir::start(&Config::to(&upstream).open().routes(&tables));
    let ask = |ip: &str| {
        let response = weir.ask(get_with("/", &format!("X-Forwarded-For: {ip}\r\n")));
        let refusing = if response.status == 429 {
            response.json()["limit"].to_string()
        } else {
            String::new()
        };
        (response.status, refusing)
    };
    assert_eq!(ask("2001:db8:1:1::1").0, 200);
    assert_eq!(ask("2001:db8:1:1::2"), (429, "\"near\"".into()), "the same /64");
    assert_eq!(ask("2001:db8:1:2::1").0, 200, "another /64 of the /48");
    assert_eq!(ask("2001:db8:1:3::1"), (429, "\"far\"".into()), "the /48 is spent");
    assert_eq!(ask("2001:db8:2:1::1").0, 200, "another /48");
    // IPv4 counts whole with either.
    assert_eq!(ask("192.0.2.1").0, 200);
    assert_eq!(ask("192.0.2.1"), (429, "\"near\"".into()));
    assert_eq!(ask("192.0.2.2").0, 200);
}
