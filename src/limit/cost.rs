//! What a request costs, and which outcomes are charged at all.
//!
//! A cost that a caller writes is never trusted: what is no plain whole number, or is zero, counts
//! as the default, what is above the maximum counts as the maximum, and one that is given twice is
//! refused, as a key is. No cost gives tokens back.

use http::{HeaderMap, HeaderName, StatusCode};

use super::key::KeyError;
use super::source::{Parameter, Source, parameter};

/// What one request costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cost {
    Fixed(u64),
    Dynamic {
        from: CostSource,
        /// When the cost is absent or not sensible.
        default: u64,
        /// What counts for anything above it.
        max: u64,
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

    /// What a request says that it costs, before anything is known of its response.
    ///
    /// # Errors
    /// If it is given twice: gateway and upstream might each take another one.
    pub fn of_request(&self, headers: &HeaderMap, query: Option<&str>) -> Result<u64, KeyError> {
        Ok(match self {
            Cost::Fixed(cost) => *cost,
            Cost::Dynamic { from: CostSource::Header(name), default, max } => {
                let mut values = headers.get_all(name).iter().map(|value| value.as_bytes());
                match (values.next(), values.next()) {
                    (None, _) => *default,
                    (Some(value), None) if !is_list(value) => parse_cost(value, 1, *default, *max),
                    _ => return Err(KeyError::Ambiguous(Source::Header(name.clone()))),
                }
            }
            Cost::Dynamic { from: CostSource::Query(name), default, max } => {
                match parameter(query, name) {
                    Parameter::Absent => *default,
                    Parameter::Value(value) => parse_cost(&value, 1, *default, *max),
                    Parameter::Ambiguous => {
                        return Err(KeyError::Ambiguous(Source::Query(name.clone())));
                    }
                }
            }
            Cost::Dynamic { from: CostSource::Response(_), default, .. } => *default,
        })
    }

    /// What a response says that its request has cost, if that is where the cost comes from. The upstream
    /// may say that it was nothing.
    pub fn of_response(&self, headers: &HeaderMap) -> Option<u64> {
        let Cost::Dynamic { from: CostSource::Response(name), default, max } = self else {
            return None;
        };
        let mut values = headers.get_all(name).iter();
        Some(match (values.next(), values.next()) {
            (Some(value), None) => parse_cost(value.as_bytes(), 0, *default, *max),
            _ => *default,
        })
    }

    /// The most that a request can cost.
    pub fn most(&self) -> u64 {
        match self {
            Cost::Fixed(cost) => *cost,
            Cost::Dynamic { default, max, .. } => *max.max(default),
        }
    }
}

/// Whether a field has several values on one line, which is the same as on several: RFC 9110
/// section 5.3.
fn is_list(value: &[u8]) -> bool {
    let members = value.split(|byte| *byte == b',');
    members.filter(|member| !member.trim_ascii().is_empty()).nth(1).is_some()
}

/// The number that some digits spell, if it is at least `least`.
fn parse_cost(text: &[u8], least: u64, default: u64, max: u64) -> u64 {
    let text = text.trim_ascii();
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return default;
    }
    let add = |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    match text.iter().fold(0, add) {
        small if small < least => default,
        cost => cost.min(max),
    }
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
mod tests {
    use super::*;
    use http::HeaderValue;

    fn by(from: CostSource) -> Cost {
        Cost::Dynamic { from, default: 2, max: 100 }
    }

    fn headers(values: &[&str]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for value in values {
            map.append("x-cost", HeaderValue::from_str(value).expect("a value"));
        }
        map
    }

    #[test]
    fn whatever_is_no_cost_counts_as_the_default() {
        let name = HeaderName::from_static("x-cost");
        let (asked, answered) =
            (by(CostSource::Header(name.clone())), by(CostSource::Response(name)));
        for bad in
            ["-5", "NaN", "inf", "1e309", "1e3", "0x10", "", "+5", "5.0", "5;6", "1_0", "\u{665}"]
        {
            let Ok(value) = HeaderValue::from_bytes(bad.as_bytes()) else { panic!("{bad}") };
            let mut map = HeaderMap::new();
            map.insert("x-cost", value);
            assert_eq!(asked.of_request(&map, None), Ok(2), "{bad}");
            assert_eq!(answered.of_response(&map), Some(2), "{bad}");
        }
        assert_eq!(asked.of_request(&headers(&[]), None), Ok(2));
    }

    #[test]
    fn a_caller_cannot_ask_for_nothing_and_an_upstream_can() {
        let name = HeaderName::from_static("x-cost");
        let zero = headers(&["0"]);
        assert_eq!(by(CostSource::Header(name.clone())).of_request(&zero, None), Ok(2));
        assert_eq!(by(CostSource::Response(name)).of_response(&zero), Some(0));
    }

    #[test]
    fn more_than_the_most_counts_as_the_most() {
        let cost = by(CostSource::Header(HeaderName::from_static("x-cost")));
        for (text, counts) in [("1", 1), ("007", 7), (" 99 ", 99), ("101", 100)] {
            assert_eq!(cost.of_request(&headers(&[text]), None), Ok(counts), "{text}");
        }
        for huge in ["999999999999", "99999999999999999999999999999999"] {
            assert_eq!(cost.of_request(&headers(&[huge]), None), Ok(100), "{huge}");
        }
    }

    #[test]
    fn a_query_tells_a_cost_as_a_header_does() {
        let cost = by(CostSource::Query("n".into()));
        for (query, counts) in [("n=7", 7), ("a=1&%6e=%37", 7), ("n=-1", 2), ("m=7", 2), ("n", 2)] {
            assert_eq!(cost.of_request(&HeaderMap::new(), Some(query)), Ok(counts), "{query}");
        }
        assert_eq!(cost.of_request(&HeaderMap::new(), None), Ok(2));
    }

    #[test]
    fn a_cost_that_is_given_twice_is_refused() {
        let name = HeaderName::from_static("x-cost");
        let header = by(CostSource::Header(name.clone()));
        for values in [&["3", "4"][..], &["3", "3"], &["3", ""], &["3, 3"], &["5,6"]] {
            let refused = header.of_request(&headers(values), None);
            assert_eq!(refused, Err(KeyError::Ambiguous(Source::Header(name.clone()))));
        }
        let query = by(CostSource::Query("n".into()));
        for text in ["n=3&n=4", "n=3&n=3", "n=3&%6e=", "n=3;n=4", "m;n=4"] {
            let refused = query.of_request(&HeaderMap::new(), Some(text));
            assert_eq!(refused, Err(KeyError::Ambiguous(Source::Query("n".into()))), "{text}");
        }
        // An upstream has no reason to hide anything.
        let answered = by(CostSource::Response(name));
        assert_eq!(answered.of_response(&headers(&["3", "4"])), Some(2));
    }

    #[test]
    fn outcomes_are_ranges_of_statuses() {
        let outcomes = Outcomes(vec![(400, 499), (503, 503)]);
        let has = |status| outcomes.has(StatusCode::from_u16(status).expect("a status"));
        let counted: Vec<u16> =
            [200, 399, 400, 401, 499, 500, 503].into_iter().filter(|it| has(*it)).collect();
        assert_eq!(counted, [400, 401, 499, 503]);
    }
}
