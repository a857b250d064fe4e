//! `when`: the requests that a limit is for.

use super::request_source::{self, KnownIdentities, SourceUse};
use super::routes::method;
use crate::config::diagnostic::Diagnostic;
use crate::config::file::{Section, UniqueValues, Value};
use crate::config::settings::Route;
use crate::config::suggest::{list, nearest, quote};
use crate::limit::{Condition, Source, What};

/// A value of `route`, which is to be the name of one.
pub(super) struct RouteName<'a> {
    value: Value<'a>,
    name: &'a str,
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
        let values = values(&value, what.as_ref().ok(), routes);
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

/// What is to be found, one or several.
fn values<'a>(
    value: &Value<'a>,
    what: Option<&What>,
    routes: &mut Vec<RouteName<'a>>,
) -> Option<Vec<String>> {
    let entries = value.one_or_more();
    if entries.is_empty() {
        value.error("is empty: the limit would never apply", "name what is to be found there");
        return None;
    }
    let many = entries.len();
    let mut seen = UniqueValues::new();
    let mut values = Vec::new();
    for entry in entries {
        let text = match what {
            Some(What::Method) => method(&entry).and_then(|_| entry.text("POST")),
            _ => entry.text("enterprise"),
        };
        let Some(text) = text else { continue };
        if text.is_empty() {
            entry.error("is empty, which counts as absent", "name what is to be found there");
        } else if seen.insert(text, &entry) {
            if text.contains('*') {
                entry.warning(
                    &format!("is compared as it is written, `*` included: {}", quote(text)),
                    "write each value out: wildcards are not for conditions",
                );
            }
            values.push(text.to_owned());
            if what == Some(&What::Source(Source::Route)) {
                routes.push(RouteName { value: entry, name: text });
            }
        }
    }
    (values.len() == many).then_some(values)
}

/// Notes names of routes that are not there. Nothing is said as long as routes have faults of their
/// own.
pub(super) fn check_routes(names: &[RouteName<'_>], routes: &[Route], all: bool) {
    for RouteName { value, name } in names.iter().filter(|_| all) {
        let mut known = routes.iter().map(|route| route.name.as_str());
        if known.clone().any(|it| it == *name) {
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
