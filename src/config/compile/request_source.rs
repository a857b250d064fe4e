//! Where something about a request is found: `ip`, `user`, `header:NAME`, `jwt:CLAIM` and so on.
//!
//! Limits count by sources, identities are made of them, and conditions ask for them; not all of
//! them make sense everywhere.

use http::HeaderName;

use super::value_error::ValueError;
use crate::config::suggest::{nearest, one_of, quote, shown};
use crate::limit::Source;

const LONGEST_NAME: usize = 256;

/// What is asked for a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SourceUse {
    /// The `key` of a limit.
    Key,
    /// A user, client, tenant or plan.
    Identity,
    /// A condition of a limit, which may also ask for the method.
    Condition,
    /// What `balance` hashes requests by.
    Hash,
}

impl SourceUse {
    fn words(self) -> Vec<&'static str> {
        match self {
            SourceUse::Key => [&["ip", "route", "global"], NAMED].concat(),
            SourceUse::Identity => {
                vec![
                    "jwt:CLAIM",
                    "header:NAME",
                    "query:NAME",
                    "cookie:NAME",
                    "basic:user",
                    "form:NAME",
                    "tls:subject",
                    "tls:san",
                ]
            }
            SourceUse::Condition => [&["method", "route"], NAMED].concat(),
            SourceUse::Hash => [&["ip", "route"], NAMED].concat(),
        }
    }

    /// What stands before a source where it is written.
    fn prefix(self) -> &'static str {
        if self == SourceUse::Hash { "hash:" } else { "" }
    }
}

/// What both limits and conditions can ask for.
const NAMED: &[&str] = &[
    "user",
    "client",
    "tenant",
    "plan",
    "header:NAME",
    "query:NAME",
    "cookie:NAME",
    "jwt:CLAIM",
    "basic:user",
    "form:NAME",
    "tls:subject",
    "tls:san",
];

/// What user, client, tenant and plan are found by. One that is written and faulty counts: that is
/// noted where it is written.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KnownIdentities {
    pub(super) user: bool,
    pub(super) client: bool,
    pub(super) tenant: bool,
    pub(super) plan: bool,
    /// Whether the record of a client may say how far it is trusted.
    pub(super) trust: bool,
    /// Whether tokens are verified.
    pub(super) jwt: bool,
    /// Whether some listener asks clients for certificates.
    pub(super) certificates: bool,
}

impl KnownIdentities {
    /// Whether anything is ever found there.
    pub(super) fn check(self, source: &Source) -> Result<(), ValueError> {
        let (there, name, example) = match source {
            Source::Jwt(_) => return self.check_token(source),
            Source::TlsSubject | Source::TlsNames => return self.check_certificates(source),
            Source::User => (self.user, "user", "user = \"jwt:sub\""),
            Source::Client => (self.client, "client", "client = \"header:x-api-key\""),
            Source::Tenant => (self.tenant, "tenant", "tenant = \"jwt:tenant\""),
            Source::Plan => (self.plan, "plan", "plan = \"jwt:plan\""),
            _ => return Ok(()),
        };
        if there {
            return Ok(());
        }
        Err(ValueError::new(
            format!("cannot be `{name}`: `[identity]` does not say where it is found"),
            format!("add a line such as `{example}` there"),
        ))
    }

    fn check_certificates(self, source: &Source) -> Result<(), ValueError> {
        if self.certificates {
            return Ok(());
        }
        Err(ValueError::new(
            format!("cannot be `{source}`: no listener asks clients for certificates"),
            "add `client_ca` to the `tls` of a listener",
        ))
    }

    fn check_token(self, source: &Source) -> Result<(), ValueError> {
        if self.jwt {
            return Ok(());
        }
        Err(ValueError::new(
            format!(
                "cannot be {}: nothing says which tokens to believe",
                quote(&source.to_string())
            ),
            "add a table `[identity.jwt]` with one of `secret_env`, `secret_file`, `pem_file`, \
             `jwks_file` and `jwks_url`",
        ))
    }
}

pub(super) fn parse(text: &str, wanted: SourceUse) -> Result<Source, ValueError> {
    let (kind, name) = match text.split_once(':') {
        Some((kind, name)) => (kind, Some(name)),
        None => (text, None),
    };
    // Its prefix has no colon before it.
    if let Some(bits) = text.strip_prefix("ip/").filter(|_| wanted.words().contains(&"ip")) {
        return prefix(bits);
    }
    if !wanted.words().iter().any(|word| word.split(':').next() == Some(kind)) {
        return Err(unknown(kind, text, wanted));
    }
    let before = wanted.prefix();
    match (kind, name) {
        ("ip", None) => Ok(Source::Ip),
        ("route", None) => Ok(Source::Route),
        ("global", None) => Ok(Source::Global),
        ("user", None) => Ok(Source::User),
        ("client", None) => Ok(Source::Client),
        ("tenant", None) => Ok(Source::Tenant),
        ("plan", None) => Ok(Source::Plan),
        ("basic", Some("user")) => Ok(Source::BasicUser),
        ("basic", _) => {
            Err(ValueError::new(format!("cannot be {}", quote(text)), "write `\"basic:user\"`"))
        }
        ("tls", Some("subject")) => Ok(Source::TlsSubject),
        ("tls", Some("san")) => Ok(Source::TlsNames),
        ("tls", _) => Err(ValueError::new(
            format!("cannot be {}", quote(text)),
            "write `\"tls:subject\"` or `\"tls:san\"`",
        )),
        ("header" | "query" | "cookie" | "jwt" | "form", None) => Err(ValueError::new(
            format!("does not say which {}", called(kind)),
            format!("write `\"{before}{}\"`, such as `\"{before}{}\"`", form(kind), example(kind)),
        )),
        ("header" | "query" | "cookie" | "jwt" | "form", Some(name)) => match named(kind, name) {
            Some(Source::Header(name)) => caller_header(name, wanted),
            Some(source) => Ok(source),
            None => Err(ValueError::new(
                format!("has no valid {} name: {}", called(kind), quote(name)),
                format!("write one such as `\"{before}{}\"`", example(kind)),
            )),
        },
        _ => Err(unknown(kind, text, wanted)),
    }
}

