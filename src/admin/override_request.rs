//! The body of a change: `{"burst": 50, "ttl": "1h"}`.

use serde::Deserialize;
use serde_json::{Error, Value};

/// What a change says.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OverrideRequest {
    #[serde(default)]
    pub(super) rate: Option<String>,
    #[serde(default)]
    pub(super) burst: Option<u64>,
    #[serde(default)]
    pub(super) boost: Option<f64>,
    /// As durations in the configuration: `1h30m`.
    #[serde(default)]
    pub(super) ttl: Option<String>,
    #[serde(default)]
    pub(super) reason: Option<String>,
}

const NO_OBJECT: &str = "The body must be a JSON object, such as {\"burst\": 50, \"ttl\": \"1h\"}.";
/// How much of a wrong body a message repeats.
const SHOWN: usize = 60;

impl OverrideRequest {
    /// # Errors
    /// If it is none, in the words of this interface and not of a library.
    pub(super) fn read(body: &[u8]) -> Result<Self, String> {
        if body.is_empty() {
            return Ok(OverrideRequest::default());
        }
        let change = serde_json::from_slice(body).map_err(|error| why(body, &error))?;
        // The library would take an array for the fields in their order.
        if !body.trim_ascii_start().starts_with(b"{") {
            return Err(NO_OBJECT.to_owned());
        }
        Ok(change)
    }
}

fn why(body: &[u8], error: &Error) -> String {
    let Ok(value) = serde_json::from_slice::<Value>(body) else {
        let (line, column) = (error.line(), error.column());
        return format!("The body is not JSON: line {line}, column {column}.");
    };
    let Some(fields) = value.as_object() else { return NO_OBJECT.to_owned() };
    for (name, value) in fields {
        let (good, wanted) = match name.as_str() {
            "rate" => (value.is_string(), "a string such as \"600/minute\""),
            "burst" => (value.is_u64(), "a whole number"),
            "boost" => (value.is_number(), "a number such as 2.5"),
            "ttl" => (value.is_string(), "a string such as \"1h30m\""),
            "reason" => (value.is_string(), "a string"),
            _ => {
                let name = shown(name);
                return format!(
                    "There is no field {name:?}: the fields are rate, burst, boost, ttl and reason."
                );
            }
        };
        if !good && !value.is_null() {
            return format!(
                "The field {name} must be {wanted}, not {}.",
                shown(&value.to_string())
            );
        }
    }
    "The body names a field twice.".to_owned()
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}
