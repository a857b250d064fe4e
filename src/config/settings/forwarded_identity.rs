//! `forward` of `[identity]`: what upstreams are told of the caller.

use http::HeaderName;

/// By which headers, if by any.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ForwardedIdentity {
    /// In a fixed order, each name at most once.
    pub headers: Vec<(IdentityName, HeaderName)>,
}

/// What there is to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IdentityName {
    User,
    Client,
    Tenant,
    Plan,
    /// The address that counts as the caller's.
    Ip,
}

impl IdentityName {
    /// As a configuration has it.
    pub fn word(self) -> &'static str {
        match self {
            IdentityName::User => "user",
            IdentityName::Client => "client",
            IdentityName::Tenant => "tenant",
            IdentityName::Plan => "plan",
            IdentityName::Ip => "ip",
        }
    }
}

impl ForwardedIdentity {
    pub fn is_empty(&self) -> bool {
        self.headers.is_empty()
    }
}
