//! What a limit counts by: one source, or several.

use http::header;

use super::request_source::{self, KnownIdentities, SourceUse};
use crate::config::file::{Value, unique_values};
use crate::limit::{Key, Source};

pub(super) fn key(value: &Value<'_>, known: KnownIdentities) -> Option<Key> {
    let entries = value.one_or_more();
    if entries.is_empty() {
        value.error("is empty", "write `\"global\"` to count all requests together");
        return None;
    }
    let sources = unique_values(&entries, |entry| source(entry, known));
    if sources.len() > 1 && sources.contains(&Source::Global) {
        value.error(
            "combines `global` with other sources, which it would not change",
            "leave `global` out, or use it alone",
        );
        return None;
    }
    (sources.len() == entries.len()).then_some(Key(sources))
}

fn source(value: &Value<'_>, known: KnownIdentities) -> Option<Source> {
    let parsed = request_source::parse(value.text("ip")?, SourceUse::Key);
    let source = parsed.and_then(|source| known.check(&source).map(|()| source));
    match &source {
        Err(error) => error.report(value),
        // No shorter one is ever handed out, and of IPv4 these are the usual ones.
        Ok(Source::IpPrefix(bits)) if *bits < 32 => value.warning(
            &format!("counts IPv6 addresses by {bits} bits, and IPv4 addresses whole"),
            "write a prefix of IPv6, such as `\"ip/48\"`, or `\"ip\"`",
        ),
        Ok(Source::Header(name)) if *name == header::COOKIE => value.warning(
            "counts by all cookies together, so any other cookie makes a new caller",
            "name the one that counts, such as `\"cookie:session\"`",
        ),
        Ok(_) => {}
    }
    source.ok()
}
