//! Servers of an upstream: `http://host[:port]`.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::host;
use super::value_error::ValueError;
use crate::config::file::Value;
use crate::config::settings::Origin;
use crate::config::suggest::{quote, shown};

const FORM: &str = "write a scheme, a host and a port, such as `\"http://127.0.0.1:9000\"`";

pub(super) fn origin(value: &Value<'_>) -> Option<Origin> {
    let text = value.text("http://127.0.0.1:9000")?;
    match parse(text) {
        Ok(origin) => Some(origin),
        Err(error) => {
            error.report(value);
            None
        }
    }
}

fn parse(text: &str) -> Result<Origin, ValueError> {
    let wrong = |what: &str| ValueError::new(what, FORM);
    if text.contains("${") || text.contains("{{") {
        return Err(ValueError::new(
            format!("has a placeholder in it: {}", quote(text)),
            "write the address itself, or have the file written by what knows it, such as \
             `envsubst`",
        ));
    }
    let lower = text.to_ascii_lowercase();
    if lower.starts_with("https://") {
        return Err(ValueError::new(
            "is an https server: this version speaks plain HTTP to upstreams only",
            "write an `http://` address",
        ));
    }
    let Some(rest) = lower.strip_prefix("http://") else {
        return Err(match lower.split_once("://") {
            Some((scheme, _)) => wrong(&format!("has an unknown scheme: {}", quote(scheme))),
            None if parse(&format!("http://{lower}")).is_ok() => {
                ValueError::new("has no scheme", format!("write `\"http://{lower}\"`"))
            }
            None => wrong(&format!("is not the address of a server: {}", quote(text))),
        });
    };
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.contains('@') {
        return Err(ValueError::new(
            "carries a user or a password, which Weir does not send",
            "leave out what stands before the `@`",
        ));
    }
    if let Some(at) = authority.find(['/', '?', '#']) {
        let bare = shown(&authority[..at]);
        return Err(ValueError::new(
            format!("has a path or a query: {}", quote(&authority[at..])),
            format!("write `\"http://{bare}\"`; a route's `strip_prefix` changes paths"),
        ));
    }
    let (host, port) = split(authority)
        .ok_or_else(|| wrong(&format!("is not the address of a server: {}", quote(authority))))?;
    let port = match port {
        None => 80,
        Some(text) => {
            self::port(text).ok_or_else(|| wrong(&format!("has a bad port: {}", quote(text))))?
        }
    };
    Ok(Origin { host, port })
}

pub(super) fn port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|number| *number > 0 && !text.starts_with('+'))
}

/// Host, without brackets, and port.
pub(super) fn split(authority: &str) -> Option<(String, Option<&str>)> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (address, rest) = rest.split_once(']')?;
        let address: Ipv6Addr = address.parse().ok()?;
        return match rest {
            "" => Some((address.to_string(), None)),
            _ => Some((address.to_string(), Some(rest.strip_prefix(':')?))),
        };
    }
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    };
    let numeric = host.chars().all(|c| c.is_ascii_digit() || c == '.');
    let valid = if numeric { host.parse::<Ipv4Addr>().is_ok() } else { host::is_name(host) };
    valid.then(|| (host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_a_host_and_a_port() {
        let origin = |host: &str, port| Ok(Origin { host: host.to_owned(), port });
        assert_eq!(parse("http://127.0.0.1:9000"), origin("127.0.0.1", 9000));
        assert_eq!(parse("HTTP://Api.Internal"), origin("api.internal", 80));
        assert_eq!(parse("http://[::1]:81/"), origin("::1", 81));
        assert_eq!(parse("http://my_service:8080"), origin("my_service", 8080));
        for wrong in [
            "",
            "http://",
            "http:///",
            "http://:80",
            "http://h:",
            "http://h:0",
            "http://h:65536",
            "http://h:+1",
            "http://1.2.3:80",
            "http://[::1:80",
            "http://[::1]80",
            "http://h/path",
            "http://h?q",
            "http://h#f",
            "http://u:p@h",
            "https://h",
            "ftp://h",
            "h:80",
            "http://a b",
            "http://h\r\n",
            "http://é",
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn placeholders_are_shown_as_they_are_written() {
        for text in ["http://${API_HOST}:80", "${API_URL}", "http://{{ .Host }}"] {
            let ValueError { message, help } = parse(text).expect_err("refused");
            assert!(message.contains(text) && help.contains("envsubst"), "{message}: {help}");
        }
    }

    #[test]
    fn messages_do_not_repeat_a_password() {
        let ValueError { message, help } = parse("http://me:secret@host").expect_err("refused");
        assert!(!message.contains("secret") && !help.contains("secret"));
    }
}
