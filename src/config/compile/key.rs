//! What a limit counts by: `ip`, `route`, `global`, `header:N`, `query:N`, `cookie:N`, or several.

use http::HeaderName;

use crate::config::file::{Unique, Value};
use crate::config::suggest::{nearest, one_of, quote, shown};
use crate::limit::{Key, Source};

const SOURCES: [&str; 6] = ["ip", "route", "global", "header:NAME", "query:NAME", "cookie:NAME"];
const LONGEST_NAME: usize = 256;

pub(super) fn key(value: &Value<'_>) -> Option<Key> {
    let entries = value.one_or_more();
    if entries.is_empty() {
        value.wrong("is empty", "write `\"global\"` to count all requests together");
        return None;
    }
    let mut seen = Unique::new();
    let mut sources = Vec::new();
    for entry in &entries {
        let Some(source) = source(entry) else { continue };
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

fn source(value: &Value<'_>) -> Option<Source> {
    let text = value.text("ip")?;
    match text.split_once(':') {
        None => match text {
            "ip" => return Some(Source::Ip),
            "route" => return Some(Source::Route),
            "global" => return Some(Source::Global),
            "user" | "client" | "tenant" | "plan" => needs_identity(text, value),
            "header" | "query" | "cookie" => value.wrong(
                &format!("does not say which {text}"),
                format!("write `\"{text}:NAME\"`, such as `\"{}\"`", example(text)),
            ),
            _ => unknown(text, text, value),
        },
        Some((kind @ ("header" | "query" | "cookie"), name)) => {
            let source = named(kind, name);
            match &source {
                Some(Source::Header(name)) if !countable(name, value) => return None,
                Some(_) => {}
                None => value.wrong(
                    &format!("has no valid {kind} name: {}", quote(name)),
                    format!("write one such as `\"{}\"`", example(kind)),
                ),
            }
            return source;
        }
        Some(("jwt" | "basic" | "form", _)) => needs_identity(text, value),
        Some((kind, _)) => unknown(kind, text, value),
    }
    None
}

/// The source that a name of that kind is, if it can be one.
pub(super) fn named(kind: &str, name: &str) -> Option<Source> {
    if name.is_empty() || name.len() > LONGEST_NAME {
        return None;
    }
    match kind {
        "header" => HeaderName::from_bytes(name.as_bytes()).ok().map(Source::Header),
        // RFC 6265 section 4.1.1: a cookie's name is a token, as a header's is.
        "cookie" => {
            HeaderName::from_bytes(name.as_bytes()).is_ok().then(|| Source::Cookie(name.to_owned()))
        }
        _ => {
            let plain = !name.chars().any(char::is_control);
            plain.then(|| Source::Query(name.to_owned()))
        }
    }
}

/// Whether a header tells callers apart at all. Those of one connection or one message's framing
/// do not, and forwarding headers are whatever a caller writes.
fn countable(name: &HeaderName, value: &Value<'_>) -> bool {
    let name = name.as_str();
    match name {
        "forwarded" | "x-forwarded-for" => value.wrong(
            &format!("cannot be `header:{name}`: any caller may write it"),
            "write `\"ip\"`, and list the proxies in `identity.trusted_proxies`",
        ),
        _ if of_the_connection(name) => value.wrong(
            &format!(
                "cannot be `header:{}`: it belongs to a connection, not to a caller",
                shown(name)
            ),
            "count by a header that tells callers apart, such as `\"header:x-api-key\"`",
        ),
        "cookie" => {
            value.doubtful(
                "counts by all cookies together, so any other cookie makes a new caller",
                "name the one that counts, such as `\"cookie:session\"`",
            );
            return true;
        }
        _ => return true,
    }
    false
}

/// Whether a header speaks of one connection or frames one message.
pub(super) fn of_the_connection(name: &str) -> bool {
    const NAMES: [&str; 7] = [
        "connection",
        "content-length",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    NAMES.contains(&name) || name.starts_with("proxy-")
}

fn example(kind: &str) -> &'static str {
    match kind {
        "header" => "header:x-api-key",
        "query" => "query:api_key",
        _ => "cookie:session",
    }
}

fn needs_identity(text: &str, value: &Value<'_>) {
    value.wrong(
        &format!(
            "cannot be {}: it needs an `[identity]` source, and this version has none",
            quote(text)
        ),
        "count by what carries the identity, such as `\"header:x-api-key\"`",
    );
}

fn unknown(kind: &str, text: &str, value: &Value<'_>) {
    let kinds = SOURCES.map(|it| it.split_once(':').map_or(it, |(kind, _)| kind));
    let meant = nearest(kind, kinds)
        .and_then(|meant| SOURCES.into_iter().find(|source| source.starts_with(meant)));
    // A header's name alone is the likeliest mistake of all.
    let help = match meant {
        Some(meant) => format!("did you mean `{meant}`?"),
        None if text.contains('-') && HeaderName::from_bytes(text.as_bytes()).is_ok() => {
            format!("did you mean `header:{}`?", shown(&text.to_ascii_lowercase()))
        }
        None => format!("write {}", one_of(SOURCES)),
    };
    value.wrong(&format!("cannot be {}", quote(text)), help);
}
