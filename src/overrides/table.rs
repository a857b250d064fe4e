//! The overrides that hold, and when they change.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

use super::{ActiveOverrides, Override, now};
use crate::served_changes::ServedChanges;

/// More than anybody sets by hand. For more callers there are plans and lists.
const MAX_OVERRIDES: usize = 10_000;

/// All overrides of this process.
#[derive(Debug, Default)]
pub struct OverrideTable {
    overrides: Mutex<BTreeMap<String, Override>>,
    changes: ServedChanges,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there are {MAX_OVERRIDES} overrides already: let some end, or use plans and lists")]
pub struct TableFull;

impl OverrideTable {
    /// A table from its [text](OverrideTable::text). What cannot be read, or has ended, is left out.
    pub fn of(text: &[u8]) -> Self {
        let entries: Vec<Override> = serde_json::from_slice(text).unwrap_or_default();
        let table = OverrideTable::default();
        table.replace(entries);
        table
    }

    /// All that hold, as JSON.
    pub fn text(&self) -> Vec<u8> {
        serde_json::to_vec(&self.all()).unwrap_or_default()
    }

    pub fn all(&self) -> Vec<Override> {
        let now = now();
        self.overrides.lock().values().filter(|it| it.until > now).cloned().collect()
    }

    /// Those that hold, for a configuration to be served with.
    pub fn overrides(&self) -> ActiveOverrides {
        ActiveOverrides(self.all())
    }

    /// # Errors
    /// If there are too many for another one.
    pub fn has_room(&self, id: &str) -> Result<(), TableFull> {
        let (now, overrides) = (now(), self.overrides.lock());
        let full = overrides.len() >= MAX_OVERRIDES && !overrides.contains_key(id);
        let full = full && overrides.values().all(|it| it.until > now);
        if full { Err(TableFull) } else { Ok(()) }
    }

    /// # Errors
    /// If there are too many.
    pub fn put(&self, entry: Override) -> Result<(), TableFull> {
        let mut overrides = self.overrides.lock();
        let now = now();
        overrides.retain(|_, it| it.until > now);
        let id = entry.id();
        if overrides.len() >= MAX_OVERRIDES && !overrides.contains_key(&id) {
            return Err(TableFull);
        }
        overrides.insert(id, entry);
        self.changes.note();
        Ok(())
    }

    /// False if there was none.
    pub fn remove(&self, id: &str) -> bool {
        let removed = self.overrides.lock().remove(id).is_some();
        self.changes.note();
        removed
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.overrides.lock().len()
    }

    /// Which overrides hold, and which of them workers apply.
    pub fn changes(&self) -> &ServedChanges {
        &self.changes
    }

    pub fn get(&self, id: &str) -> Option<Override> {
        let now = now();
        self.overrides.lock().get(id).filter(|it| it.until > now).cloned()
    }

    /// Takes over the overrides of the shared store.
    pub fn replace(&self, entries: impl IntoIterator<Item = Override>) {
        let now = now();
        let entries = entries.into_iter().filter(|it| it.until > now).take(MAX_OVERRIDES);
        let entries: BTreeMap<_, _> = entries.map(|it| (it.id(), it)).collect();
        let mut held = self.overrides.lock();
        if *held != entries {
            *held = entries;
            self.changes.note();
        }
    }

    /// Resolves when another set of overrides holds: one was made or taken back, or has ended.
    pub async fn changed(&self) {
        let ends = self.overrides.lock().values().map(|it| it.until).min();
        let ended = async {
            match ends {
                Some(second) => {
                    let left = Duration::from_secs(second.saturating_sub(now()));
                    tokio::time::sleep(left.max(Duration::from_millis(100))).await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.changes.changed() => {}
            () = ended => {
                let now = now();
                self.overrides.lock().retain(|_, it| it.until > now);
            }
        }
    }
}
