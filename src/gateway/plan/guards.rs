//! The guards that count a request, each with the key it counts by.

use http::Method;
use smallvec::SmallVec;

use super::{CallerTexts, PlanSource, Planner};
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

impl PlannedGuard<'_> {
    /// Whose requests it counts, in words. Made on demand, from the same inputs as the plan.
    pub fn subject(&self, source: PlanSource<'_>, keys: &BucketKeys) -> GuardSubject {
        GuardSubject {
            guard: self.guard.name.clone(),
            key: source.key_text(&self.guard.guard.key, MISSING),
            shared_key: keys.get(self.key).into(),
        }
    }

    /// Who was counted.
    pub fn caller_texts(&self, source: PlanSource<'_>) -> CallerTexts {
        source.caller_texts(&self.guard.guard.key, MISSING)
    }
}
