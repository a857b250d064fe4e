//! `[store]`: in memory, or in a Redis or Valkey that several gateways share.

mod redis;
mod secret;
mod sentinel;
mod tls;
mod url;

use super::server::read;
use crate::config::file::{Section, Value};
use crate::config::settings::{Store, StoreKind};
use crate::limit::OnError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Memory,
    Redis,
}

const KINDS: [(&str, Kind); 2] = [("memory", Kind::Memory), ("redis", Kind::Redis)];

/// What `on_error` may be, here and in limits.
pub(super) fn on_error(value: &Value<'_>) -> Option<OnError> {
    value.choice(&OnError::ALL.map(|it| (it.name(), it)))
}

/// What limits need to know of their store.
#[derive(Debug, Clone, Copy)]
pub(super) struct Failing {
    /// What holds for limits that say nothing themselves.
    pub(super) on_error: OnError,
    /// Memory never fails.
    pub(super) possible: bool,
}

pub(super) fn store(mut section: Section<'_>) -> (Store, Failing) {
    let written = section.get("kind");
    let kind = written.as_ref().map_or(Some(Kind::Memory), |value| value.choice(&KINDS));
    let max_keys =
        read(&mut section, "max_keys", 1_000_000, |it| it.integer(1..=1_000_000_000)) as usize;
    let on_error = read(&mut section, "on_error", OnError::default(), on_error);
    let keys = redis::Keys::of(&mut section);
    let store = match kind {
        Some(Kind::Redis) => keys.settings().map(|it| StoreKind::Redis(Box::new(it))),
        Some(Kind::Memory) => {
            keys.warn_of_all();
            Some(StoreKind::Memory)
        }
        None => None,
    };
    let store =
        Store { kind: store.unwrap_or(StoreKind::Memory), max_keys, on_error, snapshot: None };
    (store, Failing { on_error, possible: kind != Some(Kind::Memory) })
}
