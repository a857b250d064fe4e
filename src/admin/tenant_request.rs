//! The body of a change: `{"parent": "partner-a", "rate": "1000/minute"}`.

use serde_json::{Map, Value};

use super::json_body;
use crate::tenants::TenantBody;

const EXAMPLE: &str = "{\"parent\": \"partner-a\", \"rate\": \"1000/minute\"}";

/// # Errors
/// If it is none, in the words of this interface and not of a library.
pub(super) fn read(body: &[u8]) -> Result<TenantBody, String> {
    json_body::read(body, EXAMPLE, fault)
}

/// What is wrong with the fields.
fn fault(fields: &Map<String, Value>) -> Option<String> {
    for (name, value) in fields {
        let (good, wanted) = match name.as_str() {
            "parent" => (value.is_string(), "a string"),
            "rate" => (value.is_string(), "a string such as \"1000/minute\""),
            "burst" => (value.is_u64(), "a whole number"),
            "algorithm" => (value.is_string(), "a string such as \"token_bucket\""),
            "sharing" => (value.is_string(), "a string such as \"enforce\""),
            "description" => (value.is_string(), "a string"),
            "budget" => match value.as_object().map(budget_fault) {
                Some(None) => (true, ""),
                Some(fault) => return fault,
                None => (false, "an object such as {\"mode\": \"shared\"}"),
            },
            _ => {
                let fields = "parent, rate, burst, algorithm, sharing, budget and description";
                return Some(json_body::no_field(name, fields));
            }
        };
        if !good && !value.is_null() {
            return Some(json_body::wrong(name, wanted, value));
        }
    }
    None
}

fn budget_fault(fields: &Map<String, Value>) -> Option<String> {
    for (name, value) in fields {
        let numbers =
            |value: &Value| value.as_object().is_some_and(|it| it.values().all(Value::is_u64));
        let (good, wanted) = match name.as_str() {
            "mode" => (value.is_string(), "a string such as \"allocated\""),
            "total" => (value.is_u64(), "a whole number"),
            "overcommit" => (value.is_number(), "a number such as 1.5"),
            "guaranteed" => (numbers(value), "an object such as {\"a1\": 1000}"),
            _ => {
                let fields = "mode, total, overcommit and guaranteed";
                return Some(json_body::no_field(&format!("budget.{name}"), fields));
            }
        };
        if !good && !value.is_null() {
            return Some(json_body::wrong(&format!("budget.{name}"), wanted, value));
        }
    }
    None
}
