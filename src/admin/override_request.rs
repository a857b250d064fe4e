//! The body of a change: `{"burst": 50, "ttl": "1h"}`.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::json_body;

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

const EXAMPLE: &str = "{\"burst\": 50, \"ttl\": \"1h\"}";

impl OverrideRequest {
    /// # Errors
    /// If it is none, in the words of this interface and not of a library.
    pub(super) fn read(body: &[u8]) -> Result<Self, String> {
        json_body::read(body, EXAMPLE, fault)
    }
}

/// What is wrong with the fields.
fn fault(fields: &Map<String, Value>) -> Option<String> {
    for (name, value) in fields {
        let (good, wanted) = match name.as_str() {
            "rate" => (value.is_string(), "a string such as \"600/minute\""),
            "burst" => (value.is_u64(), "a whole number"),
            "boost" => (value.is_number(), "a number such as 2.5"),
            "ttl" => (value.is_string(), "a string such as \"1h30m\""),
            "reason" => (value.is_string(), "a string"),
            _ => return Some(json_body::no_field(name, "rate, burst, boost, ttl and reason")),
        };
        if !good && !value.is_null() {
            return Some(json_body::wrong(name, wanted, value));
        }
    }
    None
}
