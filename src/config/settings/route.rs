//! `[[routes]]`: which requests, what is asked of them, and what becomes of them.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, StatusCode};

use crate::limit::{Condition, Cost, Source, What};
use crate::route::PathTemplate;

/// `[[routes]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    pub name: String,
    pub host: HostPattern,
    pub path: PathPattern,
    /// Empty: every method.
    pub methods: Vec<Method>,
    /// What a request has to say besides, in headers and in its query.
    pub conditions: Vec<Condition>,
    pub target: Target,
    /// Indexes into [`super::Settings::limits`], in the order written, without doubles.
    pub limits: Vec<usize>,
    /// Whether the limit `tenants` is among them.
    pub tenants: bool,
    /// Indexes into [`super::Settings::guards`], likewise.
    pub guards: Vec<usize>,
    /// Removed from the front of the path before forwarding: `/api`, never with a trailing slash.
    pub strip_prefix: Option<String>,
    /// Takes the place of the whole path, likewise.
    pub rewrite: Option<PathTemplate>,
    pub encoded_slash: EncodedSlash,
    pub forward_path: ForwardPath,
    /// The largest body of a request; `None`: as large as the upstream will take.
    pub max_body: Option<u64>,
    pub request_headers: HeaderEdits,
    pub response_headers: HeaderEdits,
    /// Takes the place of the upstream's `response_timeout`.
    pub timeout: Option<Duration>,
    /// Takes the place of what its limits say that a request costs.
    pub cost: Option<Cost>,
    /// Where requests go that a limit with the strategy `degrade` did not admit; `None`: where all
    /// others go.
    pub degrade: Option<Target>,
}

/// Headers to set (replacing what is there) and to remove.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HeaderEdits {
    pub set: Vec<(HeaderName, HeaderValue)>,
    pub remove: Vec<HeaderName>,
}

impl HeaderEdits {
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.remove.is_empty()
    }

    /// What it sets or removes.
    pub fn names(&self) -> impl Iterator<Item = &HeaderName> {
        self.remove.iter().chain(self.set.iter().map(|(name, _)| name))
    }
}

/// Host names are lower case and carry no port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostPattern {
    Any,
    Exact(String),
    /// `*.example.com`, kept as `example.com`: any name below it, not the name itself.
    Below(String),
}

/// A path as segments, split at `/`; literals are lower case and decoded.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PathPattern {
    pub segments: Vec<Segment>,
    /// Ends in `/*`: matches the path itself and everything below it.
    pub prefix: bool,
}

impl fmt::Display for PathPattern {
    /// As a configuration has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in &self.segments {
            match segment {
                Segment::Literal(literal) => write!(f, "/{literal}")?,
                Segment::Parameter(name) => write!(f, "/{{{name}}}")?,
            }
        }
        match (self.prefix, self.segments.is_empty()) {
            (true, _) => f.write_str("/*"),
            (false, true) => f.write_str("/"),
            (false, false) => Ok(()),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Segment {
    Literal(String),
    /// `{name}`: any one segment that is not empty.
    Parameter(String),
}

/// What becomes of requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The built-in upstream that answers with the request it received.
    Echo,
    /// An index into [`Settings::upstreams`](super::Settings::upstreams).
    Upstream(usize),
    Redirect(Redirect),
    Respond(FixedResponse),
}

impl Target {
    /// Whether requests are passed on.
    pub fn is_upstream(&self) -> bool {
        matches!(self, Target::Echo | Target::Upstream(_))
    }
}

/// Where clients are led instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    pub to: PathTemplate,
    pub status: StatusCode,
}

/// A response that is always the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedResponse {
    pub status: StatusCode,
    pub body: Bytes,
    pub content_type: Option<HeaderValue>,
}

/// What becomes of `%2F` in a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncodedSlash {
    /// The request is refused.
    Reject,
    /// It is part of its segment, and goes on as it is.
    Keep,
}

/// How the path goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForwardPath {
    /// In its normal spelling.
    Normalized,
    /// Byte for byte.
    AsReceived,
}

/// How specific the conditions of a route are: more headers first, then more of the query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConditionRank {
    headers: usize,
    query: usize,
}

impl ConditionRank {
    pub fn of(conditions: &[Condition]) -> Self {
        let is_header = |it: &&Condition| matches!(it.what, What::Source(Source::Header(_)));
        let headers = conditions.iter().filter(is_header).count();
        ConditionRank { headers, query: conditions.len() - headers }
    }
}
