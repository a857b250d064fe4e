//! The guards that count a request, each with the key it counts by.

use http::Method;
use smallvec::SmallVec;

use super::{AcceptedInputs, Planner, RequestHead, RequestPlan, facts, texts};
use crate::gateway::compiled::CompiledGuard;
use crate::guards::{GuardSubject, shared_id};
use crate::limit::Missing;
use crate::limit::key::KeyError;
use crate::limit::source::KeyInput;
use crate::store::{BucketId, BucketKeys, KeyRange, key_format};

/// A caller without the key is counted by its address.
const MISSING: Missing = Missing::Ip;

/// The guards of a request. Most routes have none or one.
pub type PlannedGuards<'a> = SmallVec<[PlannedGuard<'a>; 1]>;

/// A guard, and the key that it counts by.
#[derive(Debug, Clone, Copy)]
pub struct PlannedGuard<'a> {
    pub guard: &'a CompiledGuard,
    pub id: BucketId,
    /// The name of the counter, where several gateways share it.
    pub key: KeyRange,
}

/// Whose requests a guard counts, in words.
#[derive(Debug)]
pub struct GuardTexts {
    pub subject: GuardSubject,
    pub user: Option<String>,
    pub client: Option<String>,
    pub tenant: Option<String>,
    pub plan: Option<String>,
}

/// The guards of the route whose conditions hold. One whose key is ambiguous counts nothing: the
/// request is refused for that by whatever else asks for it.
pub(super) fn collect<'a>(
    planner: Planner<'a>,
    guards: &'a [usize],
    method: &Method,
    input: &KeyInput<'_>,
    keys: &mut BucketKeys,
) -> PlannedGuards<'a> {
    let planned = guards.iter().filter_map(|index| {
        let guard = &planner.compiled.guards[*index];
        let holds = guard.guard.when.iter().all(|it| it.holds(input, method) == Ok(true));
        let (id, key) = holds.then(|| name(planner, guard, input, keys))?.ok()?;
        Some(PlannedGuard { guard, id, key })
    });
    planned.collect()
}

/// Where gateways share counters, a key is known by the counter's name, so that they can tell each
/// other of it.
fn name(
    planner: Planner<'_>,
    guard: &CompiledGuard,
    input: &KeyInput<'_>,
    keys: &mut BucketKeys,
) -> Result<(BucketId, KeyRange), KeyError> {
    let key = &guard.guard.key;
    let Some(prefix) = &guard.shared_prefix else {
        let mut id = planner.hasher.start(guard.prefix);
        key.parts(input, MISSING, |kind, bytes| id.part(kind as u8, bytes))?;
        return Ok((id.finish(), KeyRange::default()));
    };
    let range = keys.write(|name| {
        name.extend_from_slice(prefix);
        key.parts(input, MISSING, |kind, bytes| key_format::push_part(name, kind, bytes))
    })?;
    Ok((shared_id(planner.hasher, keys.get(range)), range))
}

impl RequestPlan<'_> {
    /// Made on demand, from the same inputs as the plan.
    pub fn guard_texts(
        &self,
        planner: Planner<'_>,
        guard: &PlannedGuard<'_>,
        head: RequestHead<'_, '_>,
        inputs: AcceptedInputs<'_>,
    ) -> GuardTexts {
        let host = planner.counted_host(&self.route);
        let facts = facts(head, &host, inputs);
        let found = planner.names(&self.route, &facts).unwrap_or_default();
        let input = planner.key_input(&self.route, &self.caller.address, facts, &found.names);
        let subject = GuardSubject {
            guard: guard.guard.name.clone(),
            key: texts::key_text(&guard.guard.guard.key, MISSING, &input),
            shared_key: self.limits.keys.get(guard.key).into(),
        };
        GuardTexts {
            subject,
            user: texts::text(&found.names.user),
            client: texts::text(&found.names.client),
            tenant: texts::text(&found.names.tenant),
            plan: texts::text(&found.names.plan),
        }
    }
}
