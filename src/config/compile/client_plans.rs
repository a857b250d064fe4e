//! The plans that clients are given: a misspelled one would leave its client with the usual numbers, and
//! nobody would hear of it.

use std::collections::HashSet;

use super::names::toml_key;
use crate::config::file::{Reporter, Value};
use crate::config::settings::{IdentityName, Settings};
use crate::config::suggest::{is_shown_whole, nearest, shown};
use crate::limit::{Condition, Source, What};

/// Where clients are given their plans.
#[derive(Default)]
pub(super) struct ClientPlans<'a> {
    /// Each `plan` below `[[clients]]`.
    pub(super) written: Vec<Value<'a>>,
    /// `clients_file`, and how many of all clients come before those of the files.
    pub(super) file: Option<Value<'a>>,
    pub(super) before_files: usize,
}

impl ClientPlans<'_> {
    /// Warns of each plan that nothing asks for, where limits have numbers for others. Nothing is said as
    /// long as the file has faults: a limit that has one is not among the settings.
    pub(super) fn check(&self, settings: &Settings, reporter: &Reporter) {
        let known: HashSet<&str> = settings
            .limits
            .iter()
            .flat_map(|limit| limit.plans.iter().map(|(name, _)| name.as_str()))
            .collect();
        let forwarded = settings.identity.forward.headers.iter();
        if known.is_empty()
            || reporter.has_errors()
            || forwarded.into_iter().any(|(name, _)| *name == IdentityName::Plan)
        {
            return;
        }
        let mut seen = HashSet::new();
        let mut is_unknown = |plan: &str| {
            !known.contains(plan) && !is_asked_for(plan, settings) && seen.insert(plan.to_owned())
        };
        for value in &self.written {
            if let Some(plan) = value.as_str().filter(|plan| is_unknown(plan)) {
                value.warning(&format!("is `{}`, {NO_NUMBERS}", shown(plan)), help(plan, &known));
            }
        }
        let Some(file) = &self.file else { return };
        for client in settings.identity.clients.iter().flatten().skip(self.before_files) {
            if let Some(plan) = client.plan.as_deref().filter(|plan| is_unknown(plan)) {
                let (id, shown) = (shown(&client.id), shown(plan));
                let message =
                    format!("names a client `{id}` whose plan is `{shown}`, {NO_NUMBERS}");
                file.warning(&message, help(plan, &known));
            }
        }
    }
}

const NO_NUMBERS: &str = "for which no limit has numbers of its own";

fn help(plan: &str, known: &HashSet<&str>) -> String {
    // In an order of their own, so that the same file gets the same answer.
    let mut names: Vec<&str> = known.iter().copied().collect();
    names.sort_unstable();
    match nearest(plan, names) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => {
            let table = match is_shown_whole(plan) {
                true => format!("write `[limits.NAME.plans.{}]`", toml_key(plan)),
                // Part of a name would be the name of another plan.
                false => "give it a table below `[limits.NAME.plans]`".to_owned(),
            };
            format!("the usual numbers hold: leave it out if that is meant, or {table}")
        }
    }
}

/// Whether a limit or a guard applies to the plan by its `when`.
fn is_asked_for(plan: &str, settings: &Settings) -> bool {
    let of_limits = settings.limits.iter().flat_map(|it| &it.when);
    let of_guards = settings.guards.iter().flat_map(|it| &it.when);
    let matches = |it: &Condition| {
        it.what == What::Source(Source::Plan)
            && it.values.iter().any(|value| value.matches(plan.as_bytes()))
    };
    of_limits.chain(of_guards).chain(&settings.tenants.limit.when).any(matches)
}
