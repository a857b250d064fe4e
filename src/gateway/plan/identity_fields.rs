//! What upstreams are told of a caller, in the headers that `forward` of `[identity]` names.
//!
//! A name goes as it is if it is visible ASCII. Of all else, and of `%`, the bytes are percent-encoded,
//! so that no name can end its header or be taken for another: to decode it gives the name.

use std::fmt::Write as _;
use std::net::IpAddr;

use http::{HeaderName, HeaderValue};

use crate::config::settings::{ForwardedIdentity, IdentityName};
use crate::limit::source::Identities;

/// Headers for the upstream. None for what is not known.
pub type IdentityFields = Vec<(HeaderName, HeaderValue)>;

pub(super) fn identity_fields(
    forward: &ForwardedIdentity,
    names: &Identities<'_>,
    ip: IpAddr,
) -> IdentityFields {
    let mut fields = Vec::with_capacity(forward.headers.len());
    for (name, header) in &forward.headers {
        let value = match name {
            IdentityName::User => names.user.as_deref().and_then(field_value),
            IdentityName::Client => names.client.as_deref().and_then(field_value),
            IdentityName::Tenant => names.tenant.as_deref().and_then(field_value),
            IdentityName::Plan => names.plan.as_deref().and_then(field_value),
            IdentityName::Ip => field_value(ip.to_string().as_bytes()),
        };
        fields.extend(value.map(|value| (header.clone(), value)));
    }
    fields
}

fn field_value(name: &[u8]) -> Option<HeaderValue> {
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && *byte != b'%';
    if name.iter().all(is_plain) {
        return HeaderValue::from_bytes(name).ok();
    }
    let mut encoded = String::with_capacity(name.len() + 16);
    for byte in name {
        if is_plain(byte) {
            encoded.push(char::from(*byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    HeaderValue::try_from(encoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_so_that_decoding_gives_them_back() {
        for (name, expected) in [
            ("alice", "alice"),
            ("CN=a,O=b", "CN=a,O=b"),
            ("a b", "a%20b"),
            ("a%20b", "a%2520b"),
            ("a\r\nx-admin: 1", "a%0D%0Ax-admin:%201"),
            ("\u{e9}\0", "%C3%A9%00"),
        ] {
            assert_eq!(field_value(name.as_bytes()).expect("a value"), expected);
        }
    }
}
