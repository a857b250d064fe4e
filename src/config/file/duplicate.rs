//! A key or a table that a file has twice: where it is first, and what follows from the second.
//!
//! The parser tells only where the second one is. Which table that line belongs to is read from the
//! lines above it; where these say nothing certain, no first place is shown.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use crate::config::diagnostic::Diagnostic;
use crate::config::suggest::quote;

/// The tables that a file may have many of.
pub(in crate::config) const ARRAYS: [&str; 2] = ["clients", "routes"];

/// A second key or header.
pub(super) struct Duplicate {
    pub(super) fault: Diagnostic,
    /// The lines below a second header: the parser takes their keys for further ones of the first.
    pub(super) below: Option<Range<usize>>,
}

impl Duplicate {
    /// `at` is where the name stands for the second time, and `shown` how messages call it. The first
    /// place is looked for if `is_searched`.
    pub(super) fn of(
        text: &str,
        root: &DeTable<'_>,
        shown: &str,
        at: Range<usize>,
        is_searched: bool,
    ) -> Self {
        let line = line_around(text, at.start);
        let until_name = &text[line.start..at.end.clamp(line.start, line.end)];
        let Some(header) = Header::parse(until_name) else {
            let find = || first_of_key(text, root, line.start, until_name, &at);
            let first = is_searched.then(find).flatten();
            let fault = Diagnostic::error(at, format!("duplicate key {}", quote(shown)))
                .help("remove one of the two, or give it another name");
            return Duplicate { fault: with_first(fault, first), below: None };
        };
        let find = || first_header(&text[..line.start], &header.path);
        let first = is_searched.then(find).flatten();
        let help = match header.path.as_slice() {
            // Whichever of the two has double brackets, both need them.
            [name] if ARRAYS.contains(&name.as_str()) => format!("write `[[{name}]]` above each"),
            [_] => "put its keys below the first one".to_owned(),
            _ => "put its keys below the first one, or give it another name".to_owned(),
        };
        let written = quote(text[line.clone()].split('#').next().unwrap_or_default().trim());
        let fault = Diagnostic::error(at, format!("duplicate table {written}")).help(help);
        let below = line.end..end_of_table(text, line.end);
        Duplicate { fault: with_first(fault, first), below: Some(below) }
    }
}

fn with_first(fault: Diagnostic, first: Option<Range<usize>>) -> Diagnostic {
    match first {
        Some(first) => fault.also(first, "first here"),
        None => fault,
    }
}

/// Where the key of a line is first, which lies in the table of the header above it.
fn first_of_key(
    text: &str,
    root: &DeTable<'_>,
    line_start: usize,
    until_name: &str,
    at: &Range<usize>,
) -> Option<Range<usize>> {
    let key = path_of(&format!("{until_name} = 0"))?;
    let header = text[..line_start].lines().rev().find_map(Header::of_line);
    let path: Vec<String> = header.map(|it| it.path).into_iter().flatten().chain(key).collect();
    find(root, &path, at.start)
}

/// Where a header is first. The parser has put the second one in its place.
fn first_header(before: &str, path: &[String]) -> Option<Range<usize>> {
    let (mut start, mut first) = (0, None);
    for line in before.split_inclusive('\n') {
        if let Some(header) = Header::of_line(line) {
            if header.is_array && header.path.len() < path.len() && path.starts_with(&header.path) {
                // A new entry of an array, with tables of its own.
                first = None;
            } else if header.path == path && first.is_none() {
                let indent = line.len() - line.trim_start().len();
                let written = line.split('#').next().unwrap_or_default().trim();
                first = Some(start + indent..start + indent + written.len());
            }
        }
        start += line.len();
    }
    first
}

/// `[a.b]` or `[[a.b]]`.
struct Header {
    path: Vec<String>,
    is_array: bool,
}

impl Header {
    /// The header that a whole line is.
    fn of_line(line: &str) -> Option<Self> {
        let start = line.trim_start();
        let path = start.starts_with('[').then(|| path_of(line))??;
        Some(Header { path, is_array: start.starts_with("[[") })
    }

    /// The header that a line begins with, which is cut off behind a name.
    fn parse(start: &str) -> Option<Self> {
        let brackets = start.trim_start();
        let end = if brackets.starts_with("[[") { "]]" } else { "]" };
        Header::of_line(&format!("{start}{end}"))
    }
}

/// The names that a line has, down to what it assigns or to its empty table.
fn path_of(line: &str) -> Option<Vec<String>> {
    let root = DeTable::parse(line).ok()?;
    let (mut table, mut path) = (root.get_ref(), Vec::new());
    while let Some((name, item)) = table.iter().next() {
        path.push(name.get_ref().to_string());
        table = match item.get_ref() {
            DeValue::Table(table) => table,
            DeValue::Array(items) => match items.iter().next().map(|it| it.get_ref()) {
                Some(DeValue::Table(table)) => table,
                _ => break,
            },
            _ => break,
        };
    }
    (!path.is_empty()).then_some(path)
}

/// The key to which a path leads, if it was written before a place.
fn find(root: &DeTable<'_>, path: &[String], before: usize) -> Option<Range<usize>> {
    let (last, tables) = path.split_last()?;
    let mut table = root;
    for name in tables {
        table = match table.get(name.as_str())?.get_ref() {
            DeValue::Table(table) => table,
            DeValue::Array(items) => {
                let mut earlier = items.iter().rev().filter(|it| it.span().start < before);
                match earlier.next()?.get_ref() {
                    DeValue::Table(table) => table,
                    _ => return None,
                }
            }
            _ => return None,
        };
    }
    let (key, _) = table.get_key_value(last.as_str())?;
    Some(key.span()).filter(|it| it.start < before)
}

/// Without its line break.
fn line_around(text: &str, at: usize) -> Range<usize> {
    let at = text.floor_char_boundary(at);
    let start = text[..at].rfind('\n').map_or(0, |found| found + 1);
    let end = text[at..].find('\n').map_or(text.len(), |found| at + found);
    start..end
}

/// Where the next header begins.
fn end_of_table(text: &str, from: usize) -> usize {
    let mut at = from;
    for line in text[from..].split_inclusive('\n') {
        if Header::of_line(line).is_some() {
            return at;
        }
        at += line.len();
    }
    text.len()
}
