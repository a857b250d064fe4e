//! What a request costs, and which outcomes are charged at all.
//!
//! A cost that a caller writes is never trusted: zero counts as the default, what is above the maximum
//! counts as the maximum, and what is given twice or not in plain digits is refused, as a key is, since
//! the upstream might read a number there. No cost gives tokens back.

use http::{HeaderMap, HeaderName, StatusCode};

use super::key::KeyError;
use super::source::{Parameter, Source, parameter};

/// What one request costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cost {
    Fixed(u64),
    Dynamic {
        from: CostSource,
        /// When the cost is absent. Also where a caller says zero, or an upstream says no number.
        default: u64,
        /// What counts for anything above it. `None`: all that the bucket at hand holds, see
        /// [`Cost::within`].
        max: Option<u64>,
    },
}

/// Where a cost comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CostSource {
    Header(HeaderName),
    /// A parameter of the query, percent-decoded.
    Query(String),
    /// A header of the response: charged after the fact.
    Response(HeaderName),
}

impl Cost {
    pub fn is_of_response(&self) -> bool {
        matches!(self, Cost::Dynamic { from: CostSource::Response(_), .. })
    }

    /// The header of the request that tells it.
    pub fn header(&self) -> Option<&HeaderName> {
        match self {
            Cost::Dynamic { from: CostSource::Header(name), .. } => Some(name),
            _ => None,
        }
    }

    /// What a request says that it costs, before anything is known of its response. A bucket is charged
    /// what counts of that [within](Self::within) what it holds.
    ///
    /// # Errors
    /// If it is given twice, or not in plain digits: gateway and upstream might each take another one.
    pub fn of_request(&self, headers: &HeaderMap, query: Option<&str>) -> Result<u64, KeyError> {
        match self {
            Cost::Fixed(cost) => Ok(*cost),
            Cost::Dynamic { from: CostSource::Header(name), default, max } => {
                let source = || Source::Header(name.clone());
                let mut values = headers.get_all(name).iter().map(|value| value.as_bytes());
                match (values.next(), values.next()) {
                    (None, _) => Ok(*default),
                    (Some(value), None) => {
                        caller_cost(value, *default, *max).ok_or_else(|| KeyError::Cost(source()))
                    }
                    _ => Err(KeyError::Ambiguous(source())),
                }
            }
            Cost::Dynamic { from: CostSource::Query(name), default, max } => {
                let source = || Source::Query(name.clone());
                match parameter(query, name) {
                    Parameter::Absent => Ok(*default),
                    Parameter::Value(value) => {
                        caller_cost(&value, *default, *max).ok_or_else(|| KeyError::Cost(source()))
                    }
                    Parameter::Ambiguous => Err(KeyError::Ambiguous(source())),
                }
            }
            Cost::Dynamic { from: CostSource::Response(_), default, .. } => Ok(*default),
        }
    }

    /// What a response says that its request has cost, if that is where the cost comes from: at most as
    /// a bucket of that quota is charged. The upstream may say that it was nothing.
    pub fn of_response(&self, headers: &HeaderMap, quota: u64) -> Option<u64> {
        let Cost::Dynamic { from: CostSource::Response(name), default, .. } = self else {
            return None;
        };
        let mut values = headers.get_all(name).iter();
        Some(match (values.next(), values.next()) {
            (Some(value), None) => {
                number(value.as_bytes()).map_or(*default, |it| it.min(self.most(quota)))
            }
            _ => *default,
        })
    }

    /// What counts of a cost that a request has, in a bucket of that quota.
    pub fn within(&self, cost: u64, quota: u64) -> u64 {
        match self {
            Cost::Fixed(_) => cost,
            Cost::Dynamic { .. } => cost.min(self.most(quota)),
        }
    }

    /// The most that a request can cost in a bucket of that quota.
    pub fn most(&self, quota: u64) -> u64 {
        match self {
            Cost::Fixed(cost) => *cost,
            Cost::Dynamic { default, max, .. } => max.unwrap_or(quota).max(*default),
        }
    }
}

/// What counts for a cost that a caller writes. `None` if it is not in plain digits.
fn caller_cost(text: &[u8], default: u64, max: Option<u64>) -> Option<u64> {
    if text.trim_ascii().is_empty() {
        return Some(default);
    }
    match number(text)? {
        0 => Some(default),
        cost => Some(max.map_or(cost, |max| cost.min(max))),
    }
}

/// The number that some digits spell, or the largest there is.
fn number(text: &[u8]) -> Option<u64> {
    let digits = text.trim_ascii();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    Some(digits.iter().fold(0, add))
}

/// Statuses, as ranges with both ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcomes(pub Vec<(u16, u16)>);

impl Outcomes {
    pub fn has(&self, status: StatusCode) -> bool {
        let status = status.as_u16();
        self.0.iter().any(|(first, last)| (*first..=*last).contains(&status))
    }
}

#[cfg(test)]
mod tests;
