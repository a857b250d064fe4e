//! The keys that are read at the start only: what the process runs with, whatever the file says later.

use std::path::PathBuf;

use crate::config::settings::{Admin, ListenAddress, Settings, Store, StoreKind};

#[derive(Debug)]
pub(super) struct StartSettings {
    listen: Vec<ListenAddress>,
    takeover: Option<PathBuf>,
    workers: usize,
    max_connections: usize,
    admin: Admin,
    store: Store,
}

impl StartSettings {
    /// Of the settings as the file had them.
    pub(super) fn of(settings: &Settings) -> Self {
        let Settings { server, admin, store, .. } = settings;
        StartSettings {
            listen: server.listen.iter().map(|it| it.address.clone()).collect(),
            takeover: server.takeover.clone(),
            workers: server.workers,
            max_connections: server.max_connections,
            admin: admin.clone(),
            store: store.clone(),
        }
    }

    pub(super) fn store_kind(&self) -> &StoreKind {
        &self.store.kind
    }

    /// The keys that say something else than what runs.
    pub(super) fn changed_in(&self, settings: &Settings) -> Vec<&'static str> {
        let new = StartSettings::of(settings);
        let changes = [
            ("server.listen", self.listen != new.listen),
            ("server.takeover", self.takeover != new.takeover),
            ("server.workers", self.workers != new.workers),
            ("server.max_connections", self.max_connections != new.max_connections),
            ("admin", self.admin != new.admin),
            // `on_error` has become part of the limits.
            (
                "store",
                self.store.kind != new.store.kind || self.store.max_keys != new.store.max_keys,
            ),
            ("store.snapshot", self.store.snapshot != new.store.snapshot),
        ];
        changes.into_iter().filter(|(_, changed)| *changed).map(|(key, _)| key).collect()
    }
}
