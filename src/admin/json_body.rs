//! Bodies of changes: JSON objects, and what is wrong with those that are none.

use serde::de::DeserializeOwned;
use serde_json::{Error, Map, Value};

/// How much of a wrong body a message repeats.
const SHOWN: usize = 60;

/// Reads a body. An empty one is an empty object. `why` says what is wrong with the fields of one.
///
/// # Errors
/// If it is none, in the words of this interface and not of a library.
pub(super) fn read<T: DeserializeOwned + Default>(
    body: &[u8],
    example: &str,
    why: impl Fn(&Map<String, Value>, &Error) -> String,
) -> Result<T, String> {
    if body.is_empty() {
        return Ok(T::default());
    }
    let no_object = || format!("The body must be a JSON object, such as {example}.");
    let read = serde_json::from_slice(body).map_err(|error| {
        let Ok(value) = serde_json::from_slice::<Value>(body) else {
            let (line, column) = (error.line(), error.column());
            return format!("The body is not JSON: line {line}, column {column}.");
        };
        value.as_object().map_or_else(no_object, |fields| why(fields, &error))
    })?;
    // The library would take an array for the fields in their order.
    if body.trim_ascii_start().starts_with(b"{") { Ok(read) } else { Err(no_object()) }
}

pub(super) fn no_field(name: &str, fields: &str) -> String {
    format!("There is no field {:?}: the fields are {fields}.", shown(name))
}

pub(super) fn wrong(name: &str, wanted: &str, value: &Value) -> String {
    format!("The field {name} must be {wanted}, not {}.", shown(&value.to_string()))
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}
