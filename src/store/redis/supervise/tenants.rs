//! The tenants of run time that gateways share through Redis: a hash with a mark, as overrides are
//! (`lua/overrides.lua`), but for one thing: a change is made only to what its gateway has seen, since all
//! tenants together must fit.

use std::collections::HashMap;
use std::time::Duration;

use super::shared_hash::{self, HashChange};
use crate::store::redis::RedisShared;
use crate::store::redis::connect::failure::{Failure, Reason};
use crate::store::redis::connect::session::Session;
use crate::tenants::{RunTimeTenant, TenantChange, TenantTable};

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

/// Takes over what Redis has, or writes back what it has lost.
async fn bring_up_to_date(
    shared: &RedisShared,
    session: &Session,
    table: &TenantTable,
    seen: Option<&str>,
) -> Result<(), Failure> {
    let hash = shared.reserved_key(HASH);
    let mut all = shared_hash::read_all(session, &hash).await?;
    // Nothing of Weir's removes the mark: Redis was emptied, or has started without its data.
    if seen.is_some() && !all.contains_key(shared_hash::MARK) {
        if write_back(shared, session, table, seen).await? {
            return Ok(());
        }
        all = shared_hash::read_all(session, &hash).await?;
    }
    take_over(table, seen, all);
    Ok(())
}

/// Stores all that this gateway knows of. False if there is nothing to store, or another gateway was
/// faster.
async fn write_back(
    shared: &RedisShared,
    session: &Session,
    table: &TenantTable,
    seen: Option<&str>,
) -> Result<bool, Failure> {
    let state = table.state();
    let entry = |it: &RunTimeTenant| Ok((format!("{PREFIX}{}", it.name), written(it)?));
    let mut entries = state.tenants.iter().map(entry).collect::<Result<Vec<_>, Failure>>()?;
    let Some((id, text)) = entries.pop().filter(|_| state.mark.as_deref() == seen) else {
        return Ok(false);
    };
    let hash = shared.reserved_key(HASH);
    let made = HashChange {
        hash: &hash,
        id: &id,
        text: &text,
        lifetime: LIFETIME,
        only_if: Some(""),
        more: &entries,
    };
    let Some(mark) = made.make(shared, session).await? else { return Ok(false) };
    let tenants = state.tenants.len();
    tracing::warn!(tenants, "Redis has lost the tenants of run time; they are written back");
    table.replace(seen, state.tenants, Some(mark));
    Ok(true)
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

fn take_over(table: &TenantTable, seen: Option<&str>, all: HashMap<String, String>) {
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
