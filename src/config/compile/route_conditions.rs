//! `headers` and `query` of a route: what a request has to say besides its path.

use super::request_source::{is_connection_header, named};
use super::value_error::ValueError;
use super::when;
use crate::config::diagnostic::Diagnostic;
use crate::config::file::{Section, UniqueValues};
use crate::config::suggest::quote;
use crate::limit::{Condition, Source, What};

/// The conditions of a route, those on headers first; nothing if there is something wrong with one.
pub(super) fn conditions(section: &mut Section<'_>) -> Option<Vec<Condition>> {
    let headers = collect(section, "headers", header);
    let query = collect(section, "query", |name| source("query", name));
    let mut conditions = headers?;
    conditions.extend(query?);
    Some(conditions)
}

fn header(name: &str) -> Result<Source, ValueError> {
    let name = name.to_ascii_lowercase();
    if name == "host" {
        return Err(ValueError::new(
            "cannot be `host`: every request has one",
            "write `host = \"api.example.com\"` beside it",
        ));
    }
    if is_connection_header(&name) {
        return Err(ValueError::new(
            format!("cannot be {}: it belongs to a connection, not to a caller", quote(&name)),
            "ask for a header that callers send, such as `x-beta`",
        ));
    }
    source("header", &name)
}

/// What a name says alone, which conditions of limits write with its kind before it.
fn source(kind: &str, name: &str) -> Result<Source, ValueError> {
    named(kind, name).ok_or_else(|| {
        let alone = name.split_once(':').filter(|(before, _)| *before == kind);
        let alone = alone.filter(|(_, alone)| named(kind, alone).is_some());
        let help = match (alone, kind) {
            (Some((_, alone)), _) => format!("write {}", quote(alone)),
            (None, "header") => "write a name such as `x-version`".to_owned(),
            (None, _) => "write a name such as `debug`".to_owned(),
        };
        ValueError::new(format!("has no valid {kind} name: {}", quote(name)), help)
    })
}

fn collect(
    section: &mut Section<'_>,
    key: &'static str,
    source: impl Fn(&str) -> Result<Source, ValueError>,
) -> Option<Vec<Condition>> {
    let written = section.author_keys(key);
    let many = written.len();
    let mut seen = UniqueValues::new();
    let mut conditions = Vec::new();
    for (name, value) in written {
        let values = when::patterns(&value, "the route would never match");
        match source(name) {
            Ok(source) => {
                if let Some(values) = values.filter(|_| seen.insert_key(source.clone(), &value)) {
                    conditions.push(Condition { what: What::Source(source), values });
                }
            }
            Err(error) => {
                let message = format!("a condition of `{key}` {}", error.message);
                value.report(Diagnostic::error(value.key(), message).help(error.help));
            }
        }
    }
    (conditions.len() == many).then_some(conditions)
}
