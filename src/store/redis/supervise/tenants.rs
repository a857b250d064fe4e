//! The tenants of run time that gateways share through Redis: a hash with a mark, as overrides are
//! (`lua/overrides.lua`), but for one thing: a change is made only to what its gateway has seen, since all
//! tenants together must fit.

use std::collections::HashMap;
use std::time::Duration;

use super::shared_hash::{self, HashChange};
use crate::store::redis::RedisShared;
use crate::store::redis::connect::failure::{Failure, Reason};
use crate::store::redis::connect::session::Session;
use crate::tenants::{MAX_RUN_TIME_TENANTS, RunTimeTenant, TenantChange, TenantTable};

const HASH: &str = "tenants";
/// The mark is called otherwise: no tenant has a slash in its name.
const PREFIX: &str = "tenant/";
/// Tenants do not end. But every key does, so that what nobody uses any more is gone some day: so long
/// after the last gateway has looked.
const LIFETIME: Duration = Duration::from_secs(366 * 86_400);

/// Takes over what has changed since the table was last brought up to date.
pub(crate) async fn sync(
    shared: &RedisShared,
    session: &Session,
    table: &TenantTable,
) -> Result<(), Failure> {
    let seen = table.mark();
    let name = shared.reserved_key(HASH);
    let mark = shared_hash::mark(session, &name).await?;
    if mark == seen {
        return Ok(());
    }
    bring_up_to_date(shared, session, table, seen.as_deref()).await?;
    keep_alive(shared, session).await
}

/// Takes over what Redis has, once it has what this gateway knows of.
async fn bring_up_to_date(
    shared: &RedisShared,
    session: &Session,
    table: &TenantTable,
    seen: Option<&str>,
) -> Result<(), Failure> {
    let all = shared_hash::read_all(session, &shared.reserved_key(HASH)).await?;
    let lost = seen.and_then(Lineage::of_mark).filter(|known| !known.is_in(&all));
    match lost {
        Some(known) => write_back(shared, session, table, &known, all).await,
        None => {
            take_over(table, seen, &all);
            Ok(())
        }
    }
}

/// Redis was emptied, or has started without its data or with older ones, and others may have made
/// tenants since: stores what it does not have of those that this gateway knows. If another gateway is
/// faster nothing is stored, and the next look finds out whether that one had them all.
async fn write_back(
    shared: &RedisShared,
    session: &Session,
    table: &TenantTable,
    known: &Lineage,
    mut all: HashMap<String, String>,
) -> Result<(), Failure> {
    let state = table.state();
    // What was changed since does not wait for this one, and is stored.
    if state.mark.as_deref().and_then(Lineage::of_mark).as_ref() != Some(known) {
        return Ok(());
    }
    let id = |it: &RunTimeTenant| format!("{PREFIX}{}", it.name);
    let room = MAX_RUN_TIME_TENANTS.saturating_sub(all.len());
    let lost = state.tenants.iter().filter(|it| !all.contains_key(&id(it))).take(room);
    let entries = lost.map(|it| Ok((id(it), written(it)?)));
    let mut entries = entries.collect::<Result<Vec<_>, Failure>>()?;
    let tenants = entries.len();
    let Some((id, text)) = entries.pop() else {
        take_over(table, state.mark.as_deref(), &all);
        return Ok(());
    };
    entries.push((known.field(), known.changes.to_string()));
    let (hash, mark) = (shared.reserved_key(HASH), all.get(shared_hash::MARK).cloned());
    let lineage = Lineage::after(mark.as_deref(), shared);
    let made = HashChange {
        hash: &hash,
        id: &id,
        text: &text,
        lifetime: LIFETIME,
        only_if: Some(mark.as_deref().unwrap_or_default()),
        mark_prefix: &lineage.mark_prefix(),
        more: &entries,
    };
    let Some(mark) = made.make(shared, session).await? else { return Ok(()) };
    tracing::warn!(tenants, "Redis has lost tenants of run time; they are written back");
    all.extend(entries);
    all.insert(id, text);
    all.insert(shared_hash::MARK.to_owned(), mark);
    take_over(table, state.mark.as_deref(), &all);
    Ok(())
}

/// Whose successor a state of the hash is: an id that was made when the hash was first written, and how
/// often it has been changed since. Every mark begins with it. So a hash that somebody has changed is
/// told from one that was lost and begun anew.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Lineage {
    id: String,
    changes: u64,
}

