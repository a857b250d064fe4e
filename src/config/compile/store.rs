//! `[store]`: in memory, or in a Redis or Valkey that several gateways share.

mod redis;
mod sentinel;
mod tls;
mod url;

use std::ops::RangeInclusive;
use std::time::Duration;

use super::parsed_key::ParsedKey;
use super::server::{read, secs};
use super::{output_file, secret};
use crate::config::file::{Section, Value};
use crate::config::settings::{Hybrid, Snapshot, Store, StoreKind};
use crate::config::suggest::quote;
use crate::config::units::LONGEST;
use crate::limit::OnError;

/// How often a snapshot is written.
const INTERVAL: RangeInclusive<Duration> = Duration::from_secs(1)..=LONGEST;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoreWord {
    Memory,
    Redis,
    Hybrid,
}

const KINDS: [(&str, StoreWord); 3] =
    [("memory", StoreWord::Memory), ("redis", StoreWord::Redis), ("hybrid", StoreWord::Hybrid)];

/// How long what was taken in advance may lie idle.
const SYNC_INTERVAL: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(5);

/// What `on_error` may be, here and in limits.
pub(super) fn on_error(value: &Value<'_>) -> Option<OnError> {
    value.choice(&OnError::ALL.map(|it| (it.name(), it)))
}

/// What limits need to know of where their buckets live.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoreContext {
    /// What holds for limits that say nothing themselves.
    pub(super) on_error: OnError,
    /// How many buckets there may be if they live in memory, which never fails.
    pub(super) in_memory: Option<u64>,
}

pub(super) fn store(mut section: Section<'_>) -> (Store, StoreContext) {
    let written = section.get("kind");
    let kind = written.as_ref().map_or(Some(StoreWord::Memory), |value| value.choice(&KINDS));
    let max_keys = read(&mut section, "max_keys", 1_000_000, |it| it.integer(1..=1_000_000_000));
    let on_error = read(&mut section, "on_error", OnError::default(), on_error);
    let snapshot = snapshot(&mut section, kind);
    let sync_interval =
        ParsedKey::of(section.get("sync_interval"), |it| it.duration(SYNC_INTERVAL));
    let redis_section = redis::RedisSection::of(&mut section);
    if matches!(kind, Some(StoreWord::Memory | StoreWord::Redis)) {
        sync_interval.warn_without_effect(
            "only the store `hybrid` takes leases",
            "remove it, or write `kind = \"hybrid\"`",
        );
    }
    let store = match kind {
        Some(StoreWord::Redis) => redis_section.settings().map(|it| StoreKind::Redis(Box::new(it))),
        Some(StoreWord::Hybrid) => redis_section.settings().map(|redis| {
            let sync_interval = sync_interval.it.unwrap_or(Duration::from_millis(100));
            StoreKind::Hybrid(Box::new(Hybrid { redis, sync_interval }))
        }),
        Some(StoreWord::Memory) => {
            redis_section.warn_of_all();
            Some(StoreKind::Memory)
        }
        None => None,
    };
    let home =
        StoreContext { on_error, in_memory: (kind == Some(StoreWord::Memory)).then_some(max_keys) };
    let kind = store.unwrap_or(StoreKind::Memory);
    // Known once the limits are.
    let has_local_limits = false;
    (Store { kind, max_keys: max_keys as usize, on_error, has_local_limits, snapshot }, home)
}

fn snapshot(section: &mut Section<'_>, kind: Option<StoreWord>) -> Option<Snapshot> {
    let path = ParsedKey::of(section.get("snapshot"), |it| it.text("weir.snapshot"));
    let interval = ParsedKey::of(section.get("snapshot_interval"), |it| it.duration(INTERVAL));
    if matches!(kind, Some(StoreWord::Redis | StoreWord::Hybrid)) {
        let why = "Redis keeps the buckets";
        let help = "remove it, or write `kind = \"memory\"`";
        path.warn_without_effect(why, help);
        interval.warn_without_effect(why, help);
        return None;
    }
    if path.is_absent() {
        interval.warn_without_effect(
            "without `snapshot` there is nothing to write",
            "remove it, or add a line such as `snapshot = \"weir.snapshot\"`",
        );
    }
    let (value, text) = path.value.as_ref().zip(path.it)?;
    if text.is_empty() || text.contains('\0') || text.ends_with('/') {
        value.error(
            &format!("is not the path of a file: {}", quote(text)),
            "write one such as `\"weir.snapshot\"`",
        );
        return None;
    }
    let path = output_file::output_path(text, value)?;
    Some(Snapshot { path, interval: interval.it.unwrap_or(secs(60)) })
}
