//! What is recorded of requests, and where: a row for whatever is not as usual.

use super::table;
use crate::config::settings::{
    AccessLogFormat, AuditTargets, IdSource, LogTarget, Telemetry, Traces,
};

pub(super) fn logs(telemetry: &Telemetry) -> String {
    let mut rows = Vec::new();
    let mut add = |name: &str, what: String| rows.push(vec![name.to_owned(), what]);
    let is_logged = telemetry.access_log != LogTarget::Off;
    if is_logged {
        let format = match telemetry.access_log_format {
            AccessLogFormat::Json => "json",
            AccessLogFormat::Combined => "combined",
        };
        add("access_log", format!("{}, {format}", target(&telemetry.access_log)));
    }
    if telemetry.audit_log.lines != [LogTarget::Stderr] {
        add("audit_log", audit(&telemetry.audit_log));
    }
    if telemetry.hash_keys {
        add("hash_keys", "callers by a hash".to_owned());
    }
    match telemetry.request_id {
        Some(IdSource::Any) if is_logged => {}
        None => {}
        source => add("request_id", format!("of {}", believed(source))),
    }
    if telemetry.traces.enabled {
        add("traces", traces(&telemetry.traces));
    }
    table(rows)
}

fn target(target: &LogTarget) -> String {
    match target {
        LogTarget::Off => "off".to_owned(),
        LogTarget::Stdout => "stdout".to_owned(),
        LogTarget::Stderr => "stderr".to_owned(),
        LogTarget::File(path) => path.display().to_string(),
    }
}

fn audit(targets: &AuditTargets) -> String {
    let redis = targets.redis.then(|| "redis".to_owned());
    let all: Vec<String> = targets.lines.iter().map(target).chain(redis).collect();
    if all.is_empty() { "off".to_owned() } else { all.join(", ") }
}

fn believed(source: Option<IdSource>) -> &'static str {
    match source {
        Some(IdSource::Any) => "anybody",
        Some(IdSource::TrustedProxies) => "trusted proxies",
        None => "nobody",
    }
}

fn traces(traces: &Traces) -> String {
    let share = f64::from(traces.sample_thousandths) / 10.0;
    let mut text = format!("of {} go on, {share} % of others sampled", believed(traces.accept));
    if let Some((endpoint, name)) = traces.exported() {
        text.push_str(&format!(", to http://{}{} as {name}", endpoint.authority, endpoint.path));
    }
    text
}
