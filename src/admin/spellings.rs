//! Overrides by the buckets that they are about, in whatever spelling they were stored.
//!
//! A key is stored as its bucket is named. What an older version has stored, or what was stored
//! before a reload that counts addresses by another prefix, may be written otherwise: it is found,
//! shown and taken back under the name that its bucket has now.

use std::collections::{BTreeMap, HashMap};

use crate::caller::Addresses;
use crate::config::Settings;
use crate::limit::Limit;
use crate::rulings::{self, About, Ruling};

pub(super) struct Spellings<'a> {
    limits: HashMap<&'a str, &'a Limit>,
    addresses: Addresses,
}

impl<'a> Spellings<'a> {
    pub(super) fn new(settings: &'a Settings) -> Self {
        let limits = settings.limits.iter().map(|limit| (limit.name.as_str(), limit)).collect();
        Spellings { limits, addresses: Addresses::new(&settings.identity) }
    }

    pub(super) fn limit(&self, name: &str) -> Option<&'a Limit> {
        self.limits.get(name).copied()
    }

    /// What a limit's bucket is called, if there is a limit that has such buckets.
    pub(super) fn key(&self, limit: &str, key: &str) -> Option<String> {
        let spelled = rulings::spelled(self.limit(limit)?, key, &self.addresses)?;
        Some(spelled.text)
    }

    /// The overrides of one bucket, with the ids that they are stored under. The one that holds comes
    /// first.
    pub(super) fn of_bucket(
        &self,
        all: Vec<Ruling>,
        limit: &str,
        key: &str,
    ) -> Vec<(String, Ruling)> {
        let asked = self.told(Ruling::about(overriding(limit, key)));
        let id = asked.id();
        let stored = all.into_iter().map(|ruling| (ruling.id(), self.told(ruling)));
        let mut found: Vec<_> = stored.filter(|(_, told)| told.id() == id).collect();
        found.sort_by_key(|(stored, _)| *stored != id);
        found
    }

    /// All overrides, each bucket's once.
    pub(super) fn overrides(&self, all: Vec<Ruling>) -> Vec<Ruling> {
        let mut told = BTreeMap::new();
        for ruling in all {
            if !matches!(ruling.about, About::Override { .. }) {
                continue;
            }
            let stored = ruling.id();
            let ruling = self.told(ruling);
            let id = ruling.id();
            if stored == id || !told.contains_key(&id) {
                told.insert(id, ruling);
            }
        }
        told.into_values().collect()
    }

    /// A ruling with the name that its bucket has.
    fn told(&self, mut ruling: Ruling) -> Ruling {
        if let About::Override { limit, key, .. } = &mut ruling.about
            && let Some(text) = self.key(limit, key)
        {
            *key = text;
        }
        ruling
    }
}

fn overriding(limit: &str, key: &str) -> About {
    About::Override {
        limit: limit.to_owned(),
        key: key.to_owned(),
        written: rulings::Written::default(),
    }
}
