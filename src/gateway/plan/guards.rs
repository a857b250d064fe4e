//! The guards that count a request, each with the key it counts by.
//!
//! What a guard asks for is read as strictly as what a limit asks for. A request in which it can be
//! read in two ways is refused for that, and counted by its address all the same: a flood of such
//! requests is a flood.

use std::ops::Deref;
use std::sync::LazyLock;

use http::Method;
use smallvec::SmallVec;

use super::limits::applies;
use super::{CallerTexts, PlanSource, Planner};
use crate::caller::{AccessLists, Identity};
use crate::gateway::compiled::{CompiledGuard, condition_sources};
use crate::guards::{GuardSubject, listed_key, shared_id};
use crate::limit::guard::Guard;
use crate::limit::key::KeyError;
use crate::limit::source::KeyInput;
use crate::limit::{Key, Missing, Mode, Source};
use crate::store::{BucketId, BucketKeys, KeyRange, KeysView, key_format};

/// A caller without the key is counted by its address.
const MISSING: Missing = Missing::Ip;

/// The key of a caller whose own can be read in two ways.
static ADDRESS: LazyLock<Key> = LazyLock::new(|| Key(vec![Source::Ip]));

/// The guards of a request. Most routes have none or one.
#[derive(Debug, Default)]
pub struct PlannedGuards<'a>(SmallVec<[PlannedGuard<'a>; 1]>);

/// A guard, and the key that it counts by.
#[derive(Debug, Clone, Copy)]
pub struct PlannedGuard<'a> {
    pub guard: &'a CompiledGuard,
    pub id: BucketId,
    /// The name of the counter, where several gateways share it.
    pub key: KeyRange,
    /// Its key or one of its conditions can be read in two ways.
    by_address: bool,
}

/// Inputs of a request that are yet to be waited for.
#[derive(Debug, Clone, Copy, Default)]
pub struct PendingInputs {
    pub token: bool,
    pub form: bool,
}

impl PendingInputs {
    /// Whether a list may still say something of a caller whose names are not known.
    pub(super) fn concern_access(self, identity: &Identity, list: &AccessLists) -> bool {
        (list.names_users() && self.concern(identity, &Source::User))
            || (list.names_clients() && self.concern(identity, &Source::Client))
    }

    fn concern_guard(self, identity: &Identity, guard: &Guard) -> bool {
        let mut asked = guard.key.0.iter().chain(condition_sources(&guard.when));
        asked.any(|source| self.concern(identity, source))
    }

    fn concern(self, identity: &Identity, source: &Source) -> bool {
        let is_pending = |source: &Source| match source {
            Source::Jwt(_) => self.token,
            Source::Form(_) => self.form,
            _ => false,
        };
        let named_by_client = matches!(source, Source::Tenant | Source::Plan);
        identity.sources(source).iter().any(is_pending)
            || (named_by_client && identity.client.iter().any(is_pending))
    }
}

impl<'a> PlannedGuards<'a> {
    /// Adds the guards whose conditions hold, but those that ask for an input which is pending.
    ///
    /// # Errors
    /// If what an enforced guard asks for can be read in two ways. The guards are added all the same.
    pub(super) fn collect(
        &mut self,
        planner: Planner<'a>,
        guards: &'a [usize],
        pending: PendingInputs,
        method: &Method,
        input: &KeyInput<'_>,
        keys: &mut BucketKeys<'_>,
    ) -> Result<(), KeyError> {
        self.0.clear();
        let mut readable = Ok(());
        for index in guards {
            let guard = &planner.compiled.guards[*index];
            if pending.concern_guard(&planner.compiled.identity, &guard.guard) {
                continue;
            }
            let named = match applies(&guard.guard.when, input, method) {
                Ok(true) => name(planner, guard, &guard.guard.key, input, keys),
                Ok(false) => continue,
                Err(error) => Err(error),
            };
            let by_address = named.is_err();
            let named = named.or_else(|error| {
                // One that only watches refuses nobody.
                if guard.guard.mode == Mode::Enforce && readable.is_ok() {
                    readable = Err(error);
                }
                name(planner, guard, &ADDRESS, input, keys)
            });
            if let Ok((id, key)) = named {
                self.0.push(PlannedGuard { guard, id, key, by_address });
            }
        }
        readable
    }
}

impl<'a> Deref for PlannedGuards<'a> {
    type Target = [PlannedGuard<'a>];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// Where gateways share counters, a key is known by the counter's name, so that they can tell each
/// other of it.
fn name(
    planner: Planner<'_>,
    guard: &CompiledGuard,
    key: &Key,
    input: &KeyInput<'_>,
    keys: &mut BucketKeys<'_>,
) -> Result<(BucketId, KeyRange), KeyError> {
    let Some(prefix) = &guard.shared_prefix else {
        let mut id = planner.hasher.start(guard.prefix);
        key.parts(input, MISSING, |kind, bytes| id.part(kind as u8, bytes))?;
        return Ok((id.finish(), KeyRange::default()));
    };
    let mut name: SmallVec<[u8; 256]> = SmallVec::from_slice(prefix);
    key.parts(input, MISSING, |kind, bytes| key_format::push_part(&mut name, kind, bytes))?;
    Ok((shared_id(planner.hasher, &name), keys.add_copy(&name)))
}

impl PlannedGuard<'_> {
    /// Whose requests it counts, in words. Made on demand, from the same inputs as the plan.
    pub fn subject(&self, source: PlanSource<'_>, keys: KeysView<'_>) -> GuardSubject {
        let names = source.planner.compiled.names;
        GuardSubject {
            guard: self.guard.name.clone(),
            mode: self.guard.guard.mode,
            key: listed_key(names, &source.key_text(self.counted_key(), MISSING)),
            shared_key: keys.get(self.key).to_vec().into(),
        }
    }

    /// Who was counted.
    pub fn caller_texts(&self, source: PlanSource<'_>) -> CallerTexts {
        source.caller_texts(self.counted_key(), MISSING)
    }

    fn counted_key(&self) -> &Key {
        if self.by_address { &ADDRESS } else { &self.guard.guard.key }
    }
}
