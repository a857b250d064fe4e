//! What is wrong with a value, and what to write instead: for parsers that do not know where the
//! value stands in the file.

use crate::config::file::Value;

/// The message goes on where the name of the key ends. Neither text repeats a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ValueError {
    pub(super) message: String,
    pub(super) help: String,
}

impl ValueError {
    pub(super) fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        ValueError { message: message.into(), help: help.into() }
    }

    pub(super) fn report(&self, value: &Value<'_>) {
        value.error(&self.message, self.help.as_str());
    }
}
