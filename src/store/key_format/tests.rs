use std::net::Ipv6Addr;

use super::*;

fn named(parts: &[(Part, &[u8])]) -> String {
    let mut key = prefix("weir", "per-user", "token_bucket header:x-id", None);
    for (kind, bytes) in parts {
        push_part(&mut key, *kind, bytes);
    }
    String::from_utf8(key).expect("printable names")
}

#[test]
fn addresses_and_routes_are_written_out() {
    let key = named(&[(Part::Ip, &[192, 0, 2, 1]), (Part::Route, b"api")]);
    assert!(key.starts_with("weir:per-user:"), "{key}");
    assert!(key.ends_with(":i192.0.2.1:rapi"), "{key}");
    for octets in [[0, 9, 10, 99], [100, 101, 199, 255], [255; 4], [0; 4]] {
        let written = format!(":i{}", std::net::Ipv4Addr::from(octets));
        assert!(named(&[(Part::Ip, &octets)]).ends_with(&written), "{written}");
    }
    let six = "2001:db8::1".parse::<Ipv6Addr>().expect("an address").octets();
    assert!(named(&[(Part::Ip, &six)]).ends_with(":i20010db8000000000000000000000001"));
}

#[test]
fn callers_text_is_never_written() {
    for text in ["secret", "a:b", "{x}", "a\r\nb", "%00", "*"] {
        let key = named(&[(Part::Header, text.as_bytes())]);
        assert!(!key.contains(text), "{key}");
        assert!(!key.contains(['{', '}', '\r', '*']), "{key}");
    }
}

#[test]
fn names_are_as_long_however_long_the_key_is() {
    let short = named(&[(Part::Cookie, b"")]);
    let long = named(&[(Part::Cookie, &[b'x'; 10_000])]);
    assert_eq!(short.len(), long.len());
}

#[test]
fn keys_that_differ_have_names_that_differ() {
    let lists: [&[(Part, &[u8])]; 7] = [
        &[],
        &[(Part::Absent, b"")],
        &[(Part::Header, b"a")],
        &[(Part::Query, b"a")],
        &[(Part::Header, b"a"), (Part::Header, b"b")],
        &[(Part::Header, b"b"), (Part::Header, b"a")],
        &[(Part::Header, b"ab")],
    ];
    for (i, one) in lists.iter().enumerate() {
        for other in &lists[..i] {
            assert_ne!(named(one), named(other));
        }
    }
}

#[test]
fn a_limit_that_counts_otherwise_has_other_buckets() {
    let one = prefix("weir", "api", "token_bucket ip", None);
    assert_eq!(one, prefix("weir", "api", "token_bucket ip", None));
    assert_ne!(one, prefix("weir", "api", "token_bucket route", None));
    assert_ne!(one, prefix("weir", "api", "fixed_window ip", None));
}

#[test]
fn a_plan_has_names_of_its_own_and_chooses_no_slot() {
    let of = |plan| {
        let key = prefix("weir", "api", "token_bucket ip", plan);
        String::from_utf8(key).expect("printable names")
    };
    assert_eq!(of(Some("pro")), format!("{}:=pro", of(None)));
    let plans = ["pro", "Pro", "pro plan", "{pro}", "a:b", "a:i192.0.2.1", "pröm"];
    let names: std::collections::HashSet<String> = plans.map(|plan| of(Some(plan))).into();
    assert_eq!(names.len(), plans.len());
    for key in names {
        assert_eq!(key.matches(':').count(), 3, "{key}");
        assert!(!key.contains(['{', '}', ' ']) && key.is_ascii(), "{key}");
    }
}
