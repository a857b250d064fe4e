//! `[telemetry.traces]`: which traces requests belong to, and where spans go.

use http::Uri;

use super::server::read;
use super::telemetry::id_source;
use crate::config::file::{Section, Value};
use crate::config::settings::{IdSource, OtlpEndpoint, Traces};
use crate::config::suggest::quote;

const FORM: &str = "write the address of a collector, such as `\"http://127.0.0.1:4318\"`";
/// Where a collector takes traces, by the protocol.
const PATH: &str = "/v1/traces";
/// The port of OTLP over HTTP.
const PORT: u16 = 4318;

/// `has_proxies`: whether there are any to trust.
pub(super) fn traces(mut section: Section<'_>, has_proxies: bool) -> Traces {
    let enabled = read(&mut section, "enabled", false, Value::boolean);
    let accept = read(&mut section, "accept", Some(IdSource::Any), |it| {
        id_source(it, has_proxies || !enabled)
    });
    let off = |value: &Value<'_>| {
        value.warning("has no effect: traces are off", "add `enabled = true`, or remove it");
    };
    let sample_thousandths = read(&mut section, "sample", 0, |value| {
        let share = value.thousandths(1000)?;
        if share > 0 && !enabled {
            off(value);
        }
        Some(share)
    });
    let service_name = read(&mut section, "service_name", "weir".to_owned(), service_name);
    let export = section.get("export").and_then(|value| {
        let endpoint = endpoint(&value)?;
        if !enabled {
            off(&value);
        }
        Some(endpoint)
    });
    Traces { enabled, accept, sample_thousandths, export, service_name }
}

fn service_name(value: &Value<'_>) -> Option<String> {
    let name = value.text("weir")?;
    if name.is_empty() || name.len() > 128 || name.chars().any(char::is_control) {
        value.error(&format!("cannot be {}", quote(name)), "write a name of up to 128 characters");
        return None;
    }
    Some(name.to_owned())
}

fn endpoint(value: &Value<'_>) -> Option<OtlpEndpoint> {
    let text = value.text("http://127.0.0.1:4318")?;
    if text.starts_with("https://") {
        value.error(
            "is an https address: spans are sent over plain HTTP only",
            "run a collector beside the gateway, and let that speak TLS to others",
        );
        return None;
    }
    let uri = text.parse::<Uri>().ok().filter(|it| it.scheme_str() == Some("http"));
    let Some((uri, host)) = uri.as_ref().and_then(|it| Some((it, it.host()?))) else {
        value.error(&format!("is not the address of a collector: {}", quote(text)), FORM);
        return None;
    };
    if uri.query().is_some() || text.contains('@') || text.contains('#') {
        value.error("has a query, a user or a fragment in it", FORM);
        return None;
    }
    if !cfg!(feature = "otlp") {
        value.error(
            "goes with a build that exports traces, which this one does not",
            "build it with `cargo build --release --features otlp`, or leave it out",
        );
        return None;
    }
    let port = uri.port_u16().unwrap_or(PORT);
    let path = match uri.path() {
        "" | "/" => PATH,
        path => path,
    };
    Some(OtlpEndpoint {
        host: host.trim_matches(['[', ']']).to_owned(),
        port,
        authority: format!("{host}:{port}"),
        path: path.to_owned(),
    })
}
