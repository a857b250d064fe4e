//! From text to tables, and what to say when the text is not TOML.
//!
//! The parser recovers from an error and goes on, so that faults of syntax and of meaning can be
//! told together. Only what can be trusted is: nothing on a line that did not parse, nothing that
//! seems to be missing, and nothing behind a bracket that was never closed.

use std::collections::HashSet;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Notes, Section};
use crate::config::diagnostic::{Fault, Lines};
use crate::config::mask::{HIDDEN, Mask};
use crate::config::suggest::quote;

/// A parsed text.
pub(in crate::config) struct File<'a> {
    text: &'a str,
    root: Spanned<DeTable<'a>>,
    faults: Vec<Fault>,
    /// Where the tables stop to mean what the author meant.
    trusted: usize,
}

impl<'a> File<'a> {
    pub(in crate::config) fn parse(text: &'a str) -> Self {
        let (root, errors) = DeTable::parse_recoverable(text);
        let mask = Mask::of(text);
        let mut faults = Vec::new();
        let mut unclosed: Vec<Range<usize>> = Vec::new();
        for error in &errors {
            let mut at = error.span().unwrap_or(0..0);
            if takes_a_word_for_a_number(error.message()) {
                at = word(text, &at);
            }
            let Some(what) = Open::told_by(error.message()) else {
                // What the parser stumbles over may be a piece of a password.
                let written = match text.get(at.clone()) {
                    Some(_) if mask.touches(&at) => HIDDEN,
                    written => written.unwrap_or_default(),
                };
                faults.push(describe(error.message(), written, at));
                continue;
            };
            let search = Search { text, what, at: at.start };
            let start = search.table(root.get_ref()).map_or(at.start, |span| span.start);
            faults.push(describe(error.message(), "", start..at.end));
            unclosed.push(start..at.end);
        }
        let trusted = unclosed.iter().map(|open| open.start).min().unwrap_or(text.len());
        // What follows an open bracket is noise, and one error a line is enough.
        let lines = Lines::of(text);
        let mut seen = HashSet::new();
        faults.retain(|fault| {
            let noise =
                unclosed.iter().any(|open| *open != fault.span && holds(open, fault.span.start));
            !noise && seen.insert(lines.line(fault.span.start))
        });
        File { text, root, faults, trusted }
    }

    /// Whether all of it could be read, so that what is not there was not written.
    pub(in crate::config) fn is_whole(&self) -> bool {
        self.faults.is_empty()
    }

    pub(in crate::config) fn root<'s>(&'s self, notes: &'s Notes) -> Section<'s> {
        Section::root(self.root.get_ref(), notes)
    }

    /// The faults of syntax, and those of meaning that do not follow from them.
    pub(in crate::config) fn merge(self, meaning: Vec<Fault>) -> Vec<Fault> {
        if self.faults.is_empty() {
            return meaning;
        }
        let lines = Lines::of(self.text);
        let broken: HashSet<usize> =
            self.faults.iter().map(|fault| lines.line(fault.span.start)).collect();
        let told = meaning.into_iter().filter(|fault| {
            !fault.absence
                && fault.span.start < self.trusted
                && !broken.contains(&lines.line(fault.span.start))
        });
        let told: Vec<Fault> = told.collect();
        self.faults.into_iter().chain(told).collect()
    }
}

