//! The compiled routes: a tree of path segments for each host.
//!
//! A look-up walks the segments of the path once, whatever the number of routes. At each step a
//! literal is tried before a parameter and a parameter before a prefix, and a branch that ends
//! without a route for the method gives way to the next best: `GET /a/b` may have a route of its
//! own while all other methods fall to `/a/*`. A tree has one way to each node, so no node is
//! visited twice. Of the routes at one node those for the method come first, and of those the ones
//! with the most conditions on headers, then on the query.

use std::borrow::Cow;

use hashbrown::HashMap;
use http::{HeaderMap, Method};

use crate::config::settings::{ConditionRank, HostPattern, Route, Segment};
use crate::limit::Condition;
use crate::limit::key::KeyError;
use crate::limit::source::{Form, RequestFacts};

#[derive(Debug, Default)]
pub struct RouteTable {
    exact: HashMap<String, RouteNode>,
    below: HashMap<String, RouteNode>,
    any: RouteNode,
    by_method: bool,
}

#[derive(Debug, Default)]
struct RouteNode {
    literals: HashMap<Box<[u8]>, RouteNode>,
    parameter: Option<Box<RouteNode>>,
    here: Vec<RouteEntry>,
    /// Routes that end in `/*` at this node.
    prefix: Vec<RouteEntry>,
}

#[derive(Debug)]
struct RouteEntry {
    methods: Vec<Method>,
    conditions: Box<[Condition]>,
    rank: ConditionRank,
    route: usize,
}

/// What routes are looked up by.
#[derive(Debug, Clone, Copy)]
pub struct LookupKey<'a> {
    /// It may carry a port.
    pub host: &'a str,
    /// A [matched](super::normalize::MatchPath) path.
    pub path: &'a [u8],
    pub method: &'a Method,
    pub headers: &'a HeaderMap,
    pub query: Option<&'a str>,
}

/// A look-up under way.
#[derive(Debug)]
struct Search<'a> {
    key: LookupKey<'a>,
    /// The methods of routes that match but for the method.
    others: Vec<Method>,
    /// Why it cannot be told whether a route matches.
    ambiguous: Option<KeyError>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum RouteLookup {
    /// The route's index in the configuration.
    Route(usize),
    /// The path has routes, but none for this method.
    OtherMethods(Vec<Method>),
    Nothing,
    /// The request says several things where a route asks for one.
    Ambiguous(KeyError),
}

impl RouteTable {
    pub fn new(routes: &[Route]) -> Self {
        let mut table = RouteTable::default();
        for (index, route) in routes.iter().enumerate() {
            let root = match &route.host {
                HostPattern::Any => &mut table.any,
                HostPattern::Exact(host) => table.exact.entry(host.clone()).or_default(),
                HostPattern::Below(suffix) => table.below.entry(suffix.clone()).or_default(),
            };
            let mut node = root;
            for segment in &route.path.segments {
                node = match segment {
                    Segment::Literal(text) => {
                        node.literals.entry(text.as_bytes().into()).or_default()
                    }
                    Segment::Parameter(_) => node.parameter.get_or_insert_default(),
                };
            }
            let entries = if route.path.prefix { &mut node.prefix } else { &mut node.here };
            let rank = ConditionRank::of(&route.conditions);
            let conditions = route.conditions.clone().into();
            let entry =
                RouteEntry { methods: route.methods.clone(), conditions, rank, route: index };
            entries.insert(entries.partition_point(|it| it.rank >= rank), entry);
            table.by_method |= !route.methods.is_empty();
        }
        table
    }

    /// Whether any route asks for the method.
    pub fn by_method(&self) -> bool {
        self.by_method
    }

    /// The most specific route for a request.
    pub fn find(&self, key: LookupKey<'_>) -> RouteLookup {
        let mut search = Search { key, others: Vec::new(), ambiguous: None };
        let mut below = |root: &RouteNode| root.find(segments(key.path), &mut search);
        let found = if self.exact.is_empty() && self.below.is_empty() {
            below(&self.any)
        } else {
            let host = bare_host(key.host);
            let exact = self.exact.get(&*host).and_then(&mut below);
            exact
                .or_else(|| {
                    parents(&host).find_map(|name| self.below.get(name).and_then(&mut below))
                })
                .or_else(|| below(&self.any))
        };
        let Search { mut others, ambiguous, .. } = search;
        match (found, ambiguous) {
            (_, Some(error)) => RouteLookup::Ambiguous(error),
            (Some(route), None) => RouteLookup::Route(route),
            (None, None) if others.is_empty() => RouteLookup::Nothing,
            (None, None) => {
                others.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
                others.dedup();
                RouteLookup::OtherMethods(others)
            }
        }
    }
}

