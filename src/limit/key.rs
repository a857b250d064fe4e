//! What a limit counts by: one source, or several combined.

use std::fmt;
use std::net::IpAddr;

use http::{HeaderMap, HeaderName, header};
use smallvec::SmallVec;

/// The sources of a key, in the order written. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key(pub Vec<Source>);

/// One part of a key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Source {
    /// The caller's address; IPv6 by prefix.
    Ip,
    /// The name of the route that matched.
    Route,
    /// The same for every request.
    Global,
    Header(HeaderName),
    /// A parameter of the query, percent-decoded.
    Query(String),
    Cookie(String),
}

/// What a limit does when a part of its key is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Count by address instead.
    Ip,
    /// Do not apply the limit.
    Skip,
    /// Refuse the request.
    Deny,
    /// One bucket for all requests without the key.
    Shared,
}

/// Where the parts of a key are looked up.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Already cut to the prefix that counts.
    pub ip: IpAddr,
    pub route: &'a str,
    pub headers: &'a HeaderMap,
    /// The host in one spelling. Only needed where a limit counts by it.
    pub host: &'a str,
    pub query: Option<&'a str>,
}

/// Why a request has no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The limit does not apply.
    #[error("skipped")]
    Skipped,
    #[error("the request carries no {0}")]
    Missing(Source),
    /// Gateway and upstream might each believe another one.
    #[error("the request carries more than one {0}")]
    Ambiguous(Source),
}

/// Tells parts apart that hold the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Part {
    Ip = 1,
    Route = 2,
    Header = 3,
    Query = 4,
    Cookie = 5,
    Absent = 6,
}

impl Key {
    /// Hands the parts of the subject's key to `sink`, in order. Nothing is allocated unless a
    /// value has to be decoded.
    ///
    /// # Errors
    /// If a part is absent and `missing` does not name a stand-in, or if it is ambiguous.
    pub fn parts(
        &self,
        subject: &Subject<'_>,
        missing: Missing,
        mut sink: impl FnMut(Part, &[u8]),
    ) -> Result<(), KeyError> {
        for source in &self.0 {
            if source.feed(subject, &mut sink)? {
                continue;
            }
            match missing {
                Missing::Ip => feed_ip(subject.ip, &mut sink),
                Missing::Shared => sink(Part::Absent, b""),
                Missing::Skip => return Err(KeyError::Skipped),
                Missing::Deny => return Err(KeyError::Missing(source.clone())),
            }
        }
        Ok(())
    }
}

impl Source {
    /// Whether the subject has this part.
    fn feed(
        &self,
        subject: &Subject<'_>,
        sink: &mut impl FnMut(Part, &[u8]),
    ) -> Result<bool, KeyError> {
        match self {
            Source::Ip => feed_ip(subject.ip, sink),
            Source::Route => sink(Part::Route, subject.route.as_bytes()),
            Source::Global => {}
            // One host has many spellings, and a route takes them all.
            Source::Header(name) if *name == header::HOST => {
                if subject.host.is_empty() {
                    return Ok(false);
                }
                sink(Part::Header, subject.host.as_bytes());
            }
            Source::Header(name) => {
                let mut values = subject.headers.get_all(name).iter();
                let (first, second) = (values.next(), values.next());
                if second.is_some() {
                    return Err(KeyError::Ambiguous(self.clone()));
                }
                let value = first.map_or(&b""[..], |value| value.as_bytes());
                if value.is_empty() {
                    return Ok(false);
                }
                sink(Part::Header, value);
            }
            Source::Query(name) => {
                let Some(value) = self.only(query_values(subject.query, name))? else {
                    return Ok(false);
                };
                sink(Part::Query, &value);
            }
            Source::Cookie(name) => {
                let lines = subject.headers.get_all(header::COOKIE).iter();
                let crumbs = lines.flat_map(|line| line.as_bytes().split(|&byte| byte == b';'));
                let values = crumbs.filter_map(|crumb| {
                    let rest = crumb.trim_ascii().strip_prefix(name.as_bytes())?;
                    let value = rest.trim_ascii_start().strip_prefix(b"=")?.trim_ascii();
                    // RFC 6265 section 4.1.1: quotes around a value are no part of it.
                    let quoted = value.strip_prefix(b"\"").and_then(|v| v.strip_suffix(b"\""));
                    Some(quoted.unwrap_or(value))
                });
                let Some(value) = self.only(values)? else { return Ok(false) };
                sink(Part::Cookie, value);
            }
        }
        Ok(true)
    }

    /// The one value there is. The same value said twice is still one.
    fn only<T: AsRef<[u8]>>(
        &self,
        mut values: impl Iterator<Item = T>,
    ) -> Result<Option<T>, KeyError> {
        let Some(first) = values.next() else { return Ok(None) };
        if values.any(|other| other.as_ref() != first.as_ref()) {
            return Err(KeyError::Ambiguous(self.clone()));
        }
        Ok(Some(first).filter(|value| !value.as_ref().is_empty()))
    }
}

