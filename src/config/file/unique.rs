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
        match self.0.get(&it) {
            Some(first) => {
                let message = match value.item() {
                    DeValue::String(text) => {
                        format!("{} repeats an earlier one: {}", value.subject(), quote(text))
                    }
                    _ => format!("{} repeats an earlier one", value.subject()),
                };
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
