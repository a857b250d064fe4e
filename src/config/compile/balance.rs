//! `balance` of an upstream: a word, or `hash:` and what a request is hashed by.

use super::request_source::{self, KnownIdentities, SourceUse};
use super::value_error::ValueError;
use crate::config::file::Value;
use crate::config::settings::Balance;
use crate::config::suggest::shown;
use crate::limit::Source;

/// The last stands for all that begin so.
const WORDS: [(&str, u8); 4] =
    [("round_robin", 0), ("least_requests", 1), ("random", 2), ("hash:ip", 3)];

/// What other gateways call them.
const ELSEWHERE: [(&str, &str); 6] = [
    ("ip_hash", "hash:ip"),
    ("source", "hash:ip"),
    ("ring_hash", "hash:ip"),
    ("maglev", "hash:ip"),
    ("least_conn", "least_requests"),
    ("leastconn", "least_requests"),
];

pub(super) fn balance(value: &Value<'_>, known: KnownIdentities) -> Option<Balance> {
    if let Some(source) = value.as_str().and_then(|text| text.strip_prefix("hash:")) {
        return match hashed_by(source, known) {
            Ok(source) => Some(Balance::Hash(source)),
            Err(error) => {
                error.report(value);
                None
            }
        };
    }
    if value.as_str() == Some("hash") {
        value.error(
            "does not say what requests are hashed by",
            "write one such as `\"hash:ip\"`, `\"hash:user\"` or `\"hash:cookie:session\"`",
        );
        return None;
    }
    if let Some((word, meant)) = ELSEWHERE.into_iter().find(|(it, _)| value.as_str() == Some(it)) {
        value.error(&format!("cannot be `{word}`"), format!("did you mean `{meant}`?"));
        return None;
    }
    match value.choice(&WORDS)? {
        0 => Some(Balance::RoundRobin),
        1 => Some(Balance::LeastRequests),
        2 => Some(Balance::Random),
        _ => Some(Balance::Hash(Source::Ip)),
    }
}

fn hashed_by(text: &str, known: KnownIdentities) -> Result<Source, ValueError> {
    if text == "global" {
        return Err(ValueError::new(
            "cannot be `hash:global`: all requests would go to one server",
            "write one such as `\"hash:ip\"`, or `\"least_requests\"`",
        ));
    }
    let parse = |text: &str| request_source::parse(text.trim(), SourceUse::Hash);
    if let Some(first) = text.split_once(',').and_then(|(first, _)| parse(first).ok()) {
        return Err(ValueError::new(
            "names more than one source",
            format!("write one of them only, such as `\"hash:{}\"`", shown(&first.to_string())),
        ));
    }
    let source = request_source::parse(text, SourceUse::Hash)?;
    known.check(&source).map(|()| source)
}
