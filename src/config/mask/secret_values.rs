//! The values that follow the keys of secrets, whatever stands between the two: `=`, `:`, `=>`, a blank
//! or a quote, on the same line or on the next.
//!
//! Lines are read one by one as any of the languages that people bring along might have written them:
//! TOML, YAML, redis.conf, nginx.

use std::ops::Range;

use super::secret_keys::{begins_source, ends_source, is_secret, may_have_one};

const BLANKS_AND_QUOTES: [char; 6] = [' ', '\t', '"', '\'', '`', '\\'];
const BLANKS: [char; 2] = [' ', '\t'];
const QUOTES: [char; 2] = ['"', '\''];

/// Reads the lines of a text from the first to the last.
#[derive(Default)]
pub(super) struct LineReader<'t> {
    /// The tables that the next line belongs to.
    table: Vec<&'t str>,
    /// What of a secret is still to come.
    open: Option<Open>,
}

/// Where a value that began on an earlier line ends.
enum Open {
    /// At the same quotes.
    Until(&'static str),
    /// Where so many brackets are closed.
    Brackets(usize),
    /// With the PEM.
    Pem,
    /// On the next line that is not empty, unless that is a key of its own, and with the lines that are
    /// indented further than the key.
    Next { indent: usize, is_first: bool },
}

impl<'t> LineReader<'t> {
    /// What of the next line is a value of a secret: one piece at most.
    pub(super) fn read(&mut self, line: &'t str) -> Option<Range<usize>> {
        let content = line.trim_start();
        let indent = line.len() - content.len();
        let whole = || indent..line.trim_end().len();
        if let Some(open) = self.open.take() {
            if content.is_empty() {
                self.open = Some(open);
                return None;
            }
            let (is_hidden, still_open) = open.on(content, indent);
            self.open = still_open;
            if is_hidden {
                return Some(whole());
            }
        }
        self.enter_table(content, indent);
        let value = may_have_one(line).then(|| self.find(line, indent)).flatten();
        let Some(at) = line.find("-----BEGIN") else { return value };
        if !line.contains("-----END") {
            self.open = Some(Open::Pem);
        }
        Some(value.map_or(at, |it| it.start.min(at))..trimmed_end(line))
    }

    /// Follows the headers of TOML, and keys that all that is below them belongs to.
    fn enter_table(&mut self, content: &'t str, indent: usize) {
        let plain = |c: char| c.is_alphanumeric() || "-_.\"' ".contains(c);
        if let Some(header) = content.strip_prefix('[') {
            let header = header.trim_start_matches('[');
            let end = header.find(']').unwrap_or(header.len());
            let after = header[end..].trim_start_matches(']').trim_start();
            if header[..end].chars().all(plain) && !after.starts_with([',', ']', '"']) {
                let names = header[..end].split('.');
                self.table = names.map(|it| it.trim_matches([' ', '"', '\''])).collect();
            }
            return;
        }
        let end = content.find(|c: char| !is_word(c)).unwrap_or(content.len());
        let after = content[end..].trim();
        let opens = after.starts_with('=') && open_brackets(after) > 0 && self.table.is_empty();
        if indent == 0 && end > 0 && (after == ":" || opens) {
            self.table = content[..end].split('.').collect();
        }
    }

    fn find(&mut self, line: &'t str, indent: usize) -> Option<Range<usize>> {
        let mut first = None;
        let mut at = 0;
        while let Some(c) = line[at..].chars().next() {
            if !is_word(c) {
                at += c.len_utf8();
                continue;
            }
            let end = line[at..].find(|c: char| !is_word(c)).map_or(line.len(), |it| at + it);
            let word = &line[at..end];
            let is_at_start = first.is_none();
            let first = *first.get_or_insert(word);
            if let Some(written) = WrittenValue::after(&line[end..])
                && !begins_source(word, &line[end..])
                && (written.has_mark || !ends_source(&line[..at], &line[end..]))
                && match word == "user" && !written.has_mark {
                    // The rules of a user in redis.conf: `user weir on >password`.
                    true => is_at_start && line[end..].starts_with(BLANKS),
                    false => is_secret(word, &self.tables(first, word, is_at_start), written.value),
                }
            {
                let is_comment = line[indent..].starts_with('#');
                self.open = if is_comment { None } else { written.open(indent) };
                let end = trimmed_end(line);
                let start = line.len() - written.value.len();
                return (start < end).then_some(start..end);
            }
            at = end;
        }
        None
    }

    /// The tables of a key: those above its line, those before it in the line, those in its own dots.
    fn tables(&self, first: &'t str, word: &'t str, is_at_start: bool) -> Vec<&'t str> {
        let mut tables = self.table.clone();
        if !is_at_start {
            tables.extend(first.split('.'));
        }
        tables.extend(word.rsplit_once('.').iter().flat_map(|(names, _)| names.split('.')));
        tables
    }
}

