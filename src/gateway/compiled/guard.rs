//! A guard as requests need it: its numbers, the names of its counters, its texts.

use std::sync::Arc;

use http::HeaderValue;

use super::variant::BucketNaming;
use crate::limit::Mode;
use crate::limit::guard::{Guard, GuardNumbers};
use crate::respond::blocked::BlockedText;
use crate::store::key_format;
use crate::telemetry::{GuardCounters, Metrics};

#[derive(Debug)]
pub struct CompiledGuard {
    /// Its index in [`Compiled::guards`](super::Compiled::guards).
    pub index: usize,
    pub guard: Guard,
    pub name: Arc<str>,
    pub numbers: GuardNumbers,
    /// What the ids of its keys start from.
    pub prefix: u64,
    /// What the names of its counters start with in a store that is shared with other gateways.
    pub shared_prefix: Option<Vec<u8>>,
    pub blocked_text: BlockedText,
    /// Its name as a header's value.
    pub header_name: HeaderValue,
    pub counters: GuardCounters,
}

impl CompiledGuard {
    pub(super) fn new(
        index: usize,
        guard: &Guard,
        naming: BucketNaming<'_>,
        metrics: &Metrics,
    ) -> Self {
        // No limit can have such a name. What was noticed in shadow mode holds in shadow mode alone.
        let shadow = if guard.mode == Mode::Shadow { ":shadow" } else { "" };
        let (name, kind) = (format!("@guard:{}{shadow}", guard.name), guard.key.to_string());
        let shared = |start| key_format::prefix(start, &name, &kind, None);
        CompiledGuard {
            index,
            name: guard.name.as_str().into(),
            numbers: guard.numbers(),
            prefix: naming.hasher.limit_prefix(&name, &kind),
            shared_prefix: naming.shared.map(shared),
            blocked_text: BlockedText::new(&guard.name),
            header_name: HeaderValue::from_str(&guard.name)
                .unwrap_or_else(|_| HeaderValue::from_static("yes")),
            counters: GuardCounters::new(&guard.name, guard.mode, metrics),
            guard: guard.clone(),
        }
    }
}
