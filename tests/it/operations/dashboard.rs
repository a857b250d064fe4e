//! Whether the dashboard and the alerts query what a gateway exports, without a Prometheus.

use std::process::Command;

use crate::support::{Config, Upstream, Weir, wait_until};

/// What the checks take on trust of a page that has no upstream and no queue.
const ON_TRUST: [&str; 5] = [
    "weir_upstream_errors_total",
    "weir_upstream_seconds_bucket",
    "weir_upstream_seconds_count",
    "weir_upstream_seconds_sum",
    "weir_queue_depth",
];

#[test]
fn dashboard_and_alerts_query_exported_metrics() {
    let upstream = Upstream::ok();
    let waits = "key = \"ip\"\nrate = \"100/second\"\nburst = 1\nstrategy = \"queue\"";
    let watches = "key = \"ip\"\nrate = \"1/day\"\nburst = 1\nmode = \"shadow\"";
    let config = Config::to(&upstream)
        .open()
        .add_limit("waits", waits)
        .add_limit("watches", watches)
        .route("all", "/*", &["waits", "watches"]);
    let weir = Weir::start(&config);
    for _ in 0..3 {
        assert_eq!(weir.get("/").status, 200);
    }
    let counted = || weir.metrics().value("weir_requests_total", &[("route", "all")]);
    wait_until("all are counted", || counted() == Some(3.0));
    for name in ON_TRUST {
        assert!(weir.metrics().value(name, &[]).is_some(), "there is no {name}");
    }
    let page = weir.directory().join("metrics");
    std::fs::write(&page, weir.admin("/metrics").body).unwrap();
    let mut checks = Command::new("python3");
    checks.current_dir(env!("CARGO_MANIFEST_DIR"));
    checks.arg("tests/panels/panels.py").arg("--metrics").arg(&page);
    let output = match checks.output() {
        Ok(output) => output,
        // Where CI is set that is a failure: a test that is skipped there would never be missed.
        Err(error) if std::env::var_os("CI").is_none() => {
            eprintln!("skipped: cannot run python3: {error}");
            return;
        }
        Err(error) => panic!("cannot run python3: {error}"),
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let faults: Vec<_> = said.lines().filter(|line| !line.starts_with("right")).collect();
    assert!(output.status.success(), "{faults:#?}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.ends_with("all is well\n") && said.contains("\nright  "), "{said}");
}
