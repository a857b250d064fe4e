//! By the examples and the rules of the W3C's recommendation.

use super::*;

const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn parsed(text: &str) -> Option<TraceContext> {
    TraceContext::parse(text.as_bytes())
}

#[test]
fn a_trace_is_read_as_it_is_written() {
    let context = parsed(GOOD).unwrap();
    assert_eq!(context.trace_id, 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
    assert_eq!(context.span_id, 0xb7ad_6b71_6920_3331);
    assert!(context.is_sampled());
    let mut headers = HeaderMap::new();
    context.write(&mut headers);
    assert_eq!(headers[TRACEPARENT], GOOD);
    assert_eq!(TraceContext::of(&headers), Some(context));
}

#[test]
fn what_is_not_valid_is_no_trace() {
    let bad = [
        "",
        "00",
        &GOOD[..54],
        // Version 0 has nothing behind its flags.
        &format!("{GOOD}-00"),
        &format!("{GOOD}0"),
        &GOOD.replacen("00", "ff", 1),
        &GOOD.replacen("00", "0X", 1),
        &GOOD.to_uppercase(),
        &GOOD.replace("-b7", "_b7"),
        &GOOD.replace("b7ad6b7169203331", "0000000000000000"),
        &GOOD.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
        &GOOD.replace("-01", "-0g"),
    ];
    for text in bad {
        assert_eq!(parsed(text), None, "{text}");
    }
}

#[test]
fn later_versions_are_read_as_far_as_they_are_known() {
    let later = GOOD.replacen("00", "cc", 1);
    assert!(parsed(&later).is_some());
    assert!(parsed(&format!("{later}-what-the-future-will-be-like")).is_some());
    assert_eq!(parsed(&format!("{later}.what")), None);
}

#[test]
fn flags_that_are_not_known_are_cleared() {
    assert_eq!(parsed(&GOOD.replace("-01", "-ff")).unwrap().flags, SAMPLED | RANDOM);
    assert_eq!(parsed(&GOOD.replace("-01", "-fc")).unwrap().flags, 0);
}

#[test]
fn two_parents_are_none() {
    let mut headers = HeaderMap::new();
    headers.append(TRACEPARENT, HeaderValue::from_static(GOOD));
    assert!(TraceContext::of(&headers).is_some());
    headers.append(TRACEPARENT, HeaderValue::from_static(GOOD));
    assert_eq!(TraceContext::of(&headers), None);
}

fn bounded(values: &[&str]) -> Vec<String> {
    let mut headers = HeaderMap::new();
    for value in values {
        headers.append(TRACESTATE, HeaderValue::from_str(value).unwrap());
    }
    bound_tracestate(&mut headers);
    let values = headers.get_all(TRACESTATE).iter();
    values.map(|it| it.to_str().unwrap().to_owned()).collect()
}

#[test]
fn states_are_combined_in_order() {
    assert_eq!(bounded(&[]), Vec::<String>::new());
    assert_eq!(bounded(&["congo=t61rcWkgMzE,rojo=1"]), ["congo=t61rcWkgMzE,rojo=1"]);
    assert_eq!(bounded(&["a=1, b=2", "", "c=3"]), ["a=1,b=2,c=3"]);
}

#[test]
fn a_list_that_is_none_is_dropped() {
    for bad in [&["nonsense"][..], &["=1"], &["a=1", "nonsense"], &[" ", ","]] {
        assert_eq!(bounded(bad), Vec::<String>::new(), "{bad:?}");
    }
}

#[test]
fn a_long_list_loses_its_long_members_first_and_then_its_end() {
    let long = format!("long={}", "x".repeat(200));
    let some: Vec<_> = (0..20).map(|it| format!("k{it:02}={}", "y".repeat(16))).collect();
    let list = format!("{},{long},{}", some[..10].join(","), some[10..].join(","));
    assert_eq!(bounded(&[&list]), [some.join(",")]);
    let many: Vec<_> = (0..40).map(|it| format!("k{it}=1")).collect();
    assert_eq!(bounded(&[&many.join(",")]), [many[..32].join(",")]);
    assert_eq!(bounded(&[&format!("a={}", "x".repeat(600))]), Vec::<String>::new());
    let middling: Vec<_> = (0..30).map(|it| format!("k{it:02}={}", "z".repeat(30))).collect();
    let kept = &bounded(&[&middling.join(",")])[0];
    assert!(kept.len() <= 512 && kept.starts_with("k00=") && kept.contains("k13="), "{kept}");
}