fn feed_ip(ip: IpAddr, sink: &mut impl FnMut(Part, &[u8])) {
    match ip {
        IpAddr::V4(ip) => sink(Part::Ip, &ip.octets()),
        IpAddr::V6(ip) => sink(Part::Ip, &ip.octets()),
    }
}

/// The values of a parameter, decoded.
pub(super) fn query_values<'a>(
    query: Option<&'a str>,
    name: &'a str,
) -> impl Iterator<Item = SmallVec<[u8; 64]>> + 'a {
    let pairs = query.unwrap_or_default().split('&');
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let values = pairs.filter(|pair| *unescape(pair.0) == *name.as_bytes());
    values.map(|pair| unescape(pair.1))
}

/// Undoes percent-escapes and plus signs, so that every spelling of a value is one key. What is
/// no escape stays as it is.
fn unescape(text: &str) -> SmallVec<[u8; 64]> {
    let bytes = text.as_bytes();
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
            (b'+', ..) => plain.push(b' '),
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
            Source::Route => f.write_str("route"),
            Source::Global => f.write_str("global"),
            Source::Header(name) => write!(f, "header:{name}"),
            Source::Query(name) => write!(f, "query:{name}"),
            Source::Cookie(name) => write!(f, "cookie:{name}"),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, source) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { " + " };
            write!(f, "{separator}{source}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    type Parts = Result<Vec<(u8, Vec<u8>)>, KeyError>;

    fn parts(source: Source, missing: Missing, query: &str, headers: &[(&str, &str)]) -> Parts {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        let ip = IpAddr::from([1, 2, 3, 4]);
        let subject = Subject { ip, route: "r", headers: &map, host: "a", query: Some(query) };
        let mut parts = Vec::new();
        Key(vec![source])
            .parts(&subject, missing, |part, bytes| parts.push((part as u8, bytes.to_vec())))
            .map(|()| parts)
    }

    fn header() -> Source {
        Source::Header(HeaderName::from_static("x-key"))
    }

    #[test]
    fn an_absent_part_follows_missing() {
        let got = |missing| parts(header(), missing, "", &[("x-key", "")]);
        assert_eq!(got(Missing::Ip), Ok(vec![(Part::Ip as u8, vec![1, 2, 3, 4])]));
        assert_eq!(got(Missing::Shared), Ok(vec![(Part::Absent as u8, vec![])]));
        assert_eq!(got(Missing::Skip), Err(KeyError::Skipped));
        assert_eq!(got(Missing::Deny), Err(KeyError::Missing(header())));
    }

    #[test]
    fn a_doubled_header_is_ambiguous() {
        let got = parts(header(), Missing::Ip, "", &[("x-key", "a"), ("x-key", "a")]);
        assert_eq!(got, Err(KeyError::Ambiguous(header())));
    }

    #[test]
    fn every_spelling_of_a_query_value_is_one_key() {
        let source = Source::Query("k".into());
        let one = |value: &str| Ok(vec![(Part::Query as u8, value.as_bytes().to_vec())]);
        for query in ["k=ab", "x=1&k=ab&y", "k=%61b", "%6b=a%62", "k=ab&k=%61b"] {
            assert_eq!(parts(source.clone(), Missing::Skip, query, &[]), one("ab"), "{query}");
        }
        assert_eq!(parts(source.clone(), Missing::Skip, "k=a+b", &[]), one("a b"));
        assert_eq!(parts(source.clone(), Missing::Skip, "k=%zz%", &[]), one("%zz%"));
        let ambiguous = parts(source.clone(), Missing::Skip, "k=a&k=b", &[]);
        assert_eq!(ambiguous, Err(KeyError::Ambiguous(source.clone())));
        assert_eq!(parts(source, Missing::Skip, "kk=a&k=", &[]), Err(KeyError::Skipped));
    }

    #[test]
    fn a_cookie_is_found_among_others() {
        let source = Source::Cookie("sid".into());
        for line in
            ["sid=x", "a=b; sid=x; c=d", "a=b;sid=x", "xsid=y; sid=x", "sid = x", "sid=\"x\""]
        {
            let got = parts(source.clone(), Missing::Skip, "", &[("cookie", line)]);
            assert_eq!(got, Ok(vec![(Part::Cookie as u8, b"x".to_vec())]), "{line}");
        }
        let twice = parts(source.clone(), Missing::Skip, "", &[("cookie", "sid=x; sid=y")]);
        assert_eq!(twice, Err(KeyError::Ambiguous(source)));
    }
}
