//! What becomes of the parts of a head. Whole requests over real sockets are in `tests/it/http`.

use super::*;

fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
    let fields = fields.iter().map(|(name, value)| {
        (http::HeaderName::from_static(name), HeaderValue::from_static(value))
    });
    fields.collect()
}

#[test]
fn crumbs_of_a_cookie_are_joined_in_order() {
    let mut fields = HeaderMap::new();
    for crumb in ["a=1", "b=2", "c=3"] {
        fields.append(header::COOKIE, HeaderValue::from_static(crumb));
    }
    join_cookies(&mut fields).unwrap();
    let cookies: Vec<_> = fields.get_all(header::COOKIE).iter().collect();
    assert_eq!(cookies, ["a=1; b=2; c=3"]);
}

#[test]
fn white_space_around_a_value_is_malformed() {
    assert!(check_values(&headers(&[("x-user-id", "a b"), ("x-empty", "")])).is_ok());
    for padded in [" alice", "alice ", "\talice", " "] {
        let fields = headers(&[("x-user-id", padded)]);
        assert!(matches!(check_values(&fields), Err(Rejection::Malformed)), "{padded:?}");
    }
}

#[test]
fn authority_is_the_host_and_must_not_differ_from_it() {
    let uri = Uri::from_static("http://api.example:8080/x");
    for same in [headers(&[]), headers(&[("host", "API.example:8080")])] {
        let mut fields = same;
        set_host(&mut fields, &uri).unwrap();
        assert_eq!(fields[header::HOST], "api.example:8080");
    }
    let mut other = headers(&[("host", "other.example")]);
    assert!(matches!(set_host(&mut other, &uri), Err(Rejection::Malformed)));
    let mut named = headers(&[("host", "a")]);
    assert!(set_host(&mut named, &Uri::from_static("/x")).is_ok());
    for (fields, uri) in [(headers(&[]), "/x"), (headers(&[]), "http://u@a/x")] {
        let mut fields = fields;
        let refused = set_host(&mut fields, &Uri::from_static(uri));
        assert!(matches!(refused, Err(Rejection::Fault(_))), "{uri}");
    }
}

#[test]
fn target_is_a_path_or_an_asterisk() {
    for (uri, expected) in [("http://a/x?y", "/x?y"), ("https://a/", "/"), ("*", "*")] {
        assert_eq!(target(&Uri::from_static(uri)).unwrap(), expected);
    }
    for bad in ["ftp://a/x", "a:1"] {
        assert!(target(&Uri::from_static(bad)).is_err(), "{bad}");
    }
}
