//! Lists without doubles.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;

use toml::de::DeValue;

use super::Value;
use crate::config::diagnostic::Diagnostic;
use crate::config::suggest::quote;

/// The entries of a list that are valid, each once; what is not valid, or there twice, is reported.
pub(in crate::config) fn unique_values<'a, T: Clone + Hash + Eq>(
    entries: &[Value<'a>],
    parse: impl Fn(&Value<'a>) -> Option<T>,
) -> Vec<T> {
    let mut seen = UniqueValues::new();
    let parsed = entries.iter().filter_map(|entry| Some((parse(entry)?, entry)));
    parsed.filter_map(|(it, entry)| seen.insert(it.clone(), entry).then_some(it)).collect()
}

/// What a list already holds, to find what it holds twice.
pub(in crate::config) struct UniqueValues<T>(HashMap<T, Range<usize>>);

impl<T: Hash + Eq> UniqueValues<T> {
    pub(in crate::config) fn new() -> Self {
        UniqueValues(HashMap::new())
    }

    /// Adds a value; reports it and returns false if it is there already.
    pub(in crate::config) fn insert(&mut self, it: T, value: &Value<'_>) -> bool {
        let repeated = match value.item() {
            DeValue::String(text) => format!(": {}", quote(text)),
            _ => String::new(),
        };
        self.insert_or_report(it, value, &repeated)
    }

    /// The same for what is the key of a value, which may be a secret and is not repeated.
    pub(in crate::config) fn insert_key(&mut self, it: T, value: &Value<'_>) -> bool {
        self.insert_or_report(it, value, "")
    }

    fn insert_or_report(&mut self, it: T, value: &Value<'_>, repeated: &str) -> bool {
        match self.0.get(&it) {
            Some(first) => {
                let message = format!("{} repeats an earlier one{repeated}", value.subject());
                value.report(
                    Diagnostic::error(value.span(), message)
                        .also(first.clone(), "first here")
                        .help("remove one of the two, or change it"),
                );
                false
            }
            None => {
                self.0.insert(it, value.span());
                true
            }
        }
    }
}
