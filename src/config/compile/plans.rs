//! `[limits.NAME.plans.PLAN]`: the same limit with other numbers, for callers of a plan.

use super::clients::is_name;
use super::policy::{BaseLimit, PolicyKeys};
use super::request_source::KnownIdentities;
use crate::config::diagnostic::Diagnostic;
use crate::config::file::Section;
use crate::config::suggest::quote;
use crate::limit::Policy;

/// What is written below `plans`, by name.
pub(super) struct PlanSections<'a> {
    plans: Vec<PlanSection<'a>>,
}

struct PlanSection<'a> {
    name: &'a str,
    section: Section<'a>,
    keys: PolicyKeys<'a>,
}

impl<'a> PlanSections<'a> {
    pub(super) fn of(section: &mut Section<'a>, known: KnownIdentities) -> Self {
        let mut plans = Vec::new();
        for mut entry in section.named_sections("plans") {
            let keys = PolicyKeys::of(&mut entry.section);
            if !is_name(entry.name) {
                let message = format!("{} cannot be the name of a plan", quote(entry.name));
                let help = "write 1 to 128 characters on one line";
                section.reporter().report(Diagnostic::error(entry.span, message).help(help));
                continue;
            }
            if !known.plan {
                entry.section.warning(
                    "is never used: nothing says which plan a caller has",
                    "add a line such as `plan = \"jwt:plan\"` to `[identity]`, or a `plan` to a client",
                );
            }
            plans.push(PlanSection { name: entry.name, section: entry.section, keys });
        }
        PlanSections { plans }
    }

    /// The policy of each plan.
    pub(super) fn policies(self, base: BaseLimit<'_, 'a>) -> Vec<(String, Policy)> {
        let policy = |plan: PlanSection<'a>| {
            let PlanSection { name, section, keys } = plan;
            keys.plan(section, base).map(|policy| (name.to_owned(), policy))
        };
        self.plans.into_iter().filter_map(policy).collect()
    }
}
