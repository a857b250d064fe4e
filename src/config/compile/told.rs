//! A key of a policy: left out, faulty, good, or taken over from elsewhere.

use crate::config::file::{Section, Value};

/// What a key says, and where it is written. A candidate takes what it does not say from its
/// limit: then there is something said and nothing written.
pub(super) struct Told<'a, T> {
    pub(super) value: Option<Value<'a>>,
    pub(super) it: Option<T>,
}

impl<'a, T: Copy> Told<'a, T> {
    pub(super) fn of(
        value: Option<Value<'a>>,
        parse: impl FnOnce(&Value<'a>) -> Option<T>,
    ) -> Self {
        let it = value.as_ref().and_then(parse);
        Told { value, it }
    }

    /// Neither written nor taken over.
    pub(super) fn is_absent(&self) -> bool {
        self.value.is_none() && self.it.is_none()
    }

    /// Written, and not what it should be: that is noted.
    pub(super) fn is_faulty(&self) -> bool {
        self.value.is_some() && self.it.is_none()
    }

    /// What it says or else a default; nothing if it is faulty.
    pub(super) fn or(&self, default: T) -> Option<T> {
        if self.is_faulty() { None } else { Some(self.it.unwrap_or(default)) }
    }

    /// Takes over what another says if this one is not written.
    pub(super) fn inherit(&mut self, other: &Told<'_, T>) {
        if self.value.is_none() {
            self.it = other.it;
        }
    }

    /// Warns that the key, where it is written, changes nothing.
    pub(super) fn without_effect(&self, why: &str, help: &str) {
        if let Some(value) = self.value.as_ref().filter(|_| !self.is_faulty()) {
            value.doubtful(&format!("has no effect: {why}"), help);
        }
    }
}

/// Where to point: at the first of some keys that is written, or else at the table they are of.
pub(super) struct Place<'t, 'a> {
    value: Option<&'t Value<'a>>,
    section: &'t Section<'a>,
}

impl<'t, 'a> Place<'t, 'a> {
    pub(super) fn first<const N: usize>(
        keys: [&'t Option<Value<'a>>; N],
        section: &'t Section<'a>,
    ) -> Self {
        Place { value: keys.into_iter().flatten().next(), section }
    }

    pub(super) fn wrong(&self, message: &str, help: impl Into<String>) {
        match self.value {
            Some(value) => value.wrong(message, help),
            None => self.section.wrong(message, help),
        }
    }

    pub(super) fn doubtful(&self, message: &str, help: impl Into<String>) {
        match self.value {
            Some(value) => value.doubtful(message, help),
            None => self.section.doubtful(message, help),
        }
    }
}
