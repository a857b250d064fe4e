//! What environment variables hold that a configuration names.
//!
//! One that is not set is a fault wherever it is named: it was forgotten. One that is empty may
//! well be meant, since it is what `${NAME:-}` hands on.

use std::env::VarError;

use crate::config::file::Value;
use crate::config::mask::is_variable_name;
use crate::config::suggest::quote;

/// A variable that is set, by the name that the file has for it. It may be empty.
pub(super) struct EnvVariable<'a> {
    pub(super) name: &'a str,
    pub(super) text: String,
}

impl<'a> EnvVariable<'a> {
    pub(super) fn read(value: &Value<'a>, example: &str) -> Option<Self> {
        let name = value.text(example)?;
        match std::env::var(name) {
            Ok(text) => return Some(EnvVariable { name, text }),
            Err(VarError::NotPresent) => fault(value, name, "is not set"),
            Err(VarError::NotUnicode(_)) => fault(value, name, "is not valid UTF-8"),
        }
        None
    }

    /// The same where an empty one is a fault as well.
    pub(super) fn read_nonempty(value: &Value<'a>, example: &str) -> Option<Self> {
        let found = EnvVariable::read(value, example)?;
        if found.text.is_empty() {
            fault(value, found.name, "is empty");
            return None;
        }
        Some(found)
    }
}

fn fault(value: &Value<'_>, name: &str, what: &str) {
    if is_variable_name(name) {
        let message = format!("names the environment variable {}, which {what}", quote(name));
        value.error(&message, "set it before Weir starts");
    } else {
        // It may be the secret itself.
        let message = format!("names an environment variable that {what}");
        let help = "write the name of the variable, such as `WEIR_SECRET`, and not what it holds";
        value.error(&message, help);
    }
}
