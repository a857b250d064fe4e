//! When a limit or a guard applies, or a route matches: `when = { plan = "enterprise" }`.

use http::Method;

use super::key::KeyError;
use super::source::{KeyInput, RequestFacts, Source};
use super::value_pattern::ValuePattern;

/// One thing that has to be so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    pub what: What,
    /// One of them.
    pub values: Vec<ValuePattern>,
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
        match &self.what {
            // HEAD has the upstream do what GET does: a limit on the one is a limit on the other.
            What::Method => Ok(self.has(method.as_str().as_bytes())
                || (*method == Method::HEAD && self.has(b"GET"))),
            What::Source(source) => Ok(source.value(subject)?.is_some_and(|it| self.has(&it))),
        }
    }

    /// The same before anything is known of a request but its head.
    ///
    /// # Errors
    /// If the request says several things where it is asked for one.
    pub fn holds_for_head(&self, facts: &RequestFacts<'_>) -> Result<bool, KeyError> {
        match &self.what {
            What::Method => Ok(false),
            What::Source(source) => Ok(source.value_in(facts)?.is_some_and(|it| self.has(&it))),
        }
    }

    /// Whether a request may be so that both hold. Conditions on different things always may.
    pub fn overlaps(&self, other: &Condition) -> bool {
        self.what != other.what
            || self.values.iter().any(|value| other.values.iter().any(|it| it.overlaps(value)))
    }

    fn has(&self, found: &[u8]) -> bool {
        self.values.iter().any(|value| value.matches(found))
    }
}
