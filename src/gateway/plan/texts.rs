//! What a plan says of a request in words: names, and the keys of limits. Made on demand, for those
//! who read plans; serving a request needs none of it.

use super::{
    AcceptedInputs, CallerAddress, Planner, RequestHead, RequestInputs, RequestPlan, RouteMatch,
    facts,
};
use crate::caller::identity::{FoundNames, WantedNames};
use crate::limit::source::{KeyInput, SourceValue};
use crate::limit::spelling::ReadableKey;
use crate::limit::{Key, Missing};
use crate::respond::Fault;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanTexts {
    pub user: Option<String>,
    pub client: Option<String>,
    pub tenant: Option<String>,
    pub plan: Option<String>,
    /// The key of each planned limit, its parts with `, ` between them.
    pub keys: Vec<String>,
}

impl PlanTexts {
    /// The texts of a plan that was made from the same inputs.
    ///
    /// # Errors
    /// None that [`RequestPlan::of`] would not have had.
    pub fn of(
        planner: Planner<'_>,
        plan: &RequestPlan<'_>,
        head: RequestHead<'_, '_>,
        inputs: RequestInputs<'_>,
    ) -> Result<Self, Fault> {
        let RequestPlan { route, caller, limits, .. } = plan;
        let inputs: AcceptedInputs<'_> =
            planner.accept(route, &caller.address, head.headers, inputs)?;
        let host = planner.counted_host(route);
        let facts = facts(head, &host, inputs);
        let found = planner.names(route, &facts)?;
        let key = planner.key_input(route, &caller.address, facts, &found.names);
        let keys = limits.limits.iter().map(|it| key_text(&it.limit.key, it.limit.missing, &key));
        Ok(PlanTexts {
            user: text(&found.names.user),
            client: text(&found.names.client),
            tenant: text(&found.names.tenant),
            plan: text(&found.names.plan),
            keys: keys.collect(),
        })
    }
}

/// What a plan was made from, so that it can be put into words as long as all of it is there.
#[derive(Debug, Clone, Copy)]
pub struct PlanSource<'r> {
    pub planner: Planner<'r>,
    pub route: &'r RouteMatch<'r>,
    pub address: &'r CallerAddress<'r>,
    pub head: RequestHead<'r, 'r>,
    pub inputs: AcceptedInputs<'r>,
}

/// The names of a caller, and one of the keys that it is counted by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallerTexts {
    pub key: String,
    pub user: Option<String>,
    pub client: Option<String>,
    pub tenant: Option<String>,
    pub plan: Option<String>,
}

impl PlanSource<'_> {
    /// All names that can be found, whether the route goes by them or not.
    pub fn caller_texts(self, key: &Key, missing: Missing) -> CallerTexts {
        self.describe(ALL_NAMES, |input, found| CallerTexts {
            key: key_text(key, missing, input),
            user: text(&found.names.user),
            client: text(&found.names.client),
            tenant: text(&found.names.tenant),
            plan: text(&found.names.plan),
        })
    }

    pub fn key_text(self, key: &Key, missing: Missing) -> String {
        self.describe(self.route.needs.names, |input, _| key_text(key, missing, input))
    }

    fn describe<T>(
        self,
        wanted: WantedNames,
        say: impl FnOnce(&KeyInput<'_>, &FoundNames<'_, '_>) -> T,
    ) -> T {
        let PlanSource { planner, route, address, head, inputs } = self;
        let host = planner.counted_host(route);
        let facts = facts(head, &host, inputs);
        // A name that is there twice is nobody's; the route may need none of that kind.
        let found = planner.compiled.identity.find(&facts, wanted);
        let found = found.or_else(|_| planner.names(route, &facts)).unwrap_or_default();
        say(&planner.key_input(route, address, facts, &found.names), &found)
    }
}

const ALL_NAMES: WantedNames =
    WantedNames { user: true, client: true, tenant: true, plan: true, trust: false };

fn key_text(key: &Key, missing: Missing, input: &KeyInput<'_>) -> String {
    let mut text = ReadableKey::default();
    // A limit was planned only if it has a key.
    let _ = key.parts(input, missing, |part, bytes| text.push(part, bytes));
    text.into_text()
}

fn text(name: &SourceValue<'_>) -> Option<String> {
    name.as_deref().map(|name| String::from_utf8_lossy(name).into_owned())
}
