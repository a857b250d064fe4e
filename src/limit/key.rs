//! What a limit counts by: one source, or several combined.

use http::HeaderName;

/// The sources of a key, in the order written. One part each; `global` alone has none.
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
