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

    /// What a response says that its request has cost, if that is where the cost comes from. The upstream
    /// may say that it was nothing.
    pub fn of_response(&self, headers: &HeaderMap) -> Option<u64> {
        let Cost::Dynamic { from: CostSource::Response(name), default, max } = self else {
            return None;
        };
        let mut values = headers.get_all(name).iter();
        Some(match (values.next(), values.next()) {
            (Some(value), None) => number(value.as_bytes()).map_or(*default, |it| it.min(*max)),
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

/// What counts for a cost that a caller writes. `None` if it is not in plain digits.
fn caller_cost(text: &[u8], default: u64, max: u64) -> Option<u64> {
    if text.trim_ascii().is_empty() {
        return Some(default);
    }
    match number(text)? {
        0 => Some(default),
        cost => Some(cost.min(max)),
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
    fn whatever_is_no_cost_is_refused_from_callers_and_the_default_from_upstreams() {
        let name = HeaderName::from_static("x-cost");
        let (asked, answered) =
            (by(CostSource::Header(name.clone())), by(CostSource::Response(name.clone())));
        let refused = Err(KeyError::Cost(Source::Header(name)));
        for bad in [
            "-5", "NaN", "inf", "1e309", "1e3", "0x10", "5,", "+5", "5.0", "5;6", "1_0", "5,6",
            "\u{665}",
        ] {
            let Ok(value) = HeaderValue::from_bytes(bad.as_bytes()) else { panic!("{bad}") };
            let mut map = HeaderMap::new();
            map.insert("x-cost", value);
            assert_eq!(asked.of_request(&map, None), refused, "{bad}");
            assert_eq!(answered.of_response(&map), Some(2), "{bad}");
        }
        for absent in [&[][..], &[""], &[" "]] {
            assert_eq!(asked.of_request(&headers(absent), None), Ok(2));
            assert_eq!(answered.of_response(&headers(absent)), Some(2));
        }
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
        for (query, counts) in [("n=7", 7), ("a=1&%6e=%37", 7), ("n=0", 2), ("m=7", 2), ("n", 2)] {
            assert_eq!(cost.of_request(&HeaderMap::new(), Some(query)), Ok(counts), "{query}");
        }
        assert_eq!(cost.of_request(&HeaderMap::new(), None), Ok(2));
        let refused = Err(KeyError::Cost(Source::Query("n".into())));
        assert_eq!(cost.of_request(&HeaderMap::new(), Some("n=-1")), refused);
    }

    #[test]
    fn a_cost_that_is_given_twice_is_refused() {
        let name = HeaderName::from_static("x-cost");
        let header = by(CostSource::Header(name.clone()));
        for values in [&["3", "4"][..], &["3", "3"], &["3", ""]] {
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
