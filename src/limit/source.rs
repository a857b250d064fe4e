//! Where something about a request is found: what limits count by, what identities are made of, and
//! what conditions ask for.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use http::{HeaderMap, HeaderName, header};
use smallvec::SmallVec;

use super::credentials;
use super::key::KeyError;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Source {
    /// The caller's address; IPv6 by the prefix that `[identity]` names.
    Ip,
    /// The same, but of IPv6 so many leading bits: 1 to 128.
    IpPrefix(u8),
    /// The name of the route that matched.
    Route,
    /// The same for every request.
    Global,
    /// Who the caller is, as `[identity]` finds it.
    User,
    Client,
    Tenant,
    Plan,
    Header(HeaderName),
    /// A parameter of the query, percent-decoded.
    Query(String),
    /// A cookie, percent-decoded.
    Cookie(String),
    /// A claim of a token that was verified.
    Jwt(String),
    /// The user of `Authorization: Basic`.
    BasicUser,
    /// A field of a form in the body, percent-decoded.
    Form(String),
    /// The subject of the client's certificate.
    TlsSubject,
    /// The other names of the client's certificate.
    TlsNames,
}

/// What a request says of itself.
#[derive(Debug, Clone, Copy)]
pub struct RequestFacts<'a> {
    pub headers: &'a HeaderMap,
    /// The host in one spelling. Only needed where a limit counts by it.
    pub host: &'a str,
    pub query: Option<&'a str>,
    pub form: Form<'a>,
    /// The claims of a token that was verified.
    pub claims: Option<&'a dyn Claims>,
    /// Of the connection that it came by.
    pub certificate: Option<&'a ClientCertificate>,
}

/// What the certificate of a client says of it. Neither text can be that of another certificate's
/// holder.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientCertificate {
    /// The subject as RFC 4514 writes it: `CN=billing,O=Example`. Empty if it has none.
    pub subject: String,
    /// All other names, each with its kind, sorted: `DNS:billing.internal,URI:spiffe://example/a`. Empty
    /// if there are none.
    pub names: String,
}

/// What is known of a form in the body, where somebody needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form<'a> {
    /// There is none.
    None,
    Whole(&'a [u8]),
    /// One that goes on beyond what was read: what follows might name somebody else, and the
    /// upstream believe that.
    Long,
    /// Not looked at, though some upstream might find one there.
    Unread(UnreadForm),
}

/// Why a body was not looked at that some upstream might take for a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnreadForm {
    #[error("it has a Content-Encoding")]
    Encoded,
    #[error("send it as application/x-www-form-urlencoded, in UTF-8")]
    Type,
}

/// Claims by their names.
pub trait Claims: fmt::Debug {
    /// A claim that is text, a number or a boolean.
    fn claim(&self, name: &str) -> Option<Cow<'_, str>>;

    /// A claim that is there, whatever it is.
    fn any_claim(&self, name: &str) -> Option<Cow<'_, str>>;
}

/// Something that a request says of itself, if it does.
pub type SourceValue<'a> = Option<Cow<'a, [u8]>>;

/// Who the caller is, as far as that is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Identities<'a> {
    pub user: SourceValue<'a>,
    pub client: SourceValue<'a>,
    pub tenant: SourceValue<'a>,
    pub plan: SourceValue<'a>,
    /// Whether the request has brought a key, and one that no client has.
    pub unknown_key: bool,
}

/// A request and its caller.
#[derive(Debug, Clone, Copy)]
pub struct KeyInput<'a> {
    /// Already cut to the prefix that counts.
    pub ip: IpAddr,
    /// The same address as a whole.
    pub whole_ip: IpAddr,
    pub route: &'a str,
    pub facts: RequestFacts<'a>,
    pub who: &'a Identities<'a>,
}

impl Source {
    /// Whether what it says was verified: by the signature of a token, or by the authority of a
    /// certificate. The rest is what callers claim.
    pub fn is_verified(&self) -> bool {
        matches!(self, Source::Jwt(_) | Source::TlsSubject | Source::TlsNames)
    }

    /// What the subject has here, if it is a text. Nothing is copied unless it has to be decoded.
    ///
    /// # Errors
    /// If it has several, or one that can be read in two ways.
    pub fn value<'a>(&'a self, subject: &KeyInput<'a>) -> Result<SourceValue<'a>, KeyError> {
        let borrowed = |value: &'a SourceValue<'a>| value.as_deref().map(Cow::Borrowed);
        Ok(match self {
            Source::Ip | Source::IpPrefix(_) | Source::Global => None,
            Source::Route => Some(Cow::Borrowed(subject.route.as_bytes())),
            Source::User => borrowed(&subject.who.user),
            Source::Client => borrowed(&subject.who.client),
            Source::Tenant => borrowed(&subject.who.tenant),
            Source::Plan => borrowed(&subject.who.plan),
            _ => return self.value_in(&subject.facts),
        })
    }

