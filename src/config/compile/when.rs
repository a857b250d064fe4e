//! `when`: the requests that a limit is for.

use super::request_source::{self, KnownIdentities, SourceUse};
use super::routes::method;
use crate::config::diagnostic::Diagnostic;
use crate::config::file::{Section, UniqueValues, Value};
use crate::config::settings::Route;
use crate::config::suggest::{list, nearest, quote};
use crate::limit::{Condition, Source, ValuePattern, What};

/// What a limit or a guard says when nothing is asked for.
const NEVER: &str = "the limit would never apply";

/// A value of `route`, which is to be the name of one, or a pattern of names.
pub(super) struct RouteName<'a> {
    value: Value<'a>,
    name: &'a str,
    pattern: ValuePattern,
}

/// The conditions of a limit; nothing if there is something wrong with one. The routes they name
/// are put aside until these are known.
pub(super) fn when<'a>(
    section: &mut Section<'a>,
    known: KnownIdentities,
    routes: &mut Vec<RouteName<'a>>,
) -> Option<Vec<Condition>> {
    let written = section.author_keys("when");
    let many = written.len();
    let mut seen = UniqueValues::new();
    let mut conditions = Vec::new();
    for (key, value) in written {
        let what = match key {
            "method" => Ok(What::Method),
            _ => request_source::parse(key, SourceUse::Condition)
                .and_then(|source| known.check(&source).map(|()| What::Source(source))),
        };
        let values = match &what {
            Ok(What::Method) => methods(&value),
            _ => patterns(&value, NEVER),
        };
        if let (Ok(What::Source(Source::Route)), Some(patterns)) = (&what, &values) {
            for (value, pattern) in value.one_or_more().into_iter().zip(patterns) {
                let Some(name) = value.as_str() else { continue };
                routes.push(RouteName { value, name, pattern: pattern.clone() });
            }
        }
        match what {
            Ok(what) => {
                if let Some(values) = values.filter(|_| seen.insert(what.clone(), &value)) {
                    conditions.push(Condition { what, values });
                }
            }
            Err(error) => {
                let message = format!("a condition of `when` {}", error.message);
                value.report(Diagnostic::error(value.key(), message).help(error.help));
            }
        }
    }
    (conditions.len() == many).then_some(conditions)
}

/// What is to be found, one or several. `never` says what is wrong if there is nothing.
pub(super) fn patterns(value: &Value<'_>, never: &str) -> Option<Vec<ValuePattern>> {
    texts(value, never, |entry| {
        let text = entry.text("enterprise")?;
        if text.is_empty() {
            entry.error("is empty, which counts as absent", "name what is to be found there");
        }
        (!text.is_empty()).then_some(text)
    })
}

/// Methods have no patterns.
fn methods(value: &Value<'_>) -> Option<Vec<ValuePattern>> {
    texts(value, NEVER, |entry| method(entry).and(entry.as_str()))
}

fn texts<'a>(
    value: &Value<'a>,
    never: &str,
    text: impl Fn(&Value<'a>) -> Option<&'a str>,
) -> Option<Vec<ValuePattern>> {
    let entries = value.one_or_more();
    if entries.is_empty() {
        value.error(&format!("is empty: {never}"), "name what is to be found there");
        return None;
    }
    let many = entries.len();
    let mut seen = UniqueValues::new();
    let texts = entries.iter().filter_map(|entry| text(entry).filter(|it| seen.insert(*it, entry)));
    let patterns: Vec<ValuePattern> = texts.map(ValuePattern::new).collect();
    (patterns.len() == many).then_some(patterns)
}

/// Notes names of routes that are not there. Nothing is said as long as routes have faults of their
/// own.
pub(super) fn check_routes(names: &[RouteName<'_>], routes: &[Route], all: bool) {
    for RouteName { value, name, pattern } in names.iter().filter(|_| all) {
        let mut known = routes.iter().map(|route| route.name.as_str());
        if known.clone().any(|it| pattern.matches(it.as_bytes())) {
            continue;
        }
        let help = match nearest(name, known.clone()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("the routes are {}", list(known.by_ref().take(8))),
        };
        let message = format!("there is no route {}", quote(name));
        value.report(Diagnostic::error(value.span(), message).help(help).absence());
    }
}