/// What follows a word that may be a key.
struct WrittenValue<'t> {
    /// Without the quotes before it.
    value: &'t str,
    /// With them.
    quoted: &'t str,
    /// Whether there is a `=` or `:` before it.
    has_mark: bool,
}

impl<'t> WrittenValue<'t> {
    /// `None` if the word is no key: it ends there, or goes on as a path or a list does.
    fn after(after: &'t str) -> Option<Self> {
        if after.starts_with(|c: char| "/;&?*@,})%#".contains(c)) {
            return None;
        }
        let rest = after.trim_start_matches(BLANKS_AND_QUOTES);
        // `["password"] = "…"`
        let in_brackets = rest.strip_prefix(']').map(|it| it.trim_start_matches(BLANKS));
        let rest = in_brackets.unwrap_or(rest);
        let has_mark = rest.starts_with(['=', ':']);
        let is_comment = rest == "#" || rest.starts_with("# ");
        let ends =
            rest.is_empty() || rest.starts_with([',', ']', '}', ')', ';', '@']) || is_comment;
        if ends || in_brackets.is_some() && !has_mark {
            return None;
        }
        let quoted = if has_mark { rest } else { after };
        let quoted = quoted.trim_start_matches(['=', ':', '>', ' ', '\t']);
        let value = quoted.trim_start_matches(BLANKS_AND_QUOTES);
        Some(WrittenValue { value, quoted, has_mark })
    }

    /// How it goes on below its line, whose indentation is given.
    fn open(&self, indent: usize) -> Option<Open> {
        let block = |c: char| "|>+-".contains(c) || c.is_ascii_digit();
        let is_block = self.value.starts_with(['|', '-']) && self.value.chars().all(block);
        let is_next = self.value.is_empty() || self.value.starts_with('#') || is_block;
        let next = Open::Next { indent, is_first: true };
        if self.has_mark && is_next && !self.quoted.starts_with(QUOTES) {
            return Some(next);
        }
        let quote = QUOTES.into_iter().find(|quote| self.quoted.starts_with(*quote));
        let is_cut_off = quote.is_some_and(|quote| !self.quoted[1..].contains(quote));
        Open::of(self.quoted).or((is_cut_off || self.value.ends_with('\\')).then_some(next))
    }
}

impl Open {
    /// What a value leaves open.
    fn of(quoted: &str) -> Option<Self> {
        let quotes = ["\"\"\"", "'''"].into_iter().find(|it| quoted.starts_with(it));
        if let Some(quotes) = quotes {
            return (!quoted[3..].contains(quotes)).then_some(Open::Until(quotes));
        }
        let open = if quoted.starts_with(['[', '{', '(']) { open_brackets(quoted) } else { 0 };
        usize::try_from(open).ok().filter(|it| *it > 0).map(Open::Brackets)
    }

    /// Whether a line is part of the value, and what is still open after it.
    fn on(self, content: &str, indent: usize) -> (bool, Option<Open>) {
        match self {
            Open::Until(end) => (true, (!content.contains(end)).then_some(self)),
            Open::Brackets(open) => {
                let open = open.saturating_add_signed(open_brackets(content));
                (true, (open > 0).then_some(Open::Brackets(open)))
            }
            Open::Pem => (true, (!content.contains("-----END")).then_some(self)),
            Open::Next { .. } if content.starts_with('#') => (false, Some(self)),
            Open::Next { indent: of_key, is_first } => {
                let is_hidden = indent > of_key || is_first && !is_line_of_its_own(content);
                let next = Open::Next { indent: of_key, is_first: false };
                let still_open = Open::of(content).filter(|_| is_first).unwrap_or(next);
                (is_hidden, is_hidden.then_some(still_open))
            }
        }
    }
}

/// A header, or a key with its value. What may be a password that ends in `=` is none.
fn is_line_of_its_own(content: &str) -> bool {
    if content.starts_with('[') {
        return true;
    }
    let end = content.find(|c: char| !is_word(c)).unwrap_or(content.len());
    let after = &content[end..];
    let mark = after.trim_start();
    let value = mark.strip_prefix(['=', ':']).unwrap_or_default();
    let is_parted = mark.starts_with('=') && after.starts_with(BLANKS);
    end > 0 && (is_parted && !value.is_empty() || value.starts_with([' ', '"', '\'', '[', '{']))
}

/// How many brackets a line opens more than it closes, but for those in double quotes.
fn open_brackets(line: &str) -> isize {
    let outside = line.split('"').step_by(2);
    outside.flat_map(str::chars).fold(0, |open, c| match c {
        '[' | '{' | '(' => open + 1,
        ']' | '}' | ')' => open - 1,
        _ => open,
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || "-_.".contains(c)
}

/// Where a line ends but for its last quotes and blanks.
fn trimmed_end(line: &str) -> usize {
    line.trim_end_matches([' ', '\t', '"', '\'']).len()
}
