//! The compiled routes: a tree of path segments for each host.
//!
//! A look-up walks the segments of the path once, whatever the number of routes. At each step a
//! literal is tried before a parameter and a parameter before a prefix, and a branch that ends
//! without a route for the method gives way to the next best: `GET /a/b` may have a route of its
//! own while all other methods fall to `/a/*`. A tree has one way to each node, so no node is
//! visited twice.

use std::borrow::Cow;

use hashbrown::HashMap;
use http::Method;

use crate::config::settings::{HostPattern, Route, Segment};

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
    route: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub enum RouteLookup {
    /// The route's index in the configuration.
    Route(usize),
    /// The path has routes, but none for this method.
    OtherMethods(Vec<Method>),
    Nothing,
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
            entries.push(RouteEntry { methods: route.methods.clone(), route: index });
            table.by_method |= !route.methods.is_empty();
        }
        table
    }

    /// Whether any route asks for the method.
    pub fn by_method(&self) -> bool {
        self.by_method
    }

    /// The most specific route for a request. `host` may carry a port; `path` is a
    /// [matched](super::normalize::MatchPath) path.
    pub fn find(&self, host: &str, path: &[u8], method: &Method) -> RouteLookup {
        let mut others = Vec::new();
        let mut search = |root: &RouteNode| root.find(segments(path), method, &mut others);
        let found = if self.exact.is_empty() && self.below.is_empty() {
            search(&self.any)
        } else {
            let host = bare_host(host);
            let exact = self.exact.get(&*host).and_then(&mut search);
            exact
                .or_else(|| {
                    parents(&host).find_map(|name| self.below.get(name).and_then(&mut search))
                })
                .or_else(|| search(&self.any))
        };
        match found {
            Some(route) => RouteLookup::Route(route),
            None if others.is_empty() => RouteLookup::Nothing,
            None => {
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
    fn find(
        &self,
        mut rest: Segments<'_>,
        method: &Method,
        others: &mut Vec<Method>,
    ) -> Option<usize> {
        let found = match rest.next() {
            None => choose(&self.here, method, others),
            Some(segment) => {
                let literal = self.literals.get(segment);
                let deeper = literal.and_then(|node| node.find(rest.clone(), method, others));
                deeper.or_else(|| {
                    let node = self.parameter.as_ref().filter(|_| !segment.is_empty())?;
                    node.find(rest, method, others)
                })
            }
        };
        found.or_else(|| choose(&self.prefix, method, others))
    }
}

fn choose(entries: &[RouteEntry], method: &Method, others: &mut Vec<Method>) -> Option<usize> {
    let for_method =
        |method| entries.iter().find(move |entry: &&RouteEntry| entry.methods.contains(method));
    // RFC 9110 section 9.3.2: HEAD is GET without the content, so it must not slip past a limit on GET.
    let by_get = || if *method == Method::HEAD { for_method(&Method::GET) } else { None };
    let for_all = || entries.iter().find(|entry| entry.methods.is_empty());
    let found = for_method(method).or_else(by_get).or_else(for_all);
    if found.is_none() {
        others.extend(entries.iter().flat_map(|entry| entry.methods.iter().cloned()));
    }
    found.map(|entry| entry.route)
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
