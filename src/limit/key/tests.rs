use super::super::source::{Form, Identities, RequestFacts};
use super::*;
use http::{HeaderMap, HeaderName, HeaderValue};

type Parts = Result<Vec<(u8, Vec<u8>)>, KeyError>;

fn parts(source: Source, missing: Missing, query: &str, headers: &[(&str, &str)]) -> Parts {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        map.append(name, HeaderValue::from_str(value).unwrap());
    }
    let ip = IpAddr::from([1, 2, 3, 4]);
    let (headers, query, who) = (&map, Some(query), &Identities::default());
    let facts = RequestFacts {
        headers,
        host: "a",
        query,
        form: Form::None,
        claims: None,
        certificate: None,
    };
    let subject = KeyInput { ip, whole_ip: ip, route: "r", facts, who };
    let mut parts = Vec::new();
    Key(vec![source])
        .parts(&subject, missing, |part, bytes| parts.push((part as u8, bytes.to_vec())))
        .map(|()| parts)
}

fn header() -> Source {
    Source::Header(HeaderName::from_static("x-key"))
}

#[test]
fn an_absent_part_follows_missing() {
    let got = |missing| parts(header(), missing, "", &[("x-key", "")]);
    assert_eq!(got(Missing::Ip), Ok(vec![(Part::Ip as u8, vec![1, 2, 3, 4])]));
    assert_eq!(got(Missing::Shared), Ok(vec![(Part::Absent as u8, vec![])]));
    assert_eq!(got(Missing::Skip), Err(KeyError::Skipped));
    assert_eq!(got(Missing::Deny), Err(KeyError::Missing(header())));
}

#[test]
fn a_prefix_cuts_the_whole_address() {
    let whole_ip: IpAddr = "2001:db8:1:2::3".parse().unwrap();
    let (ip, headers) = (cut(whole_ip, 64), &HeaderMap::new());
    let facts = RequestFacts {
        headers,
        host: "",
        query: None,
        form: Form::None,
        claims: None,
        certificate: None,
    };
    let subject = KeyInput { ip, whole_ip, route: "r", facts, who: &Identities::default() };
    let fed = |source| {
        let mut fed = Vec::new();
        let sink = |_, bytes: &[u8]| fed = bytes.to_vec();
        Key(vec![source]).parts(&subject, Missing::Deny, sink).map(|()| fed[..10].to_vec())
    };
    let octets = |end| Ok([0x20, 1, 0x0d, 0xb8, 0, 1, 0, end, 0, 0].to_vec());
    assert_eq!(fed(Source::Ip), octets(2));
    assert_eq!(fed(Source::IpPrefix(48)), octets(0));
}

#[test]
fn a_doubled_header_is_ambiguous() {
    let got = parts(header(), Missing::Ip, "", &[("x-key", "a"), ("x-key", "a")]);
    assert_eq!(got, Err(KeyError::Ambiguous(header())));
}

#[test]
fn every_spelling_of_a_query_value_is_one_key() {
    let source = Source::Query("k".into());
    let one = |value: &str| Ok(vec![(Part::Query as u8, value.as_bytes().to_vec())]);
    for query in ["k=ab", "x=1&k=ab&y", "k=%61b", "%6b=a%62", "x;y&k=ab"] {
        assert_eq!(parts(source.clone(), Missing::Skip, query, &[]), one("ab"), "{query}");
    }
    assert_eq!(parts(source.clone(), Missing::Skip, "k=a+b", &[]), one("a b"));
    assert_eq!(parts(source.clone(), Missing::Skip, "k=%zz%", &[]), one("%zz%"));
    for query in ["k=a&k=b", "k=ab&k=%61b", "k=a&k=", "k=a;b", "x;k=a", "x=1;%6b=a&y"] {
        let ambiguous = parts(source.clone(), Missing::Skip, query, &[]);
        assert_eq!(ambiguous, Err(KeyError::Ambiguous(source.clone())), "{query}");
    }
    assert_eq!(parts(source.clone(), Missing::Skip, "k=a%3bb", &[]), one("a;b"));
    assert_eq!(parts(source, Missing::Skip, "kk=a&k=", &[]), Err(KeyError::Skipped));
}

#[test]
fn a_cookie_is_found_among_others() {
    let source = Source::Cookie("sid".into());
    for line in [
        "sid=x",
        "a=b; sid=x; c=d",
        "a=b;sid=x",
        "xsid=y; sid=x",
        "sid = x",
        "sid=\"x\"",
        "sid=%78",
        "sid=\"%78\"",
    ] {
        let got = parts(source.clone(), Missing::Skip, "", &[("cookie", line)]);
        assert_eq!(got, Ok(vec![(Part::Cookie as u8, b"x".to_vec())]), "{line}");
    }
    for line in ["sid=x; sid=y", "sid=x; a=b; sid=x"] {
        let twice = parts(source.clone(), Missing::Skip, "", &[("cookie", line)]);
        assert_eq!(twice, Err(KeyError::Ambiguous(source.clone())), "{line}");
    }
    for line in [r#"sid="\170""#, r"sid=\x", "sid=\"x", "sid=x\"", "sid=x y", "sid=x,y"] {
        let misspelled = parts(source.clone(), Missing::Skip, "", &[("cookie", line)]);
        assert_eq!(misspelled, Err(KeyError::Misspelled(source.clone())), "{line}");
    }
    for line in ["sid=", "sid=\"\"", "sid", "a=\"\\1\""] {
        let none = parts(source.clone(), Missing::Skip, "", &[("cookie", line)]);
        assert_eq!(none, Err(KeyError::Skipped), "{line}");
    }
}
