//! Ids of requests, traces, and the format of the access log.

use super::faults::{each_good, each_refused, each_warned};
use super::{good, with_route};
use crate::config::settings::{AccessLogFormat, IdSource, Telemetry, Traces};

fn telemetry(text: &str) -> Telemetry {
    good(&with_route(text)).settings.telemetry
}

#[test]
fn requests_have_ids_if_they_are_logged_or_somebody_wants_it() {
    let of = |keys: &str| telemetry(&format!("[telemetry]\n{keys}")).request_id;
    assert_eq!(of(""), None);
    assert_eq!(of("access_log = \"stdout\""), Some(IdSource::Any));
    assert_eq!(of("access_log = \"stdout\"\nrequest_id = \"off\""), None);
    assert_eq!(of("request_id = \"trusted\""), Some(IdSource::TrustedProxies));
    assert_eq!(of("request_id = \"any\""), Some(IdSource::Any));
}

#[test]
fn a_line_is_json_or_combined() {
    let of = |keys: &str| telemetry(&format!("[telemetry]\n{keys}")).access_log_format;
    assert_eq!(of(""), AccessLogFormat::Json);
    assert_eq!(of("access_log_format = \"combined\""), AccessLogFormat::Combined);
}

#[test]
fn traces_are_off_and_then_continued_from_anybody() {
    let off = Traces {
        accept: Some(IdSource::Any),
        service_name: "weir".to_owned(),
        ..Traces::default()
    };
    assert_eq!(telemetry("").traces, off);
    let on = "[telemetry.traces]\nenabled = true\naccept = \"trusted\"\nsample = 0.25\n\
              service_name = \"shop\"";
    let expected = Traces {
        enabled: true,
        accept: Some(IdSource::TrustedProxies),
        sample_thousandths: 250,
        export: None,
        service_name: "shop".to_owned(),
    };
    assert_eq!(telemetry(on).traces, expected);
    let nobody = "[telemetry.traces]\nenabled = true\naccept = \"off\"";
    assert_eq!(telemetry(nobody).traces.accept, None);
}

#[test]
fn faults_of_ids_traces_and_log_formats_say_what_to_write() {
    let keys = |keys: &str| with_route(&format!("[telemetry]\n{keys}"));
    let traces = |keys: &str| with_route(&format!("[telemetry.traces]\nenabled = true\n{keys}"));
    each_refused(&[
        (keys("request_id = true"), "must be a string, not a boolean; write `any`, `trusted`"),
        (keys("request_id = \"trused\""), "did you mean `trusted`?"),
        (keys("access_log_format = \"nginx\""), "cannot be `nginx`; write `json` or `combined`"),
        (traces("sample = 2"), "is out of range: `2`; write a number from 0.0 to 1.0"),
        (traces("accept = \"all\""), "cannot be `all`"),
        (traces("service_name = \"\""), "write a name of up to 128 characters"),
        (traces("export = \"127.0.0.1:4318\""), "is not the address of a collector"),
        (traces("export = \"https://a:4318\""), "run a collector beside the gateway"),
        (traces("export = \"http://a:4318/?b\""), "has a query, a user or a fragment in it"),
        (traces("exports = \"http://a:4318\""), "did you mean `export`?"),
    ]);
}

#[test]
fn what_has_no_effect_is_warned_of() {
    let keys = |keys: &str| with_route(&format!("[telemetry]\n{keys}"));
    let traces = |keys: &str| with_route(&format!("[telemetry.traces]\n{keys}"));
    each_warned(&[
        (traces("sample = 0.5"), "`sample` has no effect: traces are off; add `enabled = true`"),
        (
            keys("request_id = \"trusted\""),
            "`request_id` believes nobody: there are no `trusted_proxies`; list your proxies in",
        ),
        (traces("enabled = true\naccept = \"trusted\""), "`accept` believes nobody: there are no"),
        (
            keys("access_log_format = \"combined\""),
            "`access_log_format` has no effect: there is no `access_log`; add one such as",
        ),
    ]);
    let proxies = "[identity]\ntrusted_proxies = [\"10.0.0.1\"]\n";
    each_good(&[
        keys("request_id = \"trusted\"\n") + proxies,
        traces("enabled = true\naccept = \"trusted\"\n") + proxies,
        traces("accept = \"trusted\"\nsample = 0.0"),
        keys("access_log = \"stdout\"\naccess_log_format = \"combined\""),
    ]);
}

#[cfg(feature = "otlp")]
#[test]
fn a_collector_is_named_by_its_address() {
    let export = |text: &str| {
        let text = format!("[telemetry.traces]\nenabled = true\nexport = \"{text}\"");
        let it = telemetry(&text).traces.export.expect("a collector");
        (it.host, it.port, it.authority, it.path)
    };
    let of = |host: &str, port, authority: &str, path: &str| {
        (host.to_owned(), port, authority.to_owned(), path.to_owned())
    };
    assert_eq!(export("http://otel"), of("otel", 4318, "otel:4318", "/v1/traces"));
    assert_eq!(export("http://[::1]:80/"), of("::1", 80, "[::1]:80", "/v1/traces"));
    assert_eq!(export("http://a:1/x/y"), of("a", 1, "a:1", "/x/y"));
    each_warned(&[(
        with_route("[telemetry.traces]\nexport = \"http://a\""),
        "has no effect: traces are off",
    )]);
}

#[cfg(not(feature = "otlp"))]
#[test]
fn a_build_that_cannot_export_says_so() {
    each_refused(&[(
        with_route("[telemetry.traces]\nenabled = true\nexport = \"http://a\""),
        "which this one does not; build it with `cargo build --release --features otlp`",
    )]);
    each_warned(&[]);
}
