//! Servers of an upstream: `http://host[:port]`, `https://host[:port]` or `unix:/path`.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::host;
use super::value_error::ValueError;
use crate::config::file::Value;
use crate::config::settings::Origin;
use crate::config::suggest::{quote, shown};
use crate::protocol::Scheme;

const FORM: &str = "write a scheme, a host and a port, such as `\"http://127.0.0.1:9000\"`";

/// What the address of a socket has room for, with the zero at its end.
const LONGEST_PATH: usize = 107;

/// A server as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServerUrl {
    pub(super) scheme: Scheme,
    pub(super) origin: Origin,
}

pub(super) fn server_url(value: &Value<'_>) -> Option<ServerUrl> {
    let text = value.text("http://127.0.0.1:9000")?;
    match parse(text) {
        Ok(url) => Some(url),
        Err(error) => {
            error.report(value);
            None
        }
    }
}

fn parse(text: &str) -> Result<ServerUrl, ValueError> {
    let wrong = |what: &str| ValueError::new(what, FORM);
    if text.contains("${") || text.contains("{{") {
        return Err(ValueError::new(
            format!("has a placeholder in it: {}", quote(text)),
            "write the address itself, or have the file written by what knows it, such as \
             `envsubst`",
        ));
    }
    if let Some(path) = text.strip_prefix("unix:") {
        return socket(path);
    }
    if let Some((url, after)) = text.split_once(char::is_whitespace)
        && parse(url).is_ok()
    {
        let after = after.trim();
        let weight = after.strip_prefix("weight=").filter(|it| it.parse::<u32>().is_ok());
        return Err(ValueError::new(
            format!("has something after the address: {}", quote(after)),
            match weight {
                Some(weight) => {
                    format!("write `{{ url = \"{}\", weight = {weight} }}`", shown(url))
                }
                None => format!("write `\"{}\"` alone", shown(url)),
            },
        ));
    }
    let lower = text.to_ascii_lowercase();
    let schemes = [("http://", Scheme::Http), ("https://", Scheme::Https)];
    let known = |(prefix, scheme)| lower.strip_prefix(prefix).map(|rest| (scheme, rest));
    let Some((scheme, rest)) = schemes.into_iter().find_map(known) else {
        return Err(match lower.split_once("://") {
            Some((written, rest)) if http2_scheme(written).is_some() => {
                let scheme = http2_scheme(written).unwrap_or(Scheme::Http);
                let (scheme, rest) = (scheme.as_str(), shown(rest));
                ValueError::new(
                    format!("has an unknown scheme: `{written}`"),
                    format!("write `\"{scheme}://{rest}\"`, and `http2 = true` beside `servers`"),
                )
            }
            Some((scheme, _)) => wrong(&format!("has an unknown scheme: {}", quote(scheme))),
            None if parse(&format!("http://{lower}")).is_ok() => {
                ValueError::new("has no scheme", format!("write `\"http://{lower}\"`"))
            }
            None => wrong(&format!("is not the address of a server: {}", quote(text))),
        });
    };
    // What follows a name or the word `unix` has its own spelling.
    let spelled = &text[text.len() - rest.len()..];
    if let Some(path) = spelled.get(..5).filter(|it| it.eq_ignore_ascii_case("unix:")) {
        let path = spelled[path.len()..].split(':').next().unwrap_or_default();
        return Err(ValueError::new(
            "has a scheme before the path of a socket",
            format!("write `\"unix:{}\"`", shown(path)),
        ));
    }
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.contains('@') {
        return Err(ValueError::new(
            "carries a user or a password, which Weir does not send",
            "leave out what stands before the `@`",
        ));
    }
    if let Some(at) = authority.find(['/', '?', '#']) {
        let (scheme, bare) = (scheme.as_str(), shown(&authority[..at]));
        let after = &spelled[at..authority.len()];
        let help = match after.trim_end_matches('/') {
            path if path.starts_with('/') && !path.contains(['?', '#']) => {
                let path = shown(path);
                format!(
                    "write `\"{scheme}://{bare}\"`, and `rewrite = \"{path}/{{*}}\"` in a route whose \
                     `path` ends in `/*`"
                )
            }
            _ => format!("write `\"{scheme}://{bare}\"`: requests bring their own"),
        };
        return Err(ValueError::new(format!("has a path or a query: {}", quote(after)), help));
    }
    let (host, port) = split(authority)
        .ok_or_else(|| wrong(&format!("is not the address of a server: {}", quote(authority))))?;
    let port = match port {
        None => match scheme {
            Scheme::Http => 80,
            Scheme::Https => 443,
        },
        Some(text) => {
            self::port(text).ok_or_else(|| wrong(&format!("has a bad port: {}", quote(text))))?
        }
    };
    Ok(ServerUrl { scheme, origin: Origin { host, port } })
}

/// By what a server is spoken to that others name by the protocol within.
fn http2_scheme(written: &str) -> Option<Scheme> {
    match written {
        "grpc" | "h2c" => Some(Scheme::Http),
        "grpcs" | "h2" => Some(Scheme::Https),
        _ => None,
    }
}

/// A server behind a Unix socket. What is spoken there is plain HTTP.
fn socket(path: &str) -> Result<ServerUrl, ValueError> {
    let good = path.starts_with('/') && !path.ends_with('/') && path.len() <= LONGEST_PATH;
    if !good || path.chars().any(char::is_control) {
        return Err(ValueError::new(
            format!("is not the path of a socket: {}", quote(path)),
            format!(
                "write an absolute one of at most {LONGEST_PATH} bytes, such as \
                 `\"unix:/run/app.sock\"`"
            ),
        ));
    }
    Ok(ServerUrl { scheme: Scheme::Http, origin: Origin::unix(path) })
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
        let url = |scheme, host: &str, port| {
            Ok(ServerUrl { scheme, origin: Origin { host: host.to_owned(), port } })
        };
        assert_eq!(parse("http://127.0.0.1:9000"), url(Scheme::Http, "127.0.0.1", 9000));
        assert_eq!(parse("HTTP://Api.Internal"), url(Scheme::Http, "api.internal", 80));
        assert_eq!(parse("http://[::1]:81/"), url(Scheme::Http, "::1", 81));
        assert_eq!(parse("http://my_service:8080"), url(Scheme::Http, "my_service", 8080));
        assert_eq!(parse("HTTPS://Api.Internal/"), url(Scheme::Https, "api.internal", 443));
        assert_eq!(parse("https://[::1]:80"), url(Scheme::Https, "::1", 80));
        assert_eq!(parse("unix:/run/App.sock"), url(Scheme::Http, "/run/App.sock", 0));
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
            "https://",
            "https://h/path",
            "ftp://h",
            "h:80",
            "http://a b",
            "http://h\r\n",
            "http://é",
            "unix:",
            "unix:app.sock",
            "unix:/run/",
            "unix://\0",
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
