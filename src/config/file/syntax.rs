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
        let mut faults: Vec<Fault> = Vec::new();
        let mut trusted = text.len();
        let mut unclosed: Vec<Range<usize>> = Vec::new();
        for error in &errors {
            let at = error.span().unwrap_or(0..0);
            let message = error.message();
            if message.starts_with("unclosed") {
                let open = opened(root.get_ref(), at.start).unwrap_or(at.clone());
                trusted = trusted.min(open.start);
                unclosed.push(open.clone());
                faults.push(describe(message, open));
            } else {
                faults.push(describe(message, at));
            }
        }
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

/// The parser's words, with a way out where there is one to add.
fn describe(message: &str, span: Range<usize>) -> Fault {
    let (what, expected) = message.split_once(", expected ").unwrap_or((message, ""));
    let help = if what.starts_with("string values must be quoted") {
        "a value is a number, `true`, `false`, an array, or a string in quotes: `\"30s\"`"
            .to_owned()
    } else if what == "duplicate key" {
        "remove one of the two, or give it another name".to_owned()
    } else if expected.is_empty() {
        "see https://toml.io for how TOML is written".to_owned()
    } else {
        format!("expected {expected}")
    };
    Fault::error(span, what).help(help)
}

fn holds(open: &Range<usize>, at: usize) -> bool {
    open.start <= at && at <= open.end
}

/// The innermost array or inline table that was still open at a place.
fn opened(table: &DeTable<'_>, at: usize) -> Option<Range<usize>> {
    table.iter().find_map(|(_, item)| opened_in(item, at))
}

fn opened_in(item: &Spanned<DeValue<'_>>, at: usize) -> Option<Range<usize>> {
    let own = (item.span().end == at && item.span().start < at).then(|| item.span());
    match item.get_ref() {
        DeValue::Array(items) => items.iter().find_map(|it| opened_in(it, at)).or(own),
        DeValue::Table(table) => opened(table, at).or(own),
        _ => None,
    }
}
