//! Overrides by the buckets that they are for, however their keys were spelled when stored.
//!
//! A key is stored as its bucket is named. What an older version has stored, or what was stored
//! before a reload that counts addresses by another prefix, may be written otherwise: it is found,
//! shown and taken back under the name that its bucket has now.

use std::collections::{BTreeMap, HashMap};

use crate::caller::Addresses;
use crate::config::Settings;
use crate::limit::Limit;
use crate::overrides::{self, Override, Subject};

pub(super) struct StoredKeys<'a> {
    limits: HashMap<&'a str, &'a Limit>,
    addresses: Addresses,
}

impl<'a> StoredKeys<'a> {
    pub(super) fn new(settings: &'a Settings) -> Self {
        let limits = settings.limits.iter().map(|limit| (limit.name.as_str(), limit)).collect();
        StoredKeys { limits, addresses: Addresses::new(&settings.identity) }
    }

    pub(super) fn limit(&self, name: &str) -> Option<&'a Limit> {
        self.limits.get(name).copied()
    }

    /// What a limit's bucket is called, if there is a limit that has such buckets.
    pub(super) fn key(&self, limit: &str, key: &str) -> Option<String> {
        let spelled = overrides::normalized_key(self.limit(limit)?, key, &self.addresses)?;
        Some(spelled.text)
    }

    /// The overrides of one bucket, with the ids that they are stored under. The one that holds comes
    /// first.
    pub(super) fn of_bucket(
        &self,
        all: Vec<Override>,
        limit: &str,
        key: &str,
    ) -> Vec<(String, Override)> {
        let asked = self.renamed(Override::about(override_subject(limit, key)));
        let id = asked.id();
        let stored = all.into_iter().map(|entry| (entry.id(), self.renamed(entry)));
        let mut found: Vec<_> = stored.filter(|(_, renamed)| renamed.id() == id).collect();
        found.sort_by_key(|(stored, _)| *stored != id);
        found
    }

    /// All overrides, each bucket's once.
    pub(super) fn overrides(&self, all: Vec<Override>) -> Vec<Override> {
        let mut renamed = BTreeMap::new();
        for entry in all {
            if !matches!(entry.subject, Subject::Override { .. }) {
                continue;
            }
            let stored = entry.id();
            let entry = self.renamed(entry);
            let id = entry.id();
            if stored == id || !renamed.contains_key(&id) {
                renamed.insert(id, entry);
            }
        }
        renamed.into_values().collect()
    }

    /// An override with the name that its bucket has.
    fn renamed(&self, mut entry: Override) -> Override {
        if let Subject::Override { limit, key, .. } = &mut entry.subject
            && let Some(text) = self.key(limit, key)
        {
            *key = text;
        }
        entry
    }
}

fn override_subject(limit: &str, key: &str) -> Subject {
    Subject::Override {
        limit: limit.to_owned(),
        key: key.to_owned(),
        numbers: overrides::NumbersSpec::default(),
    }
}
