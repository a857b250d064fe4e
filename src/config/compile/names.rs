//! Names of limits, guards, routes and upstreams: how they are spelled, and what refers to them.
//!
//! They appear in headers, metric labels and logs, so they are short and plain.

use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Range;

use crate::config::diagnostic::Diagnostic;
use crate::config::file::{Reporter, Value};
use crate::config::mask::mask;
use crate::config::suggest::{nearest, quote};

const LONGEST: usize = 64;

/// Notes a fault unless the name may be used.
pub(super) fn check(name: &str, span: Range<usize>, reporter: &Reporter) -> bool {
    let good = is_good(name);
    if !good {
        reporter.report(Diagnostic::error(span, format!("{} cannot be a name", quote(name))).help(
            format!(
                "use 1 to {LONGEST} letters, digits, `_`, `.` or `-`: names become header values \
                 and metric labels"
            ),
        ));
    }
    good
}

fn is_good(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    (1..=LONGEST).contains(&name.len()) && name.chars().all(plain)
}

/// What the file defines under one kind of name, and what of it is used.
pub(super) struct NameTable {
    /// `limit`, `guard` or `upstream`.
    kind: &'static str,
    defined: Vec<Definition>,
    by_name: HashMap<String, usize>,
    /// Known without being defined.
    built_in: &'static [&'static str],
}

struct Definition {
    name: String,
    span: Range<usize>,
    /// Where it stands among the settings; nowhere if it has faults of its own.
    index: Option<usize>,
    used: Cell<bool>,
}

impl NameTable {
    pub(super) fn new(kind: &'static str, built_in: &'static [&'static str]) -> Self {
        NameTable { kind, defined: Vec::new(), by_name: HashMap::new(), built_in }
    }

    pub(super) fn define(&mut self, name: &str, span: Range<usize>, index: Option<usize>) {
        self.by_name.insert(name.to_owned(), self.defined.len());
        let (name, used) = (name.to_owned(), Cell::new(false));
        self.defined.push(Definition { name, span, index, used });
    }

    /// Where a name is defined.
    pub(super) fn span(&self, name: &str) -> Option<Range<usize>> {
        self.by_name.get(name).map(|at| self.defined[*at].span.clone())
    }

    /// Somebody means it, though in a way that is a fault of its own.
    pub(super) fn mark_used(&self, name: &str) {
        if let Some(at) = self.by_name.get(name) {
            self.defined[*at].used.set(true);
        }
    }

    /// What a value refers to among these, which a list named `limits` or `guards` holds; notes a
    /// fault if there is no such thing, or if it is one of the `others`.
    pub(super) fn resolve_apart(
        &self,
        name: &str,
        value: &Value<'_>,
        others: &NameTable,
    ) -> Option<usize> {
        if self.by_name.contains_key(name) || !others.by_name.contains_key(name) {
            return self.resolve(name, value);
        }
        others.mark_used(name);
        let message = format!("{} is a {}", quote(name), others.kind);
        let help = format!("name it in `{}s`", others.kind);
        value.report(Diagnostic::error(value.span(), message).help(help));
        None
    }

    /// What a value refers to; notes a fault if there is no such thing.
    pub(super) fn resolve(&self, name: &str, value: &Value<'_>) -> Option<usize> {
        if let Some(at) = self.by_name.get(name) {
            let definition = &self.defined[*at];
            definition.used.set(true);
            return definition.index;
        }
        let names = || {
            let defined = self.defined.iter().map(|it| it.name.as_str());
            defined.chain(self.built_in.iter().copied())
        };
        let kind = self.kind;
        let help = match nearest(name, names()) {
            Some(meant) => {
                // Nor is that one unused, only misspelled.
                self.mark_used(meant);
                format!("did you mean `{meant}`?")
            }
            // What looks like an API key is repeated nowhere.
            None if is_good(name) && mask(name) == name => {
                format!("add a table `[{kind}s.{}]`", toml_key(name))
            }
            None => format!("add a table `[{kind}s.NAME]` and write its name here"),
        };
        let message = format!("there is no {kind} {}", quote(name));
        value.report(Diagnostic::error(value.span(), message).help(help).absence());
        None
    }

    /// Warns of what nothing refers to, unless it has faults of its own.
    pub(super) fn warn_of_unused(&self, reporter: &Reporter) {
        for definition in self.defined.iter().filter(|it| it.index.is_some() && !it.used.get()) {
            let message = format!("{} `{}` is used by no route", self.kind, definition.name);
            let help = match self.kind {
                "limit" | "guard" => {
                    format!("add `\"{}\"` to the `{}s` of a route", definition.name, self.kind)
                }
                _ => format!("write `upstream = \"{}\"` in a route", definition.name),
            };
            let fault = Diagnostic::warning(definition.span.clone(), message).help(help);
            reporter.report(fault.absence());
        }
    }
}

/// A name as a header in brackets spells it: in quotes, unless it is plain. A dot would part it in two.
pub(super) fn toml_key(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if !name.is_empty() && name.chars().all(plain) {
        return name.to_owned();
    }
    let mut key = String::from("\"");
    for c in name.chars() {
        match c {
            '"' | '\\' => key.extend(['\\', c]),
            // What cannot be seen in a message is not shown as it is.
            _ if c != '\'' && c.escape_debug().len() > 1 => {
                key.push_str(&format!("\\U{:08X}", u32::from(c)));
            }
            _ => key.push(c),
        }
    }
    key + "\""
}
