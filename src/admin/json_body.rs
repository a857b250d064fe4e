//! Bodies of changes: JSON objects, and what is wrong with those that are none.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// How much of a wrong body a message repeats.
const SHOWN: usize = 60;

/// Reads a body. An empty one is an empty object. `fault` says what is wrong with the fields of one, and
/// is asked before they are read: the library would take an array for the fields of an object in their
/// order.
///
/// # Errors
/// If it is none, in the words of this interface and not of a library.
pub(super) fn read<T: DeserializeOwned + Default>(
    body: &[u8],
    example: &str,
    fault: impl Fn(&Map<String, Value>) -> Option<String>,
) -> Result<T, String> {
    if body.is_empty() {
        return Ok(T::default());
    }
    let no_object = || format!("The body must be a JSON object, such as {example}.");
    let Unambiguous(value) = serde_json::from_slice(body).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let what = if error.is_data() { "names a field twice" } else { "is not JSON" };
        format!("The body {what}: line {line}, column {column}.")
    })?;
    let fields = value.as_object().ok_or_else(no_object)?;
    match fault(fields) {
        Some(fault) => Err(fault),
        None => serde_json::from_value(value).map_err(|_| no_object()),
    }
}

/// JSON in which no object, however deep, has two fields of one name: they could be read in two ways.
struct Unambiguous(Value);

impl<'de> Deserialize<'de> for Unambiguous {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UnambiguousVisitor).map(Unambiguous)
    }
}

struct UnambiguousVisitor;

impl<'de> Visitor<'de> for UnambiguousVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, it: bool) -> Result<Value, E> {
        Ok(Value::Bool(it))
    }

    fn visit_u64<E>(self, it: u64) -> Result<Value, E> {
        Ok(Value::Number(it.into()))
    }

    fn visit_i64<E>(self, it: i64) -> Result<Value, E> {
        Ok(Value::Number(it.into()))
    }

    fn visit_f64<E>(self, it: f64) -> Result<Value, E> {
        Ok(Number::from_f64(it).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, it: &str) -> Result<Value, E> {
        Ok(Value::String(it.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(Unambiguous(item)) = items.next_element()? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((name, Unambiguous(value))) = fields.next_entry::<String, _>()? {
            if object.insert(name, value).is_some() {
                return Err(A::Error::custom("a field twice"));
            }
        }
        Ok(Value::Object(object))
    }
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
