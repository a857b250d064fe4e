//! What becomes of the requests of a route: `upstream`, `redirect` or `respond`.

use bytes::Bytes;
use http::{HeaderValue, StatusCode};

use super::names::NameTable;
use super::server::read;
use super::template;
use super::upstreams::ECHO;
use crate::config::file::{Section, Value};
use crate::config::settings::{FixedResponse, PathPattern, Redirect, Target};
use crate::config::suggest::quote;

const TARGETS: [&str; 3] = ["upstream", "redirect", "respond"];
/// The statuses of a redirect.
const REDIRECTS: [u64; 5] = [301, 302, 303, 307, 308];
/// The largest body that a configuration may hold.
const MAX_BODY: usize = 64 * 1024;
const PLAIN_TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// One of the three, which has to be there.
pub(super) fn target(
    section: &mut Section<'_>,
    path: Option<&PathPattern>,
    upstreams: &NameTable,
) -> Option<Target> {
    let upstream = section.get("upstream");
    let written = TARGETS.into_iter().filter(|key| section.has(key)).count();
    let targets = [
        upstream.and_then(|value| upstream_target(&value, upstreams)),
        redirect(section.section("redirect"), path).map(Target::Redirect),
        respond(section.section("respond")).map(Target::Respond),
    ];
    match written {
        0 => section.report_none_of(&TARGETS, "upstream = \"echo\""),
        1 => return targets.into_iter().flatten().next(),
        _ => section.error(
            "has more than one of `upstream`, `redirect` and `respond`",
            "keep the one that is to become of its requests",
        ),
    }
    None
}

/// An upstream by its name.
pub(super) fn upstream_target(value: &Value<'_>, upstreams: &NameTable) -> Option<Target> {
    match value.text("echo")? {
        ECHO => Some(Target::Echo),
        name => upstreams.resolve(name, value).map(Target::Upstream),
    }
}

fn redirect(mut section: Section<'_>, path: Option<&PathPattern>) -> Option<Redirect> {
    let to = section.require("to", "to = \"https://example.com{path}\"");
    let to = to.and_then(|value| template::location(&value, path));
    let status = read(&mut section, "status", StatusCode::PERMANENT_REDIRECT, |value| {
        let help = "write 301, 302, 303, 307 or 308";
        let code = value.integer_or(301..=308, help)?;
        let is_redirect = REDIRECTS.contains(&code);
        if !is_redirect {
            value.error(&format!("is no redirect with a location: {code}"), help);
        }
        StatusCode::from_u16(code as u16).ok().filter(|_| is_redirect)
    });
    Some(Redirect { to: to?, status })
}

fn respond(mut section: Section<'_>) -> Option<FixedResponse> {
    let present = section.is_present();
    let status = read(&mut section, "status", StatusCode::OK, |value| {
        StatusCode::from_u16(value.integer(200..=599)? as u16).ok()
    });
    let body = section.get("body");
    let text = body.as_ref().map_or(Some(""), |value| value.text("ok"))?;
    if let Some(value) = body.as_ref().filter(|_| text.len() > MAX_BODY) {
        value.error("is longer than 64KiB", "have an upstream answer with it");
        return None;
    }
    let bodiless = [StatusCode::NO_CONTENT, StatusCode::RESET_CONTENT, StatusCode::NOT_MODIFIED];
    if let Some(value) = body.as_ref().filter(|_| !text.is_empty() && bodiless.contains(&status)) {
        value.error(&format!("cannot be sent with status {}", status.as_u16()), "leave it out");
        return None;
    }
    let written = section.get("content_type");
    let content_type = match &written {
        Some(value) => Some(content_type(value)?),
        None => (!text.is_empty()).then_some(PLAIN_TEXT),
    };
    let body = Bytes::copy_from_slice(text.as_bytes());
    present.then_some(FixedResponse { status, body, content_type })
}

fn content_type(value: &Value<'_>) -> Option<HeaderValue> {
    let text = value.text("text/plain")?;
    let is_type = text.split_once('/').is_some_and(|(kind, rest)| {
        !kind.is_empty()
            && !rest.is_empty()
            && kind.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-')
    });
    let content = HeaderValue::from_str(text).ok().filter(|_| is_type && text.trim() == text);
    if content.is_none() {
        value.error(
            &format!("is not a content type: {}", quote(text)),
            "write one such as `\"text/html\"`",
        );
    }
    content
}
