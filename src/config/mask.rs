//! What is never shown of a file: passwords, and API keys where they can be recognised.
//!
//! Messages repeat words of a file and show its lines. This looks at text, not at values: a line
//! that is no TOML is shown as well, and a password that cannot be parsed is still one. In doubt
//! it hides too much.

mod secret_keys;
mod secret_urls;
mod secret_values;

use std::borrow::Cow;
use std::ops::Range;

use self::secret_values::LineReader;
use crate::caller::clients::{PREFIX, SHORTEST};

pub(super) use self::secret_keys::{is_path, is_variable_name};

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
        let mut values = LineReader::default();
        for line in text.split_inclusive('\n') {
            let content = line.trim_end_matches(['\n', '\r']);
            find_in_line(content, start, values.read(content), &mut spans);
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

    /// A message about a place, without the passwords of its lines. `text` is the one with them.
    pub(super) fn clear(&self, message: String, text: &str, place: &Range<usize>) -> String {
        let start = text[..text.floor_char_boundary(place.start)].rfind('\n').unwrap_or(0);
        let end = text.floor_char_boundary(place.end);
        let end = text[end..].find('\n').map_or(text.len(), |at| end + at);
        let from = self.hidden.partition_point(|it| it.span.end <= start);
        let here = self.hidden[from..].iter().take_while(|it| it.span.start < end);
        let words = here.flat_map(|it| words_of(&text[it.span.clone()]));
        words.fold(message, |message, word| without(&message, word))
    }

    /// Whether a span shows any of a password.
    pub(super) fn touches(&self, span: &Range<usize>) -> bool {
        let after = self.hidden.partition_point(|it| it.span.end <= span.start);
        self.hidden.get(after).is_some_and(|it| it.span.start < span.end)
    }
}

/// What of a hidden piece of a line a message may repeat: it all, or a text in quotes or between blanks.
fn words_of(hidden: &str) -> impl Iterator<Item = &str> {
    let bare = hidden.split([' ', '\t', ',', ';']).next();
    let list = if hidden.starts_with(['[', '{']) { hidden } else { "" };
    let pieces = [Some(hidden), hidden.split(['"', '\'']).next(), bare];
    let words = pieces.into_iter().flatten().chain(list.split(['"', '\'']));
    words.filter(|word| word.len() >= SHORTEST_WORD)
}

/// Shorter ones are in half of all messages.
const SHORTEST_WORD: usize = 4;

/// A message without a word, of which it may repeat the beginning only.
fn without(message: &str, word: &str) -> String {
    let begin = word.char_indices().nth(LONGEST_WORD).map_or(word.len(), |(at, _)| at);
    let is_cut = begin < word.len();
    let mut shown = String::with_capacity(message.len());
    let mut read = 0;
    for (at, found) in message.match_indices(&word[..begin]) {
        let end = at + found.len();
        let is_part = message[..at].ends_with(char::is_alphanumeric)
            || !is_cut && message[end..].starts_with(char::is_alphanumeric);
        if !is_part {
            shown.extend([&message[read..at], PLACEHOLDER]);
            read = end;
        }
    }
    shown + &message[read..]
}

/// Less than a message repeats of a word.
const LONGEST_WORD: usize = 40;

/// Finds the passwords of a line, which starts at `offset`, and of which `value` is known to be one.
fn find_in_line(
    line: &str,
    offset: usize,
    value: Option<Range<usize>>,
    spans: &mut Vec<Range<usize>>,
) {
    let end = value.as_ref().map_or(line.len(), |value| value.start);
    let before = &line[..end];
    let mut found = Vec::new();
    if line.contains('@') {
        secret_urls::credentials(line, offset, &mut found);
    }
    let pieces = api_keys(before).chain(secret_urls::out_of_place(before)).chain(value);
    found.extend(pieces.map(|piece| offset + piece.start..offset + piece.end));
    found.sort_by_key(|span| span.start);
    for span in found {
        match spans.last_mut() {
            Some(last) if span.start < last.end => last.end = last.end.max(span.end),
            _ => spans.push(span),
        }
    }
}

/// Keys that Weir has made.
fn api_keys(line: &str) -> impl Iterator<Item = Range<usize>> {
    line.match_indices(PREFIX).filter_map(|(at, _)| {
        let key = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        let length = line[at..].find(|c| !key(c)).unwrap_or(line.len() - at);
        (length >= PREFIX.len() + SHORTEST).then(|| at..at + length)
    })
}

#[cfg(test)]
mod tests;
