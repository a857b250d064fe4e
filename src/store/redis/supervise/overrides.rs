//! The overrides that gateways share through Redis: a [hash](super::shared_hash) that ends with the last of
//! them.

use std::time::Duration;

use super::shared_hash::{self, HashChange};
use crate::overrides::{self, Override, OverrideTable};
use crate::store::redis::RedisShared;
use crate::store::redis::connect::failure::{Failure, Reason};
use crate::store::redis::connect::session::Session;

const HASH: &str = "overrides";
/// Ended overrides that are cleared away at a time.
const CLEARED: usize = 100;

/// Takes over what has changed since the mark that was last seen.
pub(crate) async fn sync(
    shared: &RedisShared,
    session: &Session,
    seen: &mut Option<String>,
    overrides: &OverrideTable,
) -> Result<(), Failure> {
    let name = shared.reserved_key(HASH);
    let mark = shared_hash::mark(session, &name).await?;
    if mark == *seen {
        return Ok(());
    }
    let all = shared_hash::read_all(session, &name).await?;
    let entries = all.iter().filter(|(id, _)| *id != shared_hash::MARK);
    // One that this version cannot read is another version's.
    let entries = entries.filter_map(|(_, text)| serde_json::from_str::<Override>(text).ok());
    let entries: Vec<Override> = entries.collect();
    // The first gateway to see ended entries deletes them; if it fails, the next one does.
    let ended = entries.iter().filter(|it| it.until + 60 < overrides::now()).map(Override::id);
    for id in ended.take(CLEARED) {
        let _ = shared_hash::clear(session, &name, &id).await;
    }
    overrides.replace(entries);
    *seen = mark;
    Ok(())
}

/// Makes an override known to all.
///
/// # Errors
/// If Redis does not take it.
pub(crate) async fn put(shared: &RedisShared, entry: &Override) -> Result<(), Failure> {
    let text = serde_json::to_string(entry)
        .map_err(|error| Failure::new(Reason::Other, error.to_string()))?;
    change(shared, &entry.id(), &text, entry.until.saturating_sub(overrides::now())).await
}

/// Takes one back.
///
/// # Errors
/// If Redis does not take it.
pub(crate) async fn remove(shared: &RedisShared, id: &str) -> Result<(), Failure> {
    change(shared, id, "", 0).await
}

async fn change(shared: &RedisShared, id: &str, text: &str, seconds: u64) -> Result<(), Failure> {
    let (hash, lifetime) = (shared.reserved_key(HASH), Duration::from_secs(seconds));
    let (only_if, mark_prefix, more) = (None, "", &[][..]);
    let change = HashChange { hash: &hash, id, text, lifetime, only_if, mark_prefix, more };
    change.make(shared, &shared_hash::open(shared).await?).await.map(|_| ())
}
