//! The `host` of a route: a name, or `*.name` for everything below it.

use std::net::Ipv6Addr;

use crate::config::file::Value;
use crate::config::settings::HostPattern;
use crate::config::suggest::quote;

pub(super) fn host(value: &Value<'_>) -> Option<HostPattern> {
    let text = value.text("api.example.com")?;
    match parse(&text.to_ascii_lowercase()) {
        Ok(pattern) => Some(pattern),
        Err(help) => {
            value.error(&format!("is not a host name: {}", quote(text)), help);
            None
        }
    }
}

/// The pattern, or what to write instead.
fn parse(text: &str) -> Result<HostPattern, String> {
    if let Some(address) = text.strip_prefix('[') {
        let address = address.strip_suffix(']').and_then(|it| it.parse::<Ipv6Addr>().ok());
        let address = address.ok_or("write an IPv6 address in brackets, without a port")?;
        return Ok(HostPattern::Exact(format!("[{address}]")));
    }
    if text == "*" {
        return Err("leave `host` out to match every host".to_owned());
    }
    if let Some((name, port)) = text.split_once(':') {
        let ported = port.chars().all(|c| c.is_ascii_digit());
        return Err(match ported && is_name(name) {
            true => format!("write `\"{name}\"`: the port plays no part in routing"),
            false => FORM.to_owned(),
        });
    }
    if let Some(name) = text.strip_suffix('.').filter(|name| is_name(name)) {
        return Err(format!("write `\"{name}\"`, without the dot at its end"));
    }
    if !text.is_ascii() {
        return Err("write the name in its ASCII form, such as `xn--bcher-kva.example`".to_owned());
    }
    match text.strip_prefix("*.") {
        Some(parent) if is_name(parent) => Ok(HostPattern::Below(parent.to_owned())),
        None if is_name(text) => Ok(HostPattern::Exact(text.to_owned())),
        _ => Err(FORM.to_owned()),
    }
}

const FORM: &str = "write a name such as `\"api.example.com\"`, or `\"*.example.com\"` for every \
                    name below it";

/// Labels of letters, digits, `-` and `_` (names within a cluster have it), parted by dots.
pub(super) fn is_name(text: &str) -> bool {
    let plain = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
    text.len() <= 253
        && text.split('.').all(|label| {
            (1..=63).contains(&label.len())
                && label.bytes().all(plain)
                && !label.starts_with('-')
                && !label.ends_with('-')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_names_without_port_or_wildcards_for_all_below() {
        let exact = |name: &str| Ok(HostPattern::Exact(name.to_owned()));
        assert_eq!(parse("api.example.com"), exact("api.example.com"));
        assert_eq!(parse("localhost"), exact("localhost"));
        assert_eq!(parse("10.0.0.1"), exact("10.0.0.1"));
        assert_eq!(parse("[0:0::1]"), exact("[::1]"));
        assert_eq!(parse("*.example.com"), Ok(HostPattern::Below("example.com".to_owned())));
        for wrong in [
            "", "*", "*.", "a.*.b", "*a.b", "a:80", "a.b.", "a..b", "-a", "a b", "bücher",
            "[::1]:80", "http://a",
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
