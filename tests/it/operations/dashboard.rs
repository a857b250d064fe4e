//! Whether the dashboard and the alerts query what a gateway exports, without a Prometheus.

use std::process::Command;

use crate::support::{Certificates, Config, TlsClient, Upstream, Weir, get, tool, wait_until};

/// What the checks take on trust of a page that has no certificate, no upstream and no queue.
const ON_TRUST: [&str; 10] = [
    "weir_tls_certificate_expiry_seconds",
    "weir_upstream_breaker_open",
    "weir_upstream_ejections_total",
    "weir_upstream_errors_total",
    "weir_upstream_healthy",
    "weir_upstream_pending",
    "weir_upstream_seconds_bucket",
    "weir_upstream_seconds_count",
    "weir_upstream_seconds_sum",
    "weir_queue_depth",
];

#[test]
fn dashboard_and_alerts_query_exported_metrics() {
    let (certificates, upstream) = (Certificates::new(), Upstream::ok());
    let all = "health = { path = \"/\" }\nbreaker = { failures = 20 }\nmax_connections = 10";
    let waits = "key = \"ip\"\nrate = \"100/second\"\nburst = 1\nstrategy = \"queue\"";
    let watches = "key = \"ip\"\nrate = \"1/day\"\nburst = 1\nmode = \"shadow\"";
    let config = Config::to(&upstream)
        .open()
        .server(&format!("tls = {{ {} }}", certificates.pair("server")))
        .upstream(all)
        .add_limit("waits", waits)
        .add_limit("watches", watches)
        .route("all", "/*", &["waits", "watches"]);
    let weir = Weir::start(&config);
    let mut client = TlsClient::trusting(&certificates).connect(weir.address());
    for _ in 0..3 {
        assert_eq!(client.ask(get("/")).status, 200);
    }
    let counted = || weir.metrics().value("weir_requests_total", &[("route", "all")]);
    wait_until("all are counted", || counted() == Some(3.0));
    for name in ON_TRUST {
        // Probes begin a moment after the gateway answers.
        wait_until(name, || weir.metrics().value(name, &[]).is_some());
    }
    let page = weir.directory().join("metrics");
    std::fs::write(&page, weir.admin("/metrics").body).unwrap();
    let mut checks = Command::new("python3");
    checks.current_dir(env!("CARGO_MANIFEST_DIR"));
    checks.arg("tests/panels/panels.py").arg("--metrics").arg(&page);
    let Some(output) = tool("python3", checks.output()) else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    let faults: Vec<_> = said.lines().filter(|line| !line.starts_with("right")).collect();
    assert!(output.status.success(), "{faults:#?}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.ends_with("all is well\n") && said.contains("\nright  "), "{said}");
}
