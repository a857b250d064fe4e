//! What a limit counts by: one source, or several combined.

use std::fmt;
use std::net::IpAddr;

use super::credentials::CredentialsError;
use super::source::{KeyInput, Source, UnreadForm, cut};

/// The sources of a key, in the order written. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key(pub Vec<Source>);

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

/// Why a request has no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The limit does not apply.
    #[error("skipped")]
    Skipped,
    #[error("the request carries no {0}")]
    Missing(Source),
    #[error("the request's tenant is not known")]
    UnknownTenant,
    /// It brings a key, which is none of those that are known.
    #[error("the request's API key is not known")]
    UnknownKey,
    /// Gateway and upstream might each believe another one.
    #[error("the request carries more than one {0}")]
    Ambiguous(Source),
    /// Likewise: they might read another value in it.
    #[error("the request's {0} can be read in more than one way")]
    Misspelled(Source),
    #[error("the request's cost, {0}, is not in plain digits")]
    Cost(Source),
    #[error("the request's body is too long to find all of {0} in it")]
    Unseen(Source),
    /// An upstream might.
    #[error("{0} is not looked for in such a body: {1}")]
    Unread(Source, UnreadForm),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

/// Tells parts apart that hold the same bytes. Buckets are named by these numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Part {
    Ip = 1,
    Route = 2,
    Header = 3,
    Query = 4,
    Cookie = 5,
    Absent = 6,
    User = 7,
    Client = 8,
    Tenant = 9,
    Plan = 10,
    Jwt = 11,
    Basic = 12,
    Form = 13,
}

impl Key {
    /// Hands the parts of the subject's key to `sink`, in order. Nothing is allocated unless a
    /// value has to be decoded.
    ///
    /// # Errors
    /// If a part is absent and `missing` does not name a fallback value, or if it is ambiguous.
    pub fn parts(
        &self,
        subject: &KeyInput<'_>,
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
                Missing::Deny if subject.who.unknown_key && source.is_of_client() => {
                    return Err(KeyError::UnknownKey);
                }
                Missing::Deny => return Err(KeyError::Missing(source.clone())),
            }
        }
        Ok(())
    }
}

impl Source {
    /// Whether a client's key may say it.
    fn is_of_client(&self) -> bool {
        matches!(self, Source::Client | Source::Tenant | Source::Plan)
    }

    /// What its part of a key is called.
    pub(super) fn part(&self) -> Option<Part> {
        Some(match self {
            Source::Ip | Source::IpPrefix(_) => Part::Ip,
            Source::Route => Part::Route,
            Source::Global => return None,
            Source::User => Part::User,
            Source::Client => Part::Client,
            Source::Tenant => Part::Tenant,
            Source::Plan => Part::Plan,
            Source::Header(_) => Part::Header,
            Source::Query(_) => Part::Query,
            Source::Cookie(_) => Part::Cookie,
            Source::Jwt(_) => Part::Jwt,
            Source::BasicUser => Part::Basic,
            Source::Form(_) => Part::Form,
        })
    }

    /// Whether the subject has this part.
    fn feed(
        &self,
        subject: &KeyInput<'_>,
        sink: &mut impl FnMut(Part, &[u8]),
    ) -> Result<bool, KeyError> {
        match self {
            Source::Ip => feed_ip(subject.ip, sink),
            Source::IpPrefix(bits) => feed_ip(cut(subject.whole_ip, *bits), sink),
            Source::Global => {}
            _ => return self.feed_text(subject, sink),
        }
        Ok(true)
    }

    fn feed_text(
        &self,
        subject: &KeyInput<'_>,
        sink: &mut impl FnMut(Part, &[u8]),
    ) -> Result<bool, KeyError> {
        let value = self.value(subject)?;
        if let (Some(part), Some(value)) = (self.part(), &value) {
            sink(part, value);
        }
        Ok(value.is_some())
    }
}