/// The number of leading bits that count of an IPv6 address.
fn prefix(bits: &str) -> Result<Source, ValueError> {
    let digits = bits.bytes().all(|byte| byte.is_ascii_digit()) && !bits.starts_with('0');
    let number = bits.parse().ok().filter(|bits| digits && (1..=128).contains(bits));
    number.map(Source::IpPrefix).ok_or_else(|| {
        ValueError::new(
            format!("has no valid prefix of IPv6: {}", quote(bits)),
            "write a number from 1 to 128, such as `\"ip/48\"`",
        )
    })
}

/// The source that a name of that kind is, if it can be one.
pub(super) fn named(kind: &str, name: &str) -> Option<Source> {
    if name.is_empty() || name.len() > LONGEST_NAME {
        return None;
    }
    let plain = || (!name.chars().any(char::is_control)).then(|| name.to_owned());
    match kind {
        "header" => HeaderName::from_bytes(name.as_bytes()).ok().map(Source::Header),
        // RFC 6265 section 4.1.1: a cookie's name is a token, as a header's is.
        "cookie" => {
            HeaderName::from_bytes(name.as_bytes()).is_ok().then(|| Source::Cookie(name.to_owned()))
        }
        "jwt" => plain().map(Source::Jwt),
        "form" => plain().map(Source::Form),
        _ => plain().map(Source::Query),
    }
}

/// A header, if it tells callers apart at all. Those of one connection or one message's framing do
/// not, and forwarding headers are whatever a caller writes.
fn caller_header(name: HeaderName, wanted: SourceUse) -> Result<Source, ValueError> {
    match (name.as_str(), wanted) {
        (
            text @ ("forwarded" | "x-forwarded-for"),
            SourceUse::Key | SourceUse::Identity | SourceUse::Hash,
        ) => Err(ValueError::new(
            format!("cannot be `header:{text}`: any caller may write it"),
            match wanted {
                SourceUse::Hash => {
                    "write `\"hash:ip\"`, and list the proxies in `identity.trusted_proxies`"
                }
                SourceUse::Key => {
                    "write `\"ip\"`, and list the proxies in `identity.trusted_proxies`"
                }
                _ => "count by `\"ip\"` in a limit, and list the proxies in `trusted_proxies`",
            },
        )),
        (text, _) if is_connection_header(text) => Err(ValueError::new(
            format!(
                "cannot be `header:{}`: it belongs to a connection, not to a caller",
                shown(text)
            ),
            match wanted {
                SourceUse::Hash => "hash by one that tells callers apart",
                SourceUse::Condition => {
                    "ask for a header that callers send, such as `header:x-beta`"
                }
                _ => "count by a header that tells callers apart, such as `\"header:x-api-key\"`",
            },
        )),
        _ => Ok(Source::Header(name)),
    }
}

/// Whether a header speaks of one connection or frames one message.
pub(super) fn is_connection_header(name: &str) -> bool {
    const NAMES: [&str; 7] = [
        "connection",
        "content-length",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    NAMES.contains(&name) || name.starts_with("proxy-")
}

/// As messages call what has a name.
fn called(kind: &str) -> &str {
    match kind {
        "jwt" => "claim",
        "form" => "field",
        _ => kind,
    }
}

fn form(kind: &str) -> String {
    let name = if kind == "jwt" { "CLAIM" } else { "NAME" };
    format!("{kind}:{name}")
}

fn example(kind: &str) -> &'static str {
    match kind {
        "header" => "header:x-api-key",
        "query" => "query:api_key",
        "jwt" => "jwt:sub",
        "form" => "form:client_id",
        _ => "cookie:session",
    }
}

fn unknown(kind: &str, text: &str, wanted: SourceUse) -> ValueError {
    let (words, before) = (wanted.words(), wanted.prefix());
    let kinds = words.iter().map(|it| it.split_once(':').map_or(*it, |(kind, _)| kind));
    let meant = nearest(kind, kinds)
        .and_then(|meant| words.iter().find(|source| source.split(':').next() == Some(meant)));
    // A header's name alone is the likeliest mistake of all.
    let help = match meant {
        Some(meant) => format!("did you mean `{before}{meant}`?"),
        None if text.contains('-') && HeaderName::from_bytes(text.as_bytes()).is_ok() => {
            format!("did you mean `{before}header:{}`?", shown(&text.to_ascii_lowercase()))
        }
        None => {
            let words: Vec<String> = words.iter().map(|it| format!("{before}{it}")).collect();
            format!("write {}", one_of(words.iter().map(String::as_str)))
        }
    };
    ValueError::new(format!("cannot be {}", quote(&format!("{before}{text}"))), help)
}
