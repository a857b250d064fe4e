//! A key of a policy: left out, faulty, good, or taken over from elsewhere.

use crate::config::file::Value;

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

    /// Warns that the key, where it is written, changes nothing.
    pub(super) fn without_effect(&self, why: &str, help: &str) {
        if let Some(value) = &self.value {
            value.doubtful(&format!("has no effect: {why}"), help);
        }
    }
}
