//! `forward` of `[identity]`: the headers by which upstreams are told of the caller.

use http::HeaderName;

use super::request_source::{KnownIdentities, is_connection_header};
use crate::config::file::{Section, UniqueValues, Value};
use crate::config::settings::{ForwardedIdentity, IdentityName};
use crate::config::suggest::quote;
use crate::field_class::FieldClass;
use crate::limit::Source;

/// Whether a header says something else already, or is one that Weir writes itself.
fn is_taken(name: &str) -> bool {
    // What other proxies call the caller may be its name here, too.
    let is_free = matches!(FieldClass::of(name), FieldClass::Claim | FieldClass::Other);
    !is_free
        || is_connection_header(name)
        || matches!(name, "accept" | "date" | "origin" | "user-agent")
}

pub(super) fn forward(mut section: Section<'_>, known: KnownIdentities) -> ForwardedIdentity {
    let mut headers = Vec::new();
    let mut seen = UniqueValues::new();
    for (key, name, source) in [
        ("user", IdentityName::User, Some(Source::User)),
        ("client", IdentityName::Client, Some(Source::Client)),
        ("tenant", IdentityName::Tenant, Some(Source::Tenant)),
        ("plan", IdentityName::Plan, Some(Source::Plan)),
        ("ip", IdentityName::Ip, None),
    ] {
        let Some(value) = section.get(key) else { continue };
        if let Some(error) = source.and_then(|source| known.check(&source).err()) {
            value.error("cannot be told: `[identity]` does not say where it is found", error.help);
            continue;
        }
        let Some(header) = header(&value) else { continue };
        // Upstreams may not tell `_` from `-`, so the two would be one.
        if seen.insert(header.as_str().replace('_', "-"), &value) {
            headers.push((name, header));
        }
    }
    ForwardedIdentity { headers }
}

fn header(value: &Value<'_>) -> Option<HeaderName> {
    let text = value.text("x-user-id")?;
    let Ok(name) = HeaderName::from_bytes(text.as_bytes()) else {
        value.error(
            &format!("is not the name of a header: {}", quote(text)),
            "write one such as `\"x-user-id\"`",
        );
        return None;
    };
    let meant = name.as_str().replace('_', "-");
    if is_taken(&meant) {
        value.error(
            &format!("cannot be {}: it means something else", quote(text)),
            "write a header that nothing else uses, such as `\"x-user-id\"`",
        );
        return None;
    }
    Some(name)
}
