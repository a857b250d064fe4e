//! `[guards.NAME]`.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::key::key;
use super::limits::{LimitContext, on_error};
use super::names::{self, NameTable};
use super::server::read;
use super::strategy::MODES;
use super::when::{RouteName, when};
use crate::config::diagnostic::Diagnostic;
use crate::config::file::{Section, Value};
use crate::limit::guard::{Guard, MAX_PENALTY};
use crate::limit::{Mode, OnError};

/// Gateways tell each other some twenty times a second what they have counted: a much shorter window
/// would be over before they have.
const WINDOWS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(86_400);
const PENALTIES: RangeInclusive<Duration> = Duration::from_secs(1)..=MAX_PENALTY;
const THRESHOLDS: RangeInclusive<u64> = 1..=1_000_000_000;

/// The guards, their names, and the routes that their conditions name.
pub(super) fn guards<'a>(
    root: &mut Section<'a>,
    context: LimitContext,
    limits: &NameTable,
    routes: &mut Vec<RouteName<'a>>,
) -> (Vec<Guard>, NameTable) {
    let mut guards = Vec::new();
    let mut names = NameTable::new("guard", &[]);
    for entry in root.named_sections("guards") {
        let good = names::check(entry.name, entry.span.clone(), root.reporter());
        if let Some(limit) = limits.span(entry.name) {
            let message = format!("guard `{}` has the name of a limit", entry.name);
            let help = "give it another: `weir violations --limit NAME` would find both";
            let fault = Diagnostic::warning(entry.span.clone(), message).help(help);
            root.reporter().report(fault.also(limit, "the limit"));
        }
        let guard = guard(entry.name, entry.section, context, routes).filter(|_| good);
        names.define(entry.name, entry.span, guard.is_some().then_some(guards.len()));
        guards.extend(guard);
    }
    (guards, names)
}

fn guard<'a>(
    name: &str,
    mut section: Section<'a>,
    context: LimitContext,
    routes: &mut Vec<RouteName<'a>>,
) -> Option<Guard> {
    let LimitContext { store: home, identities: known } = context;
    let key = section.require("key", "key = \"ip\"").and_then(|value| key(&value, known));
    let window = section.require("window", "window = \"10s\"");
    let window = window.and_then(|value| value.duration(WINDOWS));
    let threshold = section.require("threshold", "threshold = 50");
    let threshold = threshold.and_then(|value| value.integer(THRESHOLDS));
    let written = section.require("penalty", "penalty = \"5m\"");
    let penalty = written.as_ref().and_then(|value| value.duration(PENALTIES));
    if let (Some(value), true) =
        (written, penalty.zip(window).is_some_and(|(it, window)| it < window))
    {
        value.warning(
            "is shorter than the window: a warning ends before there can be another offence, and \
             hardly anybody is ever blocked",
            "write at least what `window` says",
        );
    }
    let mode = read(&mut section, "mode", Mode::Enforce, |value: &Value<'_>| value.choice(&MODES));
    let on_error = section.get("on_error").and_then(|value| on_error(&value, home));
    let when = when(&mut section, known, routes);
    Some(Guard {
        name: name.to_owned(),
        key: key?,
        window: window?,
        threshold: threshold?,
        penalty: penalty?,
        when: when?,
        mode,
        on_error: on_error.unwrap_or(OnError::Local),
    })
}
