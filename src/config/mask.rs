//! What is never shown of a file: passwords, and API keys where they can be recognised.
//!
//! Messages repeat words of a file and show its lines. This looks at text, not at values: a line
//! that is no TOML is shown as well, and a password that cannot be parsed is still one. In doubt
//! it hides too much.

use std::borrow::Cow;
use std::ops::Range;

use crate::caller::clients::{PREFIX, SHORTEST};

/// What stands in for a password, whatever its length.
pub(super) const PLACEHOLDER: &str = "***";

/// The passwords of a text.
pub(super) struct SecretMask {
    hidden: Vec<MaskedSpan>,
}

struct MaskedSpan {
    span: Range<usize>,
    /// Where it starts once this one and all before it are hidden.
    start: usize,
}

/// A text without its passwords.
pub(super) fn mask(text: &str) -> Cow<'_, str> {
    SecretMask::of(text).apply(text)
}

impl SecretMask {
    pub(super) fn of(text: &str) -> Self {
        let mut spans = Vec::new();
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            find_in_line(line.trim_end_matches(['\n', '\r']), start, &mut spans);
            start += line.len();
        }
        let mut hidden = Vec::with_capacity(spans.len());
        let (mut written, mut read) = (0, 0);
        for span in spans {
            written += span.start - read;
            read = span.end;
            hidden.push(MaskedSpan { span, start: written });
            written += PLACEHOLDER.len();
        }
        SecretMask { hidden }
    }

    pub(super) fn apply<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if self.hidden.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut shown = String::with_capacity(text.len());
        let mut read = 0;
        for MaskedSpan { span, .. } in &self.hidden {
            shown.extend([&text[read..span.start], PLACEHOLDER]);
            read = span.end;
        }
        Cow::Owned(shown + &text[read..])
    }

    /// Where a span of the text is once the passwords are hidden.
    pub(super) fn shift(&self, span: &Range<usize>) -> Range<usize> {
        let start = self.shift_offset(span.start, 0);
        start..self.shift_offset(span.end, PLACEHOLDER.len()).max(start)
    }

    /// `within` is where something in the midst of a password goes.
    fn shift_offset(&self, at: usize, within: usize) -> usize {
        let before = self.hidden.partition_point(|it| it.span.start < at);
        match self.hidden[..before].last() {
            None => at,
            Some(it) if at < it.span.end => it.start + within,
            Some(it) => it.start + PLACEHOLDER.len() + (at - it.span.end),
        }
    }

    /// Whether a span shows any of a password.
    pub(super) fn touches(&self, span: &Range<usize>) -> bool {
        let after = self.hidden.partition_point(|it| it.span.end <= span.start);
        self.hidden.get(after).is_some_and(|it| it.span.start < span.end)
    }
}

/// Finds the passwords of a line, which starts at `offset`.
fn find_in_line(line: &str, offset: usize, spans: &mut Vec<Range<usize>>) {
    // No key is called so; what is assigned to it is a secret all the same.
    let value = assigned(line).filter(|value| !value.is_empty());
    let end = value.as_ref().map_or(line.len(), |value| value.start);
    let mut found = Vec::new();
    if line[..end].contains('@') {
        credentials(&line[..end], offset, &mut found);
    }
    found.extend(api_keys(&line[..end]).map(|key| offset + key.start..offset + key.end));
    found.extend(value.map(|value| offset + value.start..offset + value.end));
    found.sort_by_key(|span| span.start);
    for span in found {
        match spans.last_mut() {
            Some(last) if span.start < last.end => last.end = last.end.max(span.end),
            _ => spans.push(span),
        }
    }
}

/// Words at the end of keys whose values are secrets, in any case: Weir's own and those that people bring
/// along.
const SECRET_WORDS: [&str; 11] = [
    "password",
    "passwd",
    "secret",
    "token",
    "key_hash",
    "api_key",
    "api-key",
    "apikey",
    "private_key",
    "authorization",
    "_env",
];

/// What follows one of these words and `=`, unless it is the hash of a key or the name of a variable, up to
/// the end of the line. A colon is taken for the `=`: so YAML writes it, and such a line is shown as it is refused.
fn assigned(line: &str) -> Option<Range<usize>> {
    let quotes = [' ', '\t', '"', '\''];
    let lower = line.to_ascii_lowercase();
    let words = SECRET_WORDS.into_iter().flat_map(|word| lower.match_indices(word));
    let values = words.filter_map(|(at, word)| {
        let rest = line[at + word.len()..].trim_start_matches(quotes).strip_prefix(['=', ':'])?;
        let value = rest.trim_start_matches(quotes);
        let start = line.len() - value.len();
        let harmless = match word {
            "key_hash" => begins_with_hash(value),
            "_env" => is_variable_name(begin_of(value)),
            _ => false,
        };
        (!harmless).then(|| start..start + value.trim_end_matches(quotes).len())
    });
    values.min_by_key(|value| value.start)
}

/// What is written as the names of environment variables are, and can be shown though it is not set.
pub(super) fn is_variable_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    text.bytes().all(plain)
}

fn begin_of(value: &str) -> &str {
    let end = value.find(['"', '\'', ' ', ',', '}']).unwrap_or(value.len());
    &value[..end]
}

fn begins_with_hash(value: &str) -> bool {
    let digits = begin_of(value).strip_prefix("sha256:");
    digits.is_some_and(|digits| digits.bytes().all(|it| it.is_ascii_hexdigit()))
}

/// Keys that Weir has made.
fn api_keys(line: &str) -> impl Iterator<Item = Range<usize>> {
    line.match_indices(PREFIX).filter_map(|(at, _)| {
        let key = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        let length = line[at..].find(|c| !key(c)).unwrap_or(line.len() - at);
        (length >= PREFIX.len() + SHORTEST).then(|| at..at + length)
    })
}

/// What stands before an `@`: `scheme://user:password@`, `user:password@`, or `scheme://token@`.
/// Several URLs in a line are told apart by what comes before their schemes.
fn credentials(line: &str, offset: usize, spans: &mut Vec<Range<usize>>) {
    let mut push = |span: Range<usize>| {
        if !span.is_empty() {
            spans.push(offset + span.start..offset + span.end);
        }
    };
    let urls = line.match_indices("://").filter(|(at, _)| begins_word(&line[..*at]));
    let starts: Vec<usize> = urls.map(|(at, mark)| at + mark.len()).collect();
    let first = starts.first().copied().unwrap_or(line.len());
    if let Some(at) = line[..first].rfind('@') {
        let start = line[..at].find(['"', '\'']).map_or(0, |quote| quote + 1);
        if let Some(colon) = line[start..at].find(':') {
            push(start + colon + 1..at);
        }
    }
    let mut start = first;
    for end in starts.iter().skip(1).copied().chain([line.len()]) {
        // Without an `@` so far, what looks like another URL may be part of a password.
        let Some(at) = line[start..end].rfind('@').map(|at| start + at) else { continue };
        let user = line[start..at].find(':').map_or(0, |colon| colon + 1);
        push(start + user..at);
        start = end;
    }
}

/// Whether a text ends in the scheme of a URL that begins there.
fn begins_word(before: &str) -> bool {
    let scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    let before = before.trim_end_matches(scheme);
    before.is_empty() || before.ends_with([' ', '\t', '"', '\'', '`', '[', ',', '=', '#', '('])
}

#[cfg(test)]
mod tests;