    /// The value that the request itself has here. An empty value is none.
    ///
    /// # Errors
    /// If it has several, or one that can be read in two ways: gateway and upstream might each believe
    /// another one.
    pub fn value_in<'a>(&'a self, facts: &RequestFacts<'a>) -> Result<SourceValue<'a>, KeyError> {
        match self {
            // One host has many spellings, and a route takes them all.
            Source::Header(name) if *name == header::HOST => {
                Ok(Some(facts.host).filter(|host| !host.is_empty()).map(borrow_text))
            }
            Source::Header(name) => self.header(facts.headers, name),
            Source::Query(name) => self.parameter(facts.query, name),
            Source::Cookie(name) => self.cookie(facts.headers, name),
            Source::Jwt(name) => {
                let claim = facts.claims.and_then(|claims| claims.claim(name));
                let claim = claim.filter(|claim| !claim.is_empty());
                Ok(claim.map(|claim| match claim {
                    Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
                    Cow::Owned(text) => Cow::Owned(text.into_bytes()),
                }))
            }
            Source::BasicUser => Ok(credentials::basic_user(facts.headers)?.map(Cow::Owned)),
            Source::TlsSubject | Source::TlsNames => {
                let text = facts.certificate.map(|it| match self {
                    Source::TlsSubject => &it.subject,
                    _ => &it.names,
                });
                Ok(text.filter(|text| !text.is_empty()).map(|text| borrow_text(text)))
            }
            Source::Form(name) => match facts.form {
                Form::None => Ok(None),
                Form::Whole(form) => self.parameter(Some(form), name),
                Form::Long => Err(KeyError::Unseen(self.clone())),
                Form::Unread(why) => Err(KeyError::Unread(self.clone(), why)),
            },
            _ => Ok(None),
        }
    }

    fn header<'a>(
        &self,
        headers: &'a HeaderMap,
        name: &HeaderName,
    ) -> Result<SourceValue<'a>, KeyError> {
        let mut values = headers.get_all(name).iter();
        let (first, second) = (values.next(), values.next());
        if second.is_some() {
            return Err(KeyError::Ambiguous(self.clone()));
        }
        let value = first.map(|value| value.as_bytes()).filter(|value| !value.is_empty());
        Ok(value.map(Cow::Borrowed))
    }

    /// The one value of a parameter that a query or a form has.
    fn parameter<'a>(
        &self,
        text: Option<&'a (impl AsRef<[u8]> + ?Sized)>,
        name: &'a str,
    ) -> Result<SourceValue<'a>, KeyError> {
        match parameter(text, name) {
            Parameter::Value(value) if !value.is_empty() => Ok(Some(Cow::Owned(value.to_vec()))),
            Parameter::Absent | Parameter::Value(_) => Ok(None),
            Parameter::Ambiguous => Err(KeyError::Ambiguous(self.clone())),
        }
    }

    /// The one value of a cookie.
    fn cookie<'a>(&self, headers: &'a HeaderMap, name: &str) -> Result<SourceValue<'a>, KeyError> {
        let mut found = None;
        for crumb in crumbs(headers) {
            let (key, value) = split_pair(crumb);
            // Some readers trim more than blanks.
            if trim_to_graphic(key) != name.as_bytes() {
                continue;
            }
            if found.replace(value).is_some() {
                return Err(KeyError::Ambiguous(self.clone()));
            }
            if key.trim_ascii() != name.as_bytes() {
                return Err(KeyError::Misspelled(self.clone()));
            }
        }
        let Some(written) = found else { return Ok(None) };
        cookie_value(written).ok_or_else(|| KeyError::Misspelled(self.clone()))
    }
}

fn borrow_text(text: &str) -> Cow<'_, [u8]> {
    Cow::Borrowed(text.as_bytes())
}

/// The pairs of all `Cookie` lines.
fn crumbs(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let lines = headers.get_all(header::COOKIE).iter();
    lines.flat_map(|line| line.as_bytes().split(|&byte| byte == b';'))
}

/// The value of a cookie, so that every spelling of it is one key, or `None` if readers differ in what
/// it is.
///
/// Quotes around a value are no part of it, and between them are the letters of RFC 6265 section
/// 4.1.1. Of others some readers make something else: they undo backslashes, drop a quote without its
/// partner, end the value at a blank or a comma, or trim what is no ASCII. Percent-escapes are undone,
/// as Express, PHP and Rack do. They cannot be refused, because Express writes its own session cookie
/// with them, and to an upstream that leaves them alone it does no harm that two values count as one.
fn cookie_value(written: &[u8]) -> Option<SourceValue<'_>> {
    let written = written.trim_ascii();
    let quoted = written.strip_prefix(b"\"").and_then(|it| it.strip_suffix(b"\""));
    let value = quoted.unwrap_or(written);
    if !value.iter().all(|byte| byte.is_ascii_graphic() && !b"\",\\".contains(byte)) {
        return None;
    }
    Some(match value {
        b"" => None,
        value if value.contains(&b'%') => Some(Cow::Owned(decoded(value, false).to_vec())),
        value => Some(Cow::Borrowed(value)),
    })
}