impl Lineage {
    fn of_mark(mark: &str) -> Option<Self> {
        let mut words = mark.split(' ');
        let (id, changes) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
        Some(Lineage { id, changes })
    }

    /// What a change makes of the hash that has this mark, or none.
    fn after(mark: Option<&str>, shared: &RedisShared) -> Self {
        let begun =
            || Lineage { id: format!("{}-{}", shared.node, shared.clock.now().0), changes: 0 };
        let Lineage { id, changes } = mark.and_then(Self::of_mark).unwrap_or_else(begun);
        Lineage { id, changes: changes.saturating_add(1) }
    }

    fn mark_prefix(&self) -> String {
        format!("{} {} ", self.id, self.changes)
    }

    /// Where a hash that has taken it in says up to which change.
    fn field(&self) -> String {
        format!("lineage/{}", self.id)
    }

    /// Whether a hash has followed from it.
    fn is_in(&self, all: &HashMap<String, String>) -> bool {
        let now = all.get(shared_hash::MARK).and_then(|mark| Self::of_mark(mark));
        let taken_in = all.get(&self.field()).and_then(|changes| changes.parse().ok());
        let own = now.filter(|now| now.id == self.id).map(|now| now.changes);
        own.into_iter().chain(taken_in).any(|changes: u64| changes >= self.changes)
    }
}

fn written(tenant: &RunTimeTenant) -> Result<String, Failure> {
    serde_json::to_string(tenant).map_err(|error| Failure::new(Reason::Other, error.to_string()))
}

/// The same at once, for an operator.
///
/// # Errors
/// If Redis does not tell.
pub(crate) async fn refresh(shared: &RedisShared, table: &TenantTable) -> Result<(), Failure> {
    let session = shared_hash::open(shared).await?;
    sync(shared, &session, table).await
}

/// To be called more often than once in their lifetime.
pub(crate) async fn keep_alive(shared: &RedisShared, session: &Session) -> Result<(), Failure> {
    shared_hash::keep_alive(session, &shared.reserved_key(HASH), LIFETIME).await
}

fn take_over(table: &TenantTable, seen: Option<&str>, all: &HashMap<String, String>) {
    let mark = all.get(shared_hash::MARK).cloned();
    let tenants = all.iter().filter(|(id, _)| id.starts_with(PREFIX));
    // One that this version cannot read is another version's.
    let tenants = tenants.filter_map(|(_, text)| serde_json::from_str::<RunTimeTenant>(text).ok());
    table.replace(seen, tenants, mark);
}

/// Makes a change for all, if the table is up to date; brings it up to date if not.
///
/// # Errors
/// If Redis does not take it.
pub(crate) async fn change(
    shared: &RedisShared,
    table: &TenantTable,
    change: &TenantChange,
    seen: Option<&str>,
) -> Result<bool, Failure> {
    let text = match change {
        TenantChange::Set(tenant) => written(tenant)?,
        TenantChange::Remove(_) => String::new(),
    };
    let (hash, id) = (shared.reserved_key(HASH), format!("{PREFIX}{}", change.name()));
    let made = HashChange {
        hash: &hash,
        id: &id,
        text: &text,
        lifetime: LIFETIME,
        only_if: Some(seen.unwrap_or_default()),
        mark_prefix: &Lineage::after(seen, shared).mark_prefix(),
        more: &[],
    };
    let session = shared_hash::open(shared).await?;
    match made.make(shared, &session).await? {
        Some(mark) => {
            table.apply(change, Some(mark));
            Ok(true)
        }
        None => {
            bring_up_to_date(shared, &session, table, seen).await?;
            Ok(false)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(fields: &[(&str, &str)]) -> HashMap<String, String> {
        fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_hash_that_was_begun_anew_is_told_from_one_that_was_changed() {
        let known = Lineage::of_mark("a-1 5 weir-a 77").expect("a lineage");
        let other = ("mark", "b-2 9 weir-b 88");
        for (fields, expected) in [
            (&[("mark", "a-1 5 weir-a 77")][..], true),
            (&[("mark", "a-1 6 weir-c 99")], true),
            (&[("mark", "a-1 4 weir-a 66")], false),
            (&[other], false),
            (&[other, ("lineage/a-1", "5")], true),
            (&[other, ("lineage/a-1", "4")], false),
            (&[other, ("lineage/c-3", "9")], false),
            (&[], false),
        ] {
            assert_eq!(known.is_in(&hash(fields)), expected, "{fields:?}");
        }
        assert_eq!(Lineage::of_mark("weir-a 12x 3"), None);
    }
}