type Segments<'a> = std::iter::Skip<std::slice::Split<'a, u8, fn(&u8) -> bool>>;

fn segments(path: &[u8]) -> Segments<'_> {
    // A matched path is empty or starts with a slash, so the first piece is never a segment.
    path.split((|byte| *byte == b'/') as fn(&u8) -> bool).skip(1)
}

impl RouteNode {
    fn find(&self, mut rest: Segments<'_>, search: &mut Search<'_>) -> Option<usize> {
        let found = match rest.next() {
            None => search.choose(&self.here),
            Some(segment) => {
                let literal = self.literals.get(segment);
                let deeper = literal.and_then(|node| node.find(rest.clone(), search));
                deeper.or_else(|| {
                    let node = self.parameter.as_ref().filter(|_| !segment.is_empty())?;
                    node.find(rest, search)
                })
            }
        };
        found.or_else(|| search.choose(&self.prefix))
    }
}

impl Search<'_> {
    fn choose(&mut self, entries: &[RouteEntry]) -> Option<usize> {
        let method = self.key.method;
        let mut found = self.first(entries, |entry| entry.methods.contains(method));
        // RFC 9110 section 9.3.2: HEAD is GET without the content, so it must not slip past a limit on GET.
        if found.is_none() && *method == Method::HEAD {
            found = self.first(entries, |entry| entry.methods.contains(&Method::GET));
        }
        if found.is_none() {
            found = self.first(entries, |entry| entry.methods.is_empty());
        }
        if found.is_none() {
            let others = entries.iter().filter(|entry| self.holds(entry).unwrap_or(false));
            let others: Vec<_> = others.flat_map(|entry| entry.methods.iter().cloned()).collect();
            self.others.extend(others);
        }
        found
    }

    /// The most specific of the entries that are meant and whose conditions hold.
    fn first(
        &mut self,
        entries: &[RouteEntry],
        is_meant: impl Fn(&RouteEntry) -> bool,
    ) -> Option<usize> {
        let mut ambiguous = None;
        let found = entries.iter().find(|entry| {
            is_meant(entry)
                && match self.holds(entry) {
                    Ok(holds) => holds,
                    Err(error) => {
                        ambiguous = Some(error);
                        false
                    }
                }
        });
        if ambiguous.is_some() {
            self.ambiguous = ambiguous;
        }
        found.map(|entry| entry.route)
    }

    fn holds(&self, entry: &RouteEntry) -> Result<bool, KeyError> {
        // Most routes ask for nothing more.
        if entry.conditions.is_empty() {
            return Ok(true);
        }
        let LookupKey { headers, query, .. } = self.key;
        // Routes ask for nothing else.
        let (host, form, claims, certificate) = ("", Form::None, None, None);
        let facts = RequestFacts { headers, host, query, form, claims, certificate };
        for condition in &entry.conditions {
            if !condition.holds_for_head(&facts)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// A host in one spelling: lower case, without port and without the root's dot.
pub fn bare_host(host: &str) -> Cow<'_, str> {
    let end = match host.rfind(':') {
        Some(colon) if !host[colon..].contains(']') => colon,
        _ => host.len(),
    };
    let name = host[..end].strip_suffix('.').unwrap_or(&host[..end]);
    if let Some(address) = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        // One address, however many zeros are written.
        return match address.parse::<std::net::Ipv6Addr>() {
            Ok(address) => Cow::Owned(format!("[{address}]")),
            Err(_) => Cow::Borrowed(name),
        };
    }
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        Cow::Borrowed(name)
    }
}

/// The names above a name, nearest first.
fn parents(host: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(host.split_once('.'), |(_, rest)| rest.split_once('.')).map(|pair| pair.1)
}

#[cfg(test)]
#[path = "table/tests.rs"]
mod tests;
