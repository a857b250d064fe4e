//! By which names the admin listener answers.
//!
//! A page in an operator's browser can have its own name resolve to a loopback address and so read
//! whatever answers there (DNS rebinding). It cannot choose the `Host` that the browser sends, nor
//! the `Origin`: requests for other names are not for this listener (RFC 9110, 7.4: 421).

use std::net::{IpAddr, SocketAddr};

use http::request::Parts;
use http::uri::Authority;
use http::{HeaderValue, Method, StatusCode, Version, header};

use super::AdminResponse;
use super::api_error::{ApiError, error_response};
use crate::config::settings::Admin;

#[derive(Debug, Clone, Copy)]
pub(super) struct HostCheck<'a> {
    pub(super) admin: &'a Admin,
}

/// Why a request is not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HostError {
    /// No `Host`, two of them, or one that cannot be read.
    Unreadable,
    /// It is for another name.
    Misdirected,
    /// A page from elsewhere asks for a change.
    ForeignOrigin,
    /// Two pages ask for a change.
    TwoOrigins,
}

impl HostError {
    pub(super) fn answer(self) -> AdminResponse {
        let (status, error, why) = match self {
            HostError::Unreadable => {
                (StatusCode::BAD_REQUEST, "bad_request", "Send one Host that names this listener.")
            }
            HostError::Misdirected => (
                StatusCode::MISDIRECTED_REQUEST,
                "denied",
                "This listener answers to its address and to localhost. Names that lead here are \
                 listed in admin.hosts.",
            ),
            HostError::ForeignOrigin => (
                StatusCode::FORBIDDEN,
                "denied",
                "Changes are not taken from pages of another origin.",
            ),
            HostError::TwoOrigins => {
                (StatusCode::BAD_REQUEST, "bad_request", "Send one Origin at most.")
            }
        };
        error_response(&ApiError::new(status, error, why))
    }
}

impl HostCheck<'_> {
    /// Whether a request that came in at `local` is for this listener.
    pub(super) fn admit(&self, parts: &Parts, local: Option<SocketAddr>) -> Result<(), HostError> {
        let host = host(parts)?;
        // Where reading takes a token, a page without it reads nothing, whatever it is called;
        // and orchestrators ask by names that nobody has listed.
        if (self.admin.listen.ip().is_loopback() || !self.admin.hosts.is_empty())
            && let Some(host) = &host
            && !self.knows(host.host(), local)
        {
            return Err(HostError::Misdirected);
        }
        if is_reading(&parts.method) {
            return Ok(());
        }
        let mut origins = parts.headers.get_all(header::ORIGIN).iter();
        match (origins.next(), origins.next()) {
            (_, Some(_)) => Err(HostError::TwoOrigins),
            (Some(origin), None) if !is_same(origin, host.as_ref()) => {
                Err(HostError::ForeignOrigin)
            }
            _ => Ok(()),
        }
    }

    fn knows(&self, name: &str, local: Option<SocketAddr>) -> bool {
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        if let Ok(ip) = bare.parse::<IpAddr>() {
            let ip = ip.to_canonical();
            return ip.is_loopback()
                || ip == self.admin.listen.ip().to_canonical()
                || local.is_some_and(|local| ip == local.ip().to_canonical());
        }
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        // RFC 6761, 6.3: names below it are loopback, too.
        name == "localhost" || name.ends_with(".localhost") || self.admin.hosts.contains(&name)
    }
}

/// The authority that is asked for. `None` for old clients that have no `Host`, as no browser is.
fn host(parts: &Parts) -> Result<Option<Authority>, HostError> {
    let mut hosts = parts.headers.get_all(header::HOST).iter();
    let first = hosts.next();
    if hosts.next().is_some() {
        return Err(HostError::Unreadable);
    }
    if let Some(target) = parts.uri.authority() {
        return Ok(Some(target.clone()));
    }
    match first {
        Some(host) => {
            Authority::try_from(host.as_bytes()).map(Some).map_err(|_| HostError::Unreadable)
        }
        None if parts.version < Version::HTTP_11 => Ok(None),
        None => Err(HostError::Unreadable),
    }
}

/// Whether a request changes nothing.
pub(super) fn is_reading(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Whether an origin is the listener itself, by the name that it is asked by.
fn is_same(origin: &HeaderValue, host: Option<&Authority>) -> bool {
    let origin = origin.to_str().ok().and_then(|it| it.strip_prefix("http://"));
    let origin = origin.and_then(|it| it.parse::<Authority>().ok());
    matches!((origin, host), (Some(origin), Some(host))
        if origin.host().eq_ignore_ascii_case(host.host())
            && origin.port_u16().unwrap_or(80) == host.port_u16().unwrap_or(80))
}

#[cfg(test)]
mod tests;
