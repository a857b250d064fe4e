//! `redis://[user[:password]@]host[:port][/database]`, `rediss://…` for TLS, and
//! `unix:///path[?db=N]` or `redis+unix:///path[?db=N]` for a socket.
//!
//! Everything up to the last `@` may be a password, and so may whatever is out of place behind it: no
//! message repeats any of that.

use std::path::PathBuf;

use super::super::origin;
use super::super::value_error::ValueError;
use crate::config::settings::{Origin, Secret};
use crate::config::suggest::quote;

const PORT: u16 = 6379;
const FORM: &str = "write a URL such as `\"redis://127.0.0.1:6379/0\"`, `\"rediss://…\"` for TLS, \
                    or `\"unix:///run/redis.sock\"`";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RedisUrl {
    pub(super) tls: bool,
    pub(super) host: UrlHost,
    pub(super) username: Option<String>,
    pub(super) password: Option<Secret>,
    pub(super) database: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum UrlHost {
    Tcp(Origin),
    Unix(PathBuf),
    /// The URL names no host, which is fine if somebody else does.
    Unnamed,
}

impl Default for RedisUrl {
    fn default() -> Self {
        let host = UrlHost::Tcp(Origin { host: "127.0.0.1".to_owned(), port: PORT });
        RedisUrl { tls: false, host, username: None, password: None, database: 0 }
    }
}

pub(super) fn parse(text: &str) -> Result<RedisUrl, ValueError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    let parts = text.split_once("://").filter(|(scheme, _)| scheme.chars().all(plain));
    let Some((scheme, rest)) = parts.filter(|(scheme, _)| !scheme.is_empty()) else {
        return Err(ValueError::new("has no scheme", FORM));
    };
    match scheme.to_ascii_lowercase().as_str() {
        "redis" => tcp(rest, false),
        "rediss" => tcp(rest, true),
        "unix" | "redis+unix" => unix(rest),
        _ => Err(ValueError::new(format!("has an unknown scheme: {}", quote(scheme)), FORM)),
    }
}

fn tcp(rest: &str, tls: bool) -> Result<RedisUrl, ValueError> {
    let (login, rest) = match rest.rsplit_once('@') {
        Some((login, rest)) => (Some(login), rest),
        None => (None, rest),
    };
    let (username, password) = login.map_or(Ok((None, None)), self::login)?;
    if rest.contains(['?', '#']) {
        return Err(ValueError::new(
            "has a query or a fragment",
            "end it with the number of the database, such as `/0`; users and passwords go before an \
             `@`, or into `username` and `password_env`",
        ));
    }
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let database = database(path, "path")?;
    let host = if authority.is_empty() { UrlHost::Unnamed } else { server(authority)? };
    Ok(RedisUrl { tls, host, username, password, database })
}

fn server(authority: &str) -> Result<UrlHost, ValueError> {
    if authority.starts_with(':') {
        return Err(ValueError::new("has a port and no host", FORM));
    }
    match address(authority, PORT) {
        Some(origin) => Ok(UrlHost::Tcp(origin)),
        None => Err(ValueError::new(
            "does not name a host, or a host and a port from 1 to 65535",
            "write a name or an address, an IPv6 address in brackets, and a port if it is not 6379",
        )),
    }
}

/// `host` or `host:port`.
pub(super) fn address(text: &str, default: u16) -> Option<Origin> {
    let (host, port) = origin::split(text)?;
    let port = port.map_or(Some(default), origin::port)?;
    Some(Origin { host: host.to_ascii_lowercase(), port })
}

/// What stands before the `@`.
fn login(text: &str) -> Result<(Option<String>, Option<Secret>), ValueError> {
    const ENCODE: &str = "percent-encode what is not a letter or a digit, such as `%40` for `@`, \
                          or write `username` and `password_env` in place of it";
    if text.contains(['/', '?', '#']) {
        return Err(ValueError::new("has a `/`, `?` or `#` before its `@`", ENCODE));
    }
    let (user, password) = match text.split_once(':') {
        Some((user, password)) => (user, Some(password)),
        None => (text, None),
    };
    if password == Some("") || text.is_empty() {
        return Err(ValueError::new(
            "has no password before its `@`",
            "add it, or leave out the `@`",
        ));
    }
    let decode =
        |part| decode(part).ok_or_else(|| ValueError::new("has a bad user or password", ENCODE));
    let user = Some(decode(user)?).filter(|it| !it.is_empty());
    Ok((user, password.map(decode).transpose()?.map(Secret)))
}

fn unix(rest: &str) -> Result<RedisUrl, ValueError> {
    const PATH: &str = "write an absolute path after the scheme, such as \
                        `\"unix:///run/redis.sock\"`; users and passwords go into keys of their own";
    if !rest.starts_with('/') {
        return Err(ValueError::new("does not name a socket", PATH));
    }
    let (path, query) = match rest.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (rest, None),
    };
    let path = decode(path).filter(|it| !it.ends_with('/') && !it.contains('#'));
    let path = path.ok_or_else(|| ValueError::new("does not name a socket", PATH))?;
    let database = match query {
        None => 0,
        Some(query) => match query.strip_prefix("db=") {
            Some(number) if !number.is_empty() => database(number, "query")?,
            _ => return Err(ValueError::new("has a query other than `?db=N`", "leave it out")),
        },
    };
    Ok(RedisUrl { host: UrlHost::Unix(PathBuf::from(path)), database, ..RedisUrl::default() })
}

fn database(text: &str, part: &str) -> Result<u32, ValueError> {
    match text {
        "" => Ok(0),
        _ if text.bytes().all(|byte| byte.is_ascii_digit()) => {
            text.parse().map_err(|_| ValueError::new("has a database out of range", ZERO))
        }
        _ => Err(ValueError::new(format!("has a {part} that is no database"), ZERO)),
    }
}

const ZERO: &str = "write the number of a database; 0 is the usual one";

/// Percent-decoded, if that gives a text without control characters.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let (byte, after) = match (first, after) {
            (b'%', [high, low, after @ ..]) => (hex(*high)? << 4 | hex(*low)?, after),
            (b'%', _) => return None,
            _ => (*first, after),
        };
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8(bytes).ok().filter(|it| !it.chars().any(char::is_control))
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|it| u8::try_from(it).ok())
}

#[cfg(test)]
mod tests;
