use super::*;
use http::HeaderValue;

fn by(from: CostSource) -> Cost {
    Cost::Dynamic { from, default: 2, max: Some(100) }
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
        assert_eq!(answered.of_response(&map, 10), Some(2), "{bad}");
    }
    for absent in [&[][..], &[""], &[" "]] {
        assert_eq!(asked.of_request(&headers(absent), None), Ok(2));
        assert_eq!(answered.of_response(&headers(absent), 10), Some(2));
    }
}

#[test]
fn a_caller_cannot_ask_for_nothing_and_an_upstream_can() {
    let name = HeaderName::from_static("x-cost");
    let zero = headers(&["0"]);
    assert_eq!(by(CostSource::Header(name.clone())).of_request(&zero, None), Ok(2));
    assert_eq!(by(CostSource::Response(name)).of_response(&zero, 10), Some(0));
}

#[test]
fn without_a_maximum_it_is_what_the_bucket_holds() {
    let name = HeaderName::from_static("x-cost");
    let unbounded = |from, default| Cost::Dynamic { from, default, max: None };
    let asked = unbounded(CostSource::Header(name.clone()), 2);
    assert_eq!(asked.of_request(&headers(&["70"]), None), Ok(70));
    assert_eq!([7, 70].map(|cost| asked.within(cost, 10)), [7, 10]);
    let answered = unbounded(CostSource::Response(name), 2);
    let said = |cost: &str| answered.of_response(&headers(&[cost]), 10);
    assert_eq!(["7", "70"].map(said), [Some(7), Some(10)]);
    assert_eq!([1, 10].map(|quota| answered.most(quota)), [2, 10]);
    // What is written is not told: it may be more than a bucket ever holds.
    assert_eq!(Cost::Fixed(70).within(70, 10), 70);
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
    assert_eq!(answered.of_response(&headers(&["3", "4"]), 10), Some(2));
}

#[test]
fn outcomes_are_ranges_of_statuses() {
    let outcomes = Outcomes(vec![(400, 499), (503, 503)]);
    let has = |status| outcomes.has(StatusCode::from_u16(status).expect("a status"));
    let counted: Vec<u16> =
        [200, 399, 400, 401, 499, 500, 503].into_iter().filter(|it| has(*it)).collect();
    assert_eq!(counted, [400, 401, 499, 503]);
}