pub(super) fn feed_ip(ip: IpAddr, sink: &mut impl FnMut(Part, &[u8])) {
    match ip {
        IpAddr::V4(ip) => sink(Part::Ip, &ip.octets()),
        IpAddr::V6(ip) => sink(Part::Ip, &ip.octets()),
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
    use super::super::source::{Form, Identities, RequestFacts};
    use super::*;
    use http::{HeaderMap, HeaderName, HeaderValue};

    type Parts = Result<Vec<(u8, Vec<u8>)>, KeyError>;

    fn parts(source: Source, missing: Missing, query: &str, headers: &[(&str, &str)]) -> Parts {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        let ip = IpAddr::from([1, 2, 3, 4]);
        let (headers, query, who) = (&map, Some(query), &Identities::default());
        let facts = RequestFacts { headers, host: "a", query, form: Form::None, claims: None };
        let subject = KeyInput { ip, whole_ip: ip, route: "r", facts, who };
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
    fn a_prefix_cuts_the_whole_address() {
        let whole_ip: IpAddr = "2001:db8:1:2::3".parse().unwrap();
        let (ip, headers) = (cut(whole_ip, 64), &HeaderMap::new());
        let facts = RequestFacts { headers, host: "", query: None, form: Form::None, claims: None };
        let subject = KeyInput { ip, whole_ip, route: "r", facts, who: &Identities::default() };
        let fed = |source| {
            let mut fed = Vec::new();
            let sink = |_, bytes: &[u8]| fed = bytes.to_vec();
            Key(vec![source]).parts(&subject, Missing::Deny, sink).map(|()| fed[..10].to_vec())
        };
        let octets = |end| Ok([0x20, 1, 0x0d, 0xb8, 0, 1, 0, end, 0, 0].to_vec());
        assert_eq!(fed(Source::Ip), octets(2));
        assert_eq!(fed(Source::IpPrefix(48)), octets(0));
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
        for query in ["k=ab", "x=1&k=ab&y", "k=%61b", "%6b=a%62", "x;y&k=ab"] {
            assert_eq!(parts(source.clone(), Missing::Skip, query, &[]), one("ab"), "{query}");
        }
        assert_eq!(parts(source.clone(), Missing::Skip, "k=a+b", &[]), one("a b"));
        assert_eq!(parts(source.clone(), Missing::Skip, "k=%zz%", &[]), one("%zz%"));
        for query in ["k=a&k=b", "k=ab&k=%61b", "k=a&k=", "k=a;b", "x;k=a", "x=1;%6b=a&y"] {
            let ambiguous = parts(source.clone(), Missing::Skip, query, &[]);
            assert_eq!(ambiguous, Err(KeyError::Ambiguous(source.clone())), "{query}");
        }
        assert_eq!(parts(source.clone(), Missing::Skip, "k=a%3bb", &[]), one("a;b"));
        assert_eq!(parts(source, Missing::Skip, "kk=a&k=", &[]), Err(KeyError::Skipped));
    }

    #[test]
    fn a_cookie_is_found_among_others() {
        let source = Source::Cookie("sid".into());
        for line in [
            "sid=x",
            "a=b; sid=x; c=d",
            "a=b;sid=x",
            "xsid=y; sid=x",
            "sid = x",
            "sid=\"x\"",
            "sid=%78",
            "sid=\"%78\"",
        ] {
            let got = parts(source.clone(), Missing::Skip, "", &[("cookie", line)]);
            assert_eq!(got, Ok(vec![(Part::Cookie as u8, b"x".to_vec())]), "{line}");
        }
        for line in ["sid=x; sid=y", "sid=x; a=b; sid=x"] {
            let twice = parts(source.clone(), Missing::Skip, "", &[("cookie", line)]);
            assert_eq!(twice, Err(KeyError::Ambiguous(source.clone())), "{line}");
        }
        for line in [r#"sid="\170""#, r"sid=\x", "sid=\"x", "sid=x\"", "sid=x y", "sid=x,y"] {
            let misspelled = parts(source.clone(), Missing::Skip, "", &[("cookie", line)]);
            assert_eq!(misspelled, Err(KeyError::Misspelled(source.clone())), "{line}");
        }
        for line in ["sid=", "sid=\"\"", "sid", "a=\"\\1\""] {
            let none = parts(source.clone(), Missing::Skip, "", &[("cookie", line)]);
            assert_eq!(none, Err(KeyError::Skipped), "{line}");
        }
    }
}
