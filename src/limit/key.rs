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
    TlsSubject = 14,
    TlsNames = 15,
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
            Source::TlsSubject => Part::TlsSubject,
            Source::TlsNames => Part::TlsNames,
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
mod tests;
