//! `request_headers` and `response_headers` of a route: what to set and what to remove.

use http::{HeaderName, HeaderValue};

use crate::config::diagnostic::Diagnostic;
use crate::config::file::{Section, UniqueValues, Value};
use crate::config::settings::HeaderEdits;
use crate::config::suggest::quote;

/// They describe one connection (RFC 9110 section 7.6.1), frame a message, or choose where it
/// goes: changing them would break it on the wire.
const UNTOUCHABLE: [&str; 9] = [
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

pub(super) fn edits(mut section: Section<'_>) -> HeaderEdits {
    let mut edits = HeaderEdits::default();
    let mut seen = UniqueValues::new();
    for (written, value) in section.author_keys("set") {
        let name = name(written, &value, value.key());
        let content = content(&value);
        let Some((name, content)) = name.zip(content) else { continue };
        if seen.insert_key(name.clone(), &value) {
            edits.set.push((name, content));
        }
    }
    let removed = section.get("remove").and_then(|value| value.list("[\"x-debug\"]"));
    for entry in removed.unwrap_or_default() {
        let name = entry.text("x-debug").and_then(|it| name(it, &entry, entry.span()));
        if let Some(name) = name.filter(|name| seen.insert(name.clone(), &entry)) {
            edits.remove.push(name);
        }
    }
    edits
}

fn name(written: &str, value: &Value<'_>, span: std::ops::Range<usize>) -> Option<HeaderName> {
    let Ok(name) = HeaderName::from_bytes(written.as_bytes()) else {
        let message = format!("{} cannot be the name of a header", quote(written));
        let help = "use letters, digits and `-`, such as `x-request-source`";
        value.report(Diagnostic::error(span, message).help(help));
        return None;
    };
    if UNTOUCHABLE.contains(&name.as_str()) {
        let message = format!("the header `{name}` cannot be changed by a route");
        let help = "leave it out: Weir writes it as the connection and the message require";
        value.report(Diagnostic::error(span, message).help(help));
        return None;
    }
    Some(name)
}

fn content(value: &Value<'_>) -> Option<HeaderValue> {
    let text = value.text("yes")?;
    match HeaderValue::from_str(text) {
        Ok(content) if text.trim() == text => Some(content),
        Ok(_) => {
            value.error("has spaces around its value", "leave them out: they would not arrive");
            None
        }
        Err(_) => {
            // It may be a secret: it is not repeated.
            value.error(
                "cannot be sent in a header",
                "leave out line breaks and other control characters",
            );
            None
        }
    }
}
