//! The tenants of run time that this gateway knows of, and when they change.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::{RunTimeTenant, TenantChange};
use crate::served_changes::ServedChanges;

/// All tenants of run time.
#[derive(Debug, Default)]
pub struct TenantTable {
    held: Mutex<Held>,
    changes: ServedChanges,
}

#[derive(Debug, Default)]
struct Held {
    tenants: BTreeMap<String, RunTimeTenant>,
    /// What the shared store has marked them with.
    mark: Option<String>,
}

/// The table at some instant.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TableState {
    pub tenants: Vec<RunTimeTenant>,
    /// A change is made only to what has this mark.
    pub mark: Option<String>,
}

impl TenantTable {
    /// A table with these to begin with.
    pub fn of(tenants: impl IntoIterator<Item = RunTimeTenant>) -> Self {
        let table = TenantTable::default();
        table.replace(None, tenants, None);
        table
    }

    pub fn state(&self) -> TableState {
        let held = self.held.lock();
        TableState { tenants: held.tenants.values().cloned().collect(), mark: held.mark.clone() }
    }

    pub fn mark(&self) -> Option<String> {
        self.held.lock().mark.clone()
    }

    /// Makes a change that the store has taken, and marked so.
    pub fn apply(&self, change: &TenantChange, mark: Option<String>) {
        let mut held = self.held.lock();
        match change {
            TenantChange::Set(tenant) => {
                held.tenants.insert(tenant.name.clone(), (**tenant).clone());
            }
            TenantChange::Remove(name) => {
                held.tenants.remove(name);
            }
        }
        held.mark = mark;
        self.changes.note();
    }

    /// Takes over what the shared store has, unless the table has changed since it had the mark `seen`.
    pub fn replace(
        &self,
        seen: Option<&str>,
        tenants: impl IntoIterator<Item = RunTimeTenant>,
        mark: Option<String>,
    ) {
        let tenants: BTreeMap<_, _> =
            tenants.into_iter().map(|tenant| (tenant.name.clone(), tenant)).collect();
        let mut held = self.held.lock();
        if held.mark.as_deref() != seen {
            return;
        }
        held.mark = mark;
        if held.tenants != tenants {
            held.tenants = tenants;
            self.changes.note();
        }
    }

    pub fn changes(&self) -> &ServedChanges {
        &self.changes
    }
}
