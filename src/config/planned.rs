//! Keys and words that the documentation of a later Weir may show and this version does not have.
//!
//! They are errors as all unknown ones are, but none of them is a misspelling: the nearest known
//! name would only mislead.

/// The help for all of them.
pub(super) const HELP: &str = "not in this version: leave it out";

/// By section, as [`super::file`] lists known keys.
const KEYS: [(&str, &[&str]); 3] = [
    ("server", &["http2", "tls"]),
    ("upstreams.NAME", &["health", "http2", "tls", "weights"]),
    ("routes[]", &["rewrite"]),
];

/// Values of keys that this version has: of `balance`.
const WORDS: [&str; 1] = ["hash"];

/// Whether a section is to have a key one day.
pub(super) fn key(section: &str, key: &str) -> bool {
    KEYS.iter().any(|(path, keys)| *path == section && keys.contains(&key))
}

/// All of them, written as known keys are.
#[cfg(test)]
pub(super) fn keys() -> impl Iterator<Item = String> {
    KEYS.iter().flat_map(|(path, keys)| {
        let above = if path.is_empty() { String::new() } else { format!("{path}.") };
        keys.iter().map(move |key| format!("{above}{key}"))
    })
}

/// Whether a choice is to have a word one day.
pub(super) fn word(text: &str) -> bool {
    WORDS.contains(&text.split(':').next().unwrap_or_default())
}
