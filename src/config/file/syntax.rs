//! From text to tables, and what to say when the text is not TOML.
//!
//! The parser recovers from an error and goes on, so that faults of syntax and of meaning can be
//! reported together. Only what can be trusted is: nothing on a line that did not parse, nothing that
//! seems to be missing, and nothing behind a bracket that was never closed.

use std::collections::HashSet;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::duplicate::Duplicate;
use super::{Reporter, Section, colon};
use crate::config::diagnostic::{Diagnostic, LineIndex, MAX_SHOWN};
use crate::config::mask::{PLACEHOLDER, SecretMask};
use crate::config::suggest::quote;

/// A parsed text.
pub(in crate::config) struct TomlFile<'a> {
    text: &'a str,
    root: Spanned<DeTable<'a>>,
    faults: Vec<Diagnostic>,
    /// From here on tables may not be what the author meant.
    trusted_end: usize,
}

impl<'a> TomlFile<'a> {
    pub(in crate::config) fn parse(text: &'a str) -> Self {
        let (root, errors) = DeTable::parse_recoverable(text);
        let mask = SecretMask::of(text);
        let mut faults = Vec::new();
        let mut unclosed: Vec<Range<usize>> = Vec::new();
        // What stands below second headers.
        let mut repeated: Vec<Range<usize>> = Vec::new();
        for error in &errors {
            let mut at = error.span().unwrap_or(0..0);
            if is_unquoted_value(error.message()) {
                at = enclosing_value(text, &at);
            }
            let Some(what) = OpenDelimiter::from_message(error.message()) else {
                // What the parser stumbles over may be a piece of a password.
                let written = match text.get(at.clone()) {
                    Some(_) if mask.touches(&at) => PLACEHOLDER,
                    written => written.unwrap_or_default(),
                };
                match error.message() {
                    "duplicate key" if repeated.last().is_some_and(|it| it.contains(&at.start)) => {
                    }
                    "duplicate key" => {
                        let Duplicate { fault, below } = Duplicate::of(
                            text,
                            root.get_ref(),
                            written,
                            at,
                            faults.len() < MAX_SHOWN,
                        );
                        faults.push(fault);
                        repeated.extend(below);
                    }
                    message => {
                        // Looked at only while it is shown: it takes a look at all that is before it.
                        let may_be_colon =
                            message.starts_with("key with no value") && faults.len() < MAX_SHOWN;
                        let fault = may_be_colon.then(|| colon::fault(text, &mask, &at)).flatten();
                        let fault = fault.or_else(|| semicolon(text, &at));
                        faults.push(fault.unwrap_or_else(|| describe(message, written, at)));
                    }
                }
                continue;
            };
            let search = UnclosedSearch { text, what, at: at.start };
            let start = search.table(root.get_ref()).map_or(at.start, |span| span.start);
            faults.push(describe(error.message(), "", start..at.end));
            unclosed.push(start..at.end);
        }
        let trusted_end = unclosed.iter().map(|open| open.start).min().unwrap_or(text.len());
        // What follows an open bracket is noise, and one error a line is enough.
        let lines = LineIndex::of(text);
        let mut seen = HashSet::new();
        faults.retain(|fault| {
            let noise =
                unclosed.iter().any(|open| *open != fault.span && holds(open, fault.span.start));
            !noise && seen.insert(lines.line(fault.span.start))
        });
        TomlFile { text, root, faults, trusted_end }
    }

    /// Whether all of it could be read, so that what is not there was not written.
    pub(in crate::config) fn is_whole(&self) -> bool {
        self.faults.is_empty()
    }

    pub(in crate::config) fn root<'s>(&'s self, reporter: &'s Reporter) -> Section<'s> {
        Section::root(self.root.get_ref(), reporter)
    }

    /// The faults of syntax, and those of meaning that do not follow from them.
    pub(in crate::config) fn merge(self, meaning: Vec<Diagnostic>) -> Vec<Diagnostic> {
        if self.faults.is_empty() {
            return meaning;
        }
        let lines = LineIndex::of(self.text);
        let broken: HashSet<usize> =
            self.faults.iter().map(|fault| lines.line(fault.span.start)).collect();
        let kept = meaning.into_iter().filter(|fault| {
            !fault.absence
                && fault.span.start < self.trusted_end
                && !broken.contains(&lines.line(fault.span.start))
        });
        let kept: Vec<Diagnostic> = kept.collect();
        self.faults.into_iter().chain(kept).collect()
    }
}

/// The parser's words, with a way out. `written` is what it stumbled over.
fn describe(message: &str, written: &str, span: Range<usize>) -> Diagnostic {
    let (what, expected) = message.split_once(", expected ").unwrap_or((message, ""));
    let (what, help) = match (what, expected) {
        ("string values must be quoted", _) if written.is_empty() => {
            ("there is no value".to_owned(), VALUES.to_owned())
        }
        ("string values must be quoted", _) => {
            (format!("{} is not a value", quote(written)), VALUES.to_owned())
        }
        (what, _) if is_unquoted_value(what) => {
            (format!("{} is not a value", quote(written)), VALUES.to_owned())
        }
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
    Diagnostic::error(span, what).help(help)
}

/// What to say of a `;` at the end of a line, as nginx has it.
fn semicolon(text: &str, at: &Range<usize>) -> Option<Diagnostic> {
    let rest = text.get(at.start..)?.lines().next()?.trim_start_matches([' ', '\t']);
    let after = rest.strip_prefix(';')?.trim_start();
    let fault = Diagnostic::error(at.clone(), "no `;` is needed at the end of a line");
    (after.is_empty() || after.starts_with('#')).then(|| fault.help("remove it"))
}

/// Whether the parser took a string without quotes for a number or a boolean: by its first letter,
/// `ip` could be `inf` and `two` could be `true`.
fn is_unquoted_value(message: &str) -> bool {
    let what = message.split_once(',').map_or(message, |(what, _)| what);
    let kinds = ["boolean", "float", "integer number", "mantissa", "fraction", "exponent"];
    what.strip_prefix("invalid ").is_some_and(|kind| kinds.contains(&kind))
}

/// All of the value that something within it is wrong with.
fn enclosing_value(text: &str, at: &Range<usize>) -> Range<usize> {
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
enum OpenDelimiter {
    Bracket,
    String,
}

impl OpenDelimiter {
    fn from_message(message: &str) -> Option<Self> {
        match message {
            _ if message.starts_with("unclosed") => Some(OpenDelimiter::Bracket),
            _ if message.starts_with("invalid multi-line") => Some(OpenDelimiter::String),
            _ => None,
        }
    }
}

/// Looks for what was still open at a place.
struct UnclosedSearch<'t> {
    text: &'t str,
    what: OpenDelimiter,
    at: usize,
}

impl UnclosedSearch<'_> {
    /// The innermost array or inline table, or the string.
    fn table(&self, table: &DeTable<'_>) -> Option<Range<usize>> {
        table.iter().find_map(|(_, item)| self.item(item))
    }

    fn item(&self, item: &Spanned<DeValue<'_>>) -> Option<Range<usize>> {
        let span = item.span();
        let (inner, kind) = match item.get_ref() {
            DeValue::Array(items) => {
                (items.iter().find_map(|it| self.item(it)), OpenDelimiter::Bracket)
            }
            DeValue::Table(table) => (self.table(table), OpenDelimiter::Bracket),
            DeValue::String(_) => (None, OpenDelimiter::String),
            _ => return None,
        };
        let open =
            span.end == self.at || (kind == OpenDelimiter::Bracket && self.lacks_its_end(&span));
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