/// The parser's words, with a way out. `written` is what it stumbled over.
fn describe(message: &str, written: &str, span: Range<usize>) -> Fault {
    let (what, expected) = message.split_once(", expected ").unwrap_or((message, ""));
    let (what, help) = match (what, expected) {
        ("string values must be quoted", _) if written.is_empty() => {
            ("there is no value".to_owned(), VALUES.to_owned())
        }
        ("string values must be quoted", _) => {
            (format!("{} is not a value", quote(written)), VALUES.to_owned())
        }
        (what, _) if takes_a_word_for_a_number(what) => {
            (format!("{} is not a value", quote(written)), VALUES.to_owned())
        }
        ("duplicate key", _) => (
            format!("duplicate key {}", quote(written)),
            "remove one of the two, or give it another name".to_owned(),
        ),
        ("invalid basic string", "`\"`") | ("invalid literal string", "`'`") => {
            ("the string is not closed".to_owned(), format!("end it with {expected}"))
        }
        ("invalid multi-line basic string", _) => {
            ("the string is not closed".to_owned(), "end it with `\"\"\"`".to_owned())
        }
        ("invalid multi-line literal string", _) => {
            ("the string is not closed".to_owned(), "end it with `'''`".to_owned())
        }
        (what, _) if what.starts_with("unclosed") => {
            let what = what.trim_start_matches("unclosed ");
            (format!("the {what} is not closed"), format!("close it with {expected}"))
        }
        (what, "") => (what.to_owned(), "see https://toml.io for how TOML is written".to_owned()),
        (what, expected) => (what.to_owned(), format!("expected {expected}")),
    };
    Fault::error(span, what).help(help)
}

/// By its first letter `ip` could have been `inf`, and `two` could have been `true`; whoever forgot
/// the quotes meant neither.
fn takes_a_word_for_a_number(message: &str) -> bool {
    let what = message.split_once(',').map_or(message, |(what, _)| what);
    let kinds = ["boolean", "float", "integer number", "mantissa", "fraction", "exponent"];
    what.strip_prefix("invalid ").is_some_and(|kind| kinds.contains(&kind))
}

/// All of the value that something within it is wrong with.
fn word(text: &str, at: &Range<usize>) -> Range<usize> {
    let ends = |it: char| it.is_whitespace() || "=,[]{}#".contains(it);
    let (Some(before), Some(after)) = (text.get(..at.start), text.get(at.start..)) else {
        return at.clone();
    };
    let start = before
        .rfind(ends)
        .map_or(0, |last| last + before[last..].chars().next().map_or(1, char::len_utf8));
    let end = after.find(ends).map_or(text.len(), |first| at.start + first);
    start..end.max(at.end)
}

const VALUES: &str =
    "write a string in quotes, a number, `true` or `false`, an array in `[ ]` or a table in `{ }`";

fn holds(open: &Range<usize>, at: usize) -> bool {
    open.start <= at && at <= open.end
}

/// What can be left open and swallow the lines that follow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    Bracket,
    String,
}

impl Open {
    fn told_by(message: &str) -> Option<Self> {
        match message {
            _ if message.starts_with("unclosed") => Some(Open::Bracket),
            _ if message.starts_with("invalid multi-line") => Some(Open::String),
            _ => None,
        }
    }
}

/// Looks for what was still open at a place.
struct Search<'t> {
    text: &'t str,
    what: Open,
    at: usize,
}

impl Search<'_> {
    /// The innermost array or inline table, or the string.
    fn table(&self, table: &DeTable<'_>) -> Option<Range<usize>> {
        table.iter().find_map(|(_, item)| self.item(item))
    }

    fn item(&self, item: &Spanned<DeValue<'_>>) -> Option<Range<usize>> {
        let span = item.span();
        let (inner, kind) = match item.get_ref() {
            DeValue::Array(items) => (items.iter().find_map(|it| self.item(it)), Open::Bracket),
            DeValue::Table(table) => (self.table(table), Open::Bracket),
            DeValue::String(_) => (None, Open::String),
            _ => return None,
        };
        let open = span.end == self.at || (kind == Open::Bracket && self.lacks_its_end(&span));
        inner.or((kind == self.what && span.start < self.at && open).then_some(span))
    }

    /// The parser may end an open bracket before what it could not read.
    fn lacks_its_end(&self, span: &Range<usize>) -> bool {
        let written = self.text.get(span.clone()).unwrap_or_default();
        let end = match written.chars().next() {
            Some('[') => ']',
            Some('{') => '}',
            _ => return false,
        };
        !written.ends_with(end)
    }
}
