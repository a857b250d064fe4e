//! `health` of an upstream: how it is found out which of its servers are well.

use std::ops::RangeInclusive;

use http::{HeaderValue, Uri};

use super::server::{SOME_TIME, read, secs};
use crate::config::file::{Section, Value};
use crate::config::settings::HealthCheck;
use crate::config::suggest::quote;

/// What `status` may be.
const FORM: &str = "write a status, a range such as `\"200-299\"`, or a list of them";

/// `None` if the file does not ask for it, or is wrong about it.
pub(super) fn health(upstream: &mut Section<'_>) -> Option<HealthCheck> {
    let mut section = upstream.section_like("health", "health = { path = \"/healthz\" }");
    let path = section.require("path", "path = \"/healthz\"");
    let host = section.get("host").map(|value| host(&value));
    let interval = read(&mut section, "interval", secs(5), |it| it.duration(SOME_TIME));
    let timeout = section.get("timeout");
    let status = section.get("status").map(|value| statuses(&value));
    let mut times = |key, usual| read(&mut section, key, usual, |it| it.integer(1..=1000)) as u32;
    let (healthy, unhealthy) = (times("healthy", 2), times("unhealthy", 3));
    let patience = match &timeout {
        Some(value) => value.duration(SOME_TIME).unwrap_or(secs(1)),
        None => secs(1).min(interval),
    };
    if let Some(value) = timeout.as_ref().filter(|_| patience > interval) {
        value.error("is more than `interval`", "a probe must be over before the next begins");
    }
    Some(HealthCheck {
        path: target(&path?)?,
        host: host.unwrap_or(Some(None))?,
        interval,
        timeout: patience,
        healthy,
        unhealthy,
        status: status.unwrap_or_else(|| Some(vec![200..=399]))?,
    })
}

fn target(value: &Value<'_>) -> Option<Uri> {
    let text = value.text("/healthz")?;
    let uri = text.parse::<Uri>().ok().filter(|_| text.starts_with('/'));
    if uri.is_none() {
        let help = "write one that begins with a slash, such as `\"/healthz\"`";
        value.error(&format!("is not a path: {}", quote(text)), help);
    }
    uri
}

fn host(value: &Value<'_>) -> Option<Option<HeaderValue>> {
    let text = value.text("api.internal")?;
    let good = |it: u8| it.is_ascii_alphanumeric() || b".-_:[]".contains(&it);
    let host = HeaderValue::from_str(text).ok();
    let host = host.filter(|_| !text.is_empty() && text.bytes().all(good));
    if host.is_none() {
        let help = "write a name, such as `\"api.internal\"`";
        value.error(&format!("cannot be {}", quote(text)), help);
    }
    host.map(Some)
}

fn statuses(value: &Value<'_>) -> Option<Vec<RangeInclusive<u16>>> {
    let entries = value.one_or_more();
    if entries.is_empty() {
        value.error("is empty: no server would ever be healthy", FORM);
    }
    let ranges: Vec<_> = entries.iter().filter_map(statuses_of).collect();
    (ranges.len() == entries.len() && !ranges.is_empty()).then_some(ranges)
}

fn statuses_of(value: &Value<'_>) -> Option<RangeInclusive<u16>> {
    let Some(text) = value.as_str() else {
        let status = value.integer(100..=599)? as u16;
        return Some(status..=status);
    };
    let status = |text: &str| text.trim().parse::<u16>().ok().filter(|it| (100..=599).contains(it));
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (status(first), status(last)) {
        (Some(first), Some(last)) if first <= last => Some(first..=last),
        _ => {
            value.error(&format!("is not a range of statuses: {}", quote(text)), FORM);
            None
        }
    }
}
