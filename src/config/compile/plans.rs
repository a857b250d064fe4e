//! `[limits.NAME.plans.PLAN]`: the same limit with other numbers, for callers of a plan.

use super::clients::is_name;
use super::policy::Terms;
use super::source::Known;
use crate::config::diagnostic::Fault;
use crate::config::file::Section;
use crate::config::suggest::quote;
use crate::limit::Policy;

/// What is written below `plans`, by name.
pub(super) struct Plans<'a> {
    plans: Vec<(&'a str, Section<'a>, Terms<'a>)>,
}

impl<'a> Plans<'a> {
    pub(super) fn of(section: &mut Section<'a>, known: Known) -> Self {
        let mut plans = Vec::new();
        for mut entry in section.named("plans") {
            let terms = Terms::of(&mut entry.section);
            if !is_name(entry.name) {
                let message = format!("{} cannot be the name of a plan", quote(entry.name));
                let help = "write 1 to 128 characters on one line";
                section.notes().fault(Fault::error(entry.span, message).help(help));
                continue;
            }
            if !known.plan {
                entry.section.doubtful(
                    "is never used: nothing says which plan a caller has",
                    "add a line such as `plan = \"jwt:plan\"` to `[identity]`, or a `plan` to a client",
                );
            }
            plans.push((entry.name, entry.section, terms));
        }
        Plans { plans }
    }

    /// The numbers of each plan of a limit whose own are good.
    pub(super) fn policies(
        self,
        limit: (&Terms<'a>, &Policy),
        buckets: u64,
    ) -> Vec<(String, Policy)> {
        let policy = |(name, section, terms): (&str, _, Terms<'a>)| {
            terms.plan(section, limit, buckets).map(|policy| (name.to_owned(), policy))
        };
        self.plans.into_iter().filter_map(policy).collect()
    }
}
