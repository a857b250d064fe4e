//! What buckets are called in Redis: `weir:per-ip:9f3c21ab:i192.0.2.1`.
//!
//! That is the prefix, the limit's name, a mark of how and by what it counts, the plan if that has
//! numbers of its own (`=pro`), and the parts of the key, each after a letter for its kind. Addresses and routes are written out, so that an
//! operator can find them. What came from a header, a query or a cookie may be a credential, or
//! anything a caller likes: only its digest is written, so no text of a caller's can collide with
//! another, choose a slot of a cluster, or make a name any longer.

use aws_lc_rs::digest::{SHA256, digest};
use smallvec::SmallVec;

use crate::limit::key::Part;

/// 128 bits of a digest in digits of six bits.
const DIGITS: usize = 22;
const HEX: &[u8; 16] = b"0123456789abcdef";
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// What the names of a limit's buckets start with, or those of a plan that has numbers of its own. A
/// limit that counts by something else, or in another way, starts afresh, since its `kind` is another.
#[must_use]
pub fn prefix(prefix: &str, limit: &str, kind: &str, plan: Option<&str>) -> Vec<u8> {
    let mark = digest(&SHA256, kind.as_bytes());
    let mark = mark.as_ref().iter().take(4).fold(0, |mark, byte| mark << 8 | u32::from(*byte));
    let mut name = SmallVec::from_vec(format!("{prefix}:{limit}:{mark:08x}").into_bytes());
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    match plan {
        None => {}
        Some(plan) if plan.bytes().all(plain) => {
            name.extend_from_slice(b":=");
            name.extend_from_slice(plan.as_bytes());
        }
        // It might have a colon in it, or braces, which choose a slot.
        Some(plan) => {
            name.push(b':');
            hashed(&mut name, b'~', plan.as_bytes());
        }
    }
    name.into_vec()
}

/// Adds one part of a key to a name.
pub fn part(name: &mut SmallVec<[u8; 256]>, kind: Part, bytes: &[u8]) {
    name.push(b':');
    match (kind, bytes) {
        (Part::Ip, &[_, _, _, _]) => {
            for (index, octet) in bytes.iter().enumerate() {
                name.push(if index == 0 { b'i' } else { b'.' });
                name.extend_from_slice(itoa::Buffer::new().format(*octet).as_bytes());
            }
        }
        (Part::Ip, _) => {
            // Without its colons, which part the name.
            name.push(b'i');
            for octet in bytes {
                name.push(HEX[usize::from(octet >> 4)]);
                name.push(HEX[usize::from(octet & 15)]);
            }
        }
        (Part::Route, _) => {
            name.push(b'r');
            name.extend_from_slice(bytes);
        }
        (Part::Header, _) => hashed(name, b'h', bytes),
        (Part::Query, _) => hashed(name, b'q', bytes),
        (Part::Cookie, _) => hashed(name, b'c', bytes),
        (Part::User, _) => hashed(name, b'u', bytes),
        (Part::Client, _) => hashed(name, b'l', bytes),
        (Part::Tenant, _) => hashed(name, b't', bytes),
        (Part::Plan, _) => hashed(name, b'p', bytes),
        (Part::Jwt, _) => hashed(name, b'j', bytes),
        (Part::Basic, _) => hashed(name, b'b', bytes),
        (Part::Form, _) => hashed(name, b'f', bytes),
        (Part::Absent, _) => name.push(b'-'),
    }
}

fn hashed(name: &mut SmallVec<[u8; 256]>, kind: u8, bytes: &[u8]) {
    name.push(kind);
    let digest = digest(&SHA256, bytes);
    let mut bits = digest.as_ref().iter().take(16).fold(0, |bits, &it| bits << 8 | u128::from(it));
    for _ in 0..DIGITS {
        name.push(ALPHABET[(bits & 63) as usize]);
        bits >>= 6;
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    fn named(parts: &[(Part, &[u8])]) -> String {
        let mut name =
            SmallVec::from_vec(prefix("weir", "per-user", "token_bucket header:x-id", None));
        for (kind, bytes) in parts {
            part(&mut name, *kind, bytes);
        }
        String::from_utf8(name.into_vec()).expect("printable names")
    }

    #[test]
    fn addresses_and_routes_are_written_out() {
        let name = named(&[(Part::Ip, &[192, 0, 2, 1]), (Part::Route, b"api")]);
        assert!(name.starts_with("weir:per-user:"), "{name}");
        assert!(name.ends_with(":i192.0.2.1:rapi"), "{name}");
        let six = "2001:db8::1".parse::<Ipv6Addr>().expect("an address").octets();
        assert!(named(&[(Part::Ip, &six)]).ends_with(":i20010db8000000000000000000000001"));
    }

    #[test]
    fn callers_text_is_never_written() {
        for text in ["secret", "a:b", "{x}", "a\r\nb", "%00", "*"] {
            let name = named(&[(Part::Header, text.as_bytes())]);
            assert!(!name.contains(text), "{name}");
            assert!(!name.contains(['{', '}', '\r', '*']), "{name}");
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
            let name = prefix("weir", "api", "token_bucket ip", plan);
            String::from_utf8(name).expect("printable names")
        };
        assert_eq!(of(Some("pro")), format!("{}:=pro", of(None)));
        let plans = ["pro", "Pro", "pro plan", "{pro}", "a:b", "a:i192.0.2.1", "pröm"];
        let names: std::collections::HashSet<String> = plans.map(|plan| of(Some(plan))).into();
        assert_eq!(names.len(), plans.len());
        for name in names {
            assert_eq!(name.matches(':').count(), 3, "{name}");
            assert!(!name.contains(['{', '}', ' ']) && name.is_ascii(), "{name}");
        }
    }
}
