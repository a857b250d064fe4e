//! When a limit applies: `when = { plan = "enterprise", method = "POST" }`.

use http::Method;

use super::key::KeyError;
use super::source::{KeyInput, Source};

/// One thing that has to be so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    pub what: What,
    /// One of them.
    pub values: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum What {
    Method,
    Source(Source),
}

impl Condition {
    /// # Errors
    /// If the request says several things where it is asked for one.
    pub fn holds(&self, subject: &KeyInput<'_>, method: &Method) -> Result<bool, KeyError> {
        let is = |found: &[u8]| self.values.iter().any(|value| value.as_bytes() == found);
        match &self.what {
            // HEAD has the upstream do what GET does: a limit on the one is a limit on the other.
            What::Method => {
                Ok(is(method.as_str().as_bytes()) || (*method == Method::HEAD && is(b"GET")))
            }
            What::Source(source) => Ok(source.value(subject)?.is_some_and(|found| is(&found))),
        }
    }
}
