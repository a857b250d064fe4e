//! What a limit counts by: one source, or several.

use http::header;

use super::source::{self, Known, Use};
use crate::config::file::{Unique, Value};
use crate::limit::{Key, Source};

pub(super) fn key(value: &Value<'_>, known: Known) -> Option<Key> {
    let entries = value.one_or_more();
    if entries.is_empty() {
        value.wrong("is empty", "write `\"global\"` to count all requests together");
        return None;
    }
    let mut seen = Unique::new();
    let mut sources = Vec::new();
    for entry in &entries {
        let Some(source) = source(entry, known) else { continue };
        if seen.insert(source.clone(), entry) {
            sources.push(source);
        }
    }
    if sources.len() > 1 && sources.contains(&Source::Global) {
        value.wrong(
            "combines `global` with other sources, which it would not change",
            "leave `global` out, or use it alone",
        );
        return None;
    }
    (sources.len() == entries.len()).then_some(Key(sources))
}

fn source(value: &Value<'_>, known: Known) -> Option<Source> {
    let parsed = source::parse(value.text("ip")?, Use::Key);
    let source = parsed.and_then(|source| known.check(&source).map(|()| source));
    match &source {
        Err((message, help)) => value.wrong(message, help.as_str()),
        // No shorter one is ever handed out, and of IPv4 these are the usual ones.
        Ok(Source::IpPrefix(bits)) if *bits < 32 => value.doubtful(
            &format!("counts IPv6 addresses by {bits} bits, and IPv4 addresses whole"),
            "write a prefix of IPv6, such as `\"ip/48\"`, or `\"ip\"`",
        ),
        Ok(Source::Header(name)) if *name == header::COOKIE => value.doubtful(
            "counts by all cookies together, so any other cookie makes a new caller",
            "name the one that counts, such as `\"cookie:session\"`",
        ),
        Ok(_) => {}
    }
    source.ok()
}