fn trim_to_graphic(text: &[u8]) -> &[u8] {
    let Some(first) = text.iter().position(u8::is_ascii_graphic) else { return &[] };
    let last = text.iter().rposition(u8::is_ascii_graphic).unwrap_or(first);
    &text[first..=last]
}

/// The part of an address that counts: of IPv6 so many leading bits, of IPv4 all, since an IPv4
/// address is all that most callers have.
pub fn cut(ip: IpAddr, bits: u8) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(ip) => {
            let mask = u128::MAX << (128 - u32::from(bits.clamp(1, 128)));
            IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & mask))
        }
    }
}

/// What a query or a form says under one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Parameter {
    Absent,
    Value(SmallVec<[u8; 64]>),
    /// Given twice, even with the same value, or in a pair that some readers take for two because
    /// they also split at `;`.
    Ambiguous,
}

/// The value of a parameter, decoded. Bytes that are no text hide nothing that is beside them.
pub(super) fn parameter(text: Option<&(impl AsRef<[u8]> + ?Sized)>, name: &str) -> Parameter {
    let text = text.map(AsRef::as_ref).unwrap_or_default();
    let mut found = Parameter::Absent;
    for pair in text.split(|byte| *byte == b'&') {
        let mut pairs = pair.split(|byte| *byte == b';').map(split_pair);
        let has_name = |(key, _): (&[u8], &[u8])| *unescape(key) == *name.as_bytes();
        if !pairs.clone().any(has_name) {
            continue;
        }
        found = match (found, pairs.next(), pairs.next()) {
            (Parameter::Absent, Some((_, value)), None) => Parameter::Value(unescape(value)),
            _ => return Parameter::Ambiguous,
        };
    }
    found
}

fn split_pair(pair: &[u8]) -> (&[u8], &[u8]) {
    match pair.iter().position(|byte| *byte == b'=') {
        Some(at) => (&pair[..at], &pair[at + 1..]),
        None => (pair, &[]),
    }
}

/// Undoes percent-escapes and plus signs, so that every spelling of a value is one key. What is
/// no escape stays as it is.
fn unescape(text: &[u8]) -> SmallVec<[u8; 64]> {
    decoded(text, true)
}

/// Undoes percent-escapes alone, as in a path.
pub fn unpercent(text: &str) -> SmallVec<[u8; 64]> {
    decoded(text.as_bytes(), false)
}

fn decoded(bytes: &[u8], plus_is_space: bool) -> SmallVec<[u8; 64]> {
    let mut plain = SmallVec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex =
            |offset: usize| bytes.get(at + offset).and_then(|&digit| (digit as char).to_digit(16));
        match (bytes[at], hex(1), hex(2)) {
            (b'%', Some(high), Some(low)) => {
                plain.push((high << 4 | low) as u8);
                at += 3;
                continue;
            }
            (b'+', ..) if plus_is_space => plain.push(b' '),
            (byte, ..) => plain.push(byte),
        }
        at += 1;
    }
    plain
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Ip => f.write_str("ip"),
            Source::IpPrefix(bits) => write!(f, "ip/{bits}"),
            Source::Route => f.write_str("route"),
            Source::Global => f.write_str("global"),
            Source::User => f.write_str("user"),
            Source::Client => f.write_str("client"),
            Source::Tenant => f.write_str("tenant"),
            Source::Plan => f.write_str("plan"),
            Source::Header(name) => write!(f, "header:{name}"),
            Source::Query(name) => write!(f, "query:{name}"),
            Source::Cookie(name) => write!(f, "cookie:{name}"),
            Source::Jwt(name) => write!(f, "jwt:{name}"),
            Source::BasicUser => f.write_str("basic:user"),
            Source::Form(name) => write!(f, "form:{name}"),
            Source::TlsSubject => f.write_str("tls:subject"),
            Source::TlsNames => f.write_str("tls:san"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_cuts_ipv6_and_leaves_ipv4_alone() {
        let cut = |ip: &str, bits| cut(ip.parse().unwrap(), bits).to_string();
        assert_eq!(cut("2001:db8:1:2::3", 48), "2001:db8:1::");
        assert_eq!(cut("2001:db8:1:2::3", 128), "2001:db8:1:2::3");
        assert_eq!(cut("ffff::", 1), "8000::");
        assert_eq!(cut("1.2.3.4", 8), "1.2.3.4");
    }
}
