//! How the key of a shared bucket is written: `weir:per-ip:9f3c21ab:i192.0.2.1`.
//!
//! It is the prefix, the limit's name, a hash of how and by what it counts, the plan if that has
//! numbers of its own (`=pro`), and the parts of the limit's key, each after a letter for its kind.
//! Addresses and routes are written out, so that an operator can find them. A value from a header, a
//! query or a cookie may be a credential, or anything that a client chooses: only its digest is
//! written, so that it cannot collide with another, choose a hash slot of a cluster, or lengthen the
//! key.

use aws_lc_rs::digest::{SHA256, digest};
use smallvec::{Array, SmallVec};

use crate::limit::key::Part;

/// 128 bits of a digest in digits of six bits.
const DIGITS: usize = 22;
const HEX: &[u8; 16] = b"0123456789abcdef";
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// What a key is written into.
pub trait KeyBuffer {
    fn push(&mut self, byte: u8);
    fn extend_from_slice(&mut self, bytes: &[u8]);
}

impl KeyBuffer for Vec<u8> {
    fn push(&mut self, byte: u8) {
        Vec::push(self, byte);
    }

    fn extend_from_slice(&mut self, bytes: &[u8]) {
        Vec::extend_from_slice(self, bytes);
    }
}

impl<A: Array<Item = u8>> KeyBuffer for SmallVec<A> {
    fn push(&mut self, byte: u8) {
        SmallVec::push(self, byte);
    }

    fn extend_from_slice(&mut self, bytes: &[u8]) {
        SmallVec::extend_from_slice(self, bytes);
    }
}

/// What the keys of a limit's buckets start with, or those of a plan that has numbers of its own. A
/// limit that counts by something else, or in another way, has another `kind` and so fresh buckets.
pub fn prefix(prefix: &str, limit: &str, kind: &str, plan: Option<&str>) -> Vec<u8> {
    let mark = digest(&SHA256, kind.as_bytes());
    let mark = mark.as_ref().iter().take(4).fold(0, |mark, byte| mark << 8 | u32::from(*byte));
    let mut key = format!("{prefix}:{limit}:{mark:08x}").into_bytes();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    match plan {
        None => {}
        Some(plan) if plan.bytes().all(plain) => {
            key.extend_from_slice(b":=");
            key.extend_from_slice(plan.as_bytes());
        }
        // A colon would end the part, and braces choose a hash slot.
        Some(plan) => {
            key.push(b':');
            push_digest(&mut key, b'~', plan.as_bytes());
        }
    }
    key
}

/// Appends one part of a limit's key.
pub fn push_part(key: &mut impl KeyBuffer, kind: Part, bytes: &[u8]) {
    key.push(b':');
    match (kind, bytes) {
        (Part::Ip, &[a, b, c, d]) => {
            // At most `i255.255.255.255`.
            let (mut text, mut end) = ([b'.'; 16], 0);
            for octet in [a, b, c, d] {
                end += 1;
                for unit in [100, 10, 1] {
                    if octet >= unit || unit == 1 {
                        text[end] = b'0' + octet / unit % 10;
                        end += 1;
                    }
                }
            }
            text[0] = b'i';
            key.extend_from_slice(&text[..end]);
        }
        (Part::Ip, _) => {
            // Without colons, which separate the parts.
            key.push(b'i');
            for octet in bytes {
                key.push(HEX[usize::from(octet >> 4)]);
                key.push(HEX[usize::from(octet & 15)]);
            }
        }
        (Part::Route, _) => {
            key.push(b'r');
            key.extend_from_slice(bytes);
        }
        (Part::Header, _) => push_digest(key, b'h', bytes),
        (Part::Query, _) => push_digest(key, b'q', bytes),
        (Part::Cookie, _) => push_digest(key, b'c', bytes),
        (Part::User, _) => push_digest(key, b'u', bytes),
        (Part::Client, _) => push_digest(key, b'l', bytes),
        (Part::Tenant, _) => push_digest(key, b't', bytes),
        (Part::Plan, _) => push_digest(key, b'p', bytes),
        (Part::Jwt, _) => push_digest(key, b'j', bytes),
        (Part::Basic, _) => push_digest(key, b'b', bytes),
        (Part::Form, _) => push_digest(key, b'f', bytes),
        (Part::TlsSubject, _) => push_digest(key, b's', bytes),
        (Part::TlsNames, _) => push_digest(key, b'n', bytes),
        (Part::Absent, _) => key.push(b'-'),
    }
}

/// The name of what is known of a user.
pub fn trust_name(prefix: &str, user: &[u8]) -> Vec<u8> {
    // No limit can have such a name.
    let mut name = format!("{prefix}:@trust").into_bytes();
    push_part(&mut name, Part::User, user);
    name
}

fn push_digest(key: &mut impl KeyBuffer, kind: u8, bytes: &[u8]) {
    let digest = digest(&SHA256, bytes);
    let mut bits = digest.as_ref().first_chunk().map_or(0, |first| u128::from_be_bytes(*first));
    let mut text = [kind; 1 + DIGITS];
    for digit in &mut text[1..] {
        *digit = ALPHABET[(bits & 63) as usize];
        bits >>= 6;
    }
    key.extend_from_slice(&text);
}

#[cfg(test)]
mod tests;
