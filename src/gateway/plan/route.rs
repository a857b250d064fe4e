//! Which route a request takes, and the target its upstream is asked for.

use std::borrow::Cow;

use http::{HeaderValue, Method, header};

use super::{Planner, RequestHead};
use crate::config::settings::{self, HostPattern, PathPattern};
use crate::forward::headers::has_passed;
use crate::gateway::compiled::{RouteLimit, RouteNeeds};
use crate::respond::Fault;
use crate::route::{RouteLookup, normalize};

/// The route of one request.
#[derive(Debug)]
pub struct RouteMatch<'a> {
    /// Its index in the configuration.
    pub index: usize,
    pub settings: &'a settings::Route,
    /// The limits that apply to the route.
    pub limits: &'a [RouteLimit],
    /// The limit named `tenants`, if it applies to the route.
    pub tenants: Option<&'a RouteLimit>,
    /// The guards that count its requests: indexes into
    /// [`Compiled::guards`](crate::gateway::Compiled::guards).
    pub guards: &'a [usize],
    pub needs: RouteNeeds,
    /// Path and query as the upstream will see them.
    pub target: Cow<'a, str>,
    host: Option<HeaderValue>,
    /// Whether the request names gateways it came through.
    pub has_via: bool,
}

/// Why a request takes its route: the patterns of the route, which it fits and which no route fits
/// more exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteReason<'a> {
    pub host: &'a HostPattern,
    pub path: &'a PathPattern,
    /// Empty: every method.
    pub methods: &'a [Method],
}

impl<'a> RouteMatch<'a> {
    /// # Errors
    /// If the request has no route, or must not be forwarded at all.
    pub(super) fn find(planner: Planner<'a>, head: RequestHead<'a, '_>) -> Result<Self, Fault> {
        if !is_served(head.method) {
            return Err(Fault::Method(vec![
                Method::GET,
                Method::HEAD,
                Method::POST,
                Method::PUT,
                Method::PATCH,
                Method::DELETE,
                Method::OPTIONS,
            ]));
        }
        let has_via = head.headers.contains_key(header::VIA);
        if has_via && has_passed(head.headers, planner.via) {
            return Err(Fault::Loop);
        }
        let compiled = planner.compiled;
        let path = normalize(head.uri.path())?;
        let host_value = head.headers.get(header::HOST).cloned();
        let host = host_value.as_ref().map_or("", host_text);
        let index = match compiled.table.find(host, path.matched.as_bytes(), head.method) {
            RouteLookup::Route(index) => index,
            RouteLookup::OtherMethods(methods) => return Err(Fault::Method(methods)),
            RouteLookup::Nothing => return Err(Fault::NoRoute),
        };
        let route = &compiled.routes[index];
        let whole = head.uri.path_and_query().map_or("", |whole| whole.as_str());
        let target = match (&path.forward, route.stripped_segments) {
            // As it came, unless it came without a path: `http://host?query`.
            (Cow::Borrowed(_), 0) if whole.starts_with('/') => Cow::Borrowed(whole),
            (path, stripped) => {
                let mut target = strip(path, stripped).to_owned();
                if let Some(query) = head.uri.query() {
                    target.push('?');
                    target.push_str(query);
                }
                Cow::Owned(target)
            }
        };
        Ok(RouteMatch {
            index,
            settings: &compiled.settings.routes[index],
            limits: &route.limits,
            tenants: route.tenants.as_ref(),
            guards: &route.guards,
            needs: compiled.needs[index],
            target,
            host: host_value,
            has_via,
        })
    }

    /// The host the client asked for; empty if it named none.
    pub fn host(&self) -> &str {
        self.host.as_ref().map_or("", host_text)
    }

    pub fn reason(&self) -> RouteReason<'a> {
        let settings::Route { host, path, methods, .. } = self.settings;
        RouteReason { host, path, methods }
    }
}

/// TRACE would show headers that upstreams add; CONNECT asks for a tunnel past every limit. And
/// methods are case-sensitive, but not to every upstream: `post` must not find its way around a
/// route for `POST`.
fn is_served(method: &Method) -> bool {
    match *method {
        Method::GET | Method::POST | Method::PUT | Method::DELETE => true,
        Method::HEAD | Method::OPTIONS | Method::PATCH => true,
        Method::TRACE | Method::CONNECT => false,
        _ => Method::from_bytes(method.as_str().to_ascii_uppercase().as_bytes())
            .is_ok_and(|upper| upper == *method || !is_standard(&upper)),
    }
}

fn is_standard(method: &Method) -> bool {
    method.is_safe()
        || method.is_idempotent()
        || matches!(*method, Method::POST | Method::PATCH | Method::CONNECT)
}

fn host_text(host: &HeaderValue) -> &str {
    host.to_str().unwrap_or_default()
}

/// The path without its first segments.
fn strip(path: &str, segments: usize) -> &str {
    let Some(last) = segments.checked_sub(1) else { return path };
    let next = path.match_indices('/').nth(last + 1);
    next.map_or("/", |(at, _)| &path[at..])
}

#[cfg(test)]
mod tests {
    use super::strip;

    #[test]
    fn segments_are_stripped_whole() {
        for (path, segments, expected) in [
            ("/a/b/c", 0, "/a/b/c"),
            ("/a/b/c", 1, "/b/c"),
            ("/a/b/c", 2, "/c"),
            ("/a/b/", 1, "/b/"),
            ("/a/b", 2, "/"),
            ("/a;x=1/b", 1, "/b"),
            ("/a", 1, "/"),
            ("/", 1, "/"),
        ] {
            assert_eq!(strip(path, segments), expected, "{path} {segments}");
        }
    }
}
