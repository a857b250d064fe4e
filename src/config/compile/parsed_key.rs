//! A key of a limit: absent, invalid, valid, or inherited.

use crate::config::file::{Section, Value};

/// A key's value in the file and what it means. An inherited key has a meaning and no value in the
/// file.
pub(super) struct ParsedKey<'a, T> {
    pub(super) value: Option<Value<'a>>,
    pub(super) it: Option<T>,
}

impl<'a, T: Copy> ParsedKey<'a, T> {
    pub(super) fn of(
        value: Option<Value<'a>>,
        parse: impl FnOnce(&Value<'a>) -> Option<T>,
    ) -> Self {
        let it = value.as_ref().and_then(parse);
        ParsedKey { value, it }
    }

    /// Neither written nor inherited.
    pub(super) fn is_absent(&self) -> bool {
        self.value.is_none() && self.it.is_none()
    }

    /// Written, and reported as wrong.
    pub(super) fn is_invalid(&self) -> bool {
        self.value.is_some() && self.it.is_none()
    }

    /// What it says, or a default; `None` if it is invalid.
    pub(super) fn or(&self, default: T) -> Option<T> {
        if self.is_invalid() { None } else { Some(self.it.unwrap_or(default)) }
    }

    /// Takes the meaning of another if this one is not written.
    pub(super) fn inherit(&mut self, other: &ParsedKey<'_, T>) {
        if self.value.is_none() {
            self.it = other.it;
        }
    }

    /// Warns that the key, where it is written, changes nothing.
    pub(super) fn warn_without_effect(&self, why: &str, help: &str) {
        if let Some(value) = self.value.as_ref().filter(|_| !self.is_invalid()) {
            value.warning(&format!("has no effect: {why}"), help);
        }
    }
}

/// What a diagnostic points at: the first of some keys that is written, or else their table.
pub(super) struct ReportTarget<'t, 'a> {
    value: Option<&'t Value<'a>>,
    section: &'t Section<'a>,
}

impl<'t, 'a> ReportTarget<'t, 'a> {
    pub(super) fn first<const N: usize>(
        keys: [&'t Option<Value<'a>>; N],
        section: &'t Section<'a>,
    ) -> Self {
        ReportTarget { value: keys.into_iter().flatten().next(), section }
    }

    pub(super) fn error(&self, message: &str, help: impl Into<String>) {
        match self.value {
            Some(value) => value.error(message, help),
            None => self.section.error(message, help),
        }
    }

    pub(super) fn warning(&self, message: &str, help: impl Into<String>) {
        match self.value {
            Some(value) => value.warning(message, help),
            None => self.section.warning(message, help),
        }
    }
}
