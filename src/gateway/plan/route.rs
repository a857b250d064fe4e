//! Which route a request takes, and the target its upstream is asked for.

use std::borrow::Cow;

use http::{HeaderValue, Method, header};

use super::{Planner, RequestHead, RouteAffinity};
use crate::config::settings::{self, HostPattern, PathPattern, Target};
use crate::forward::headers::has_passed;
use crate::gateway::compiled::{CompiledRoute, RouteLimit, RouteNeeds, UpstreamPath};
use crate::limit::Condition;
use crate::respond::Fault;
use crate::route::normalize::NormalizedPath;
use crate::route::{LookupKey, PathError, RouteLookup, TemplateInput, bare_host, normalize};

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
    /// By what its upstream's servers are chosen, if by something of the request.
    pub affinity: Option<&'a RouteAffinity>,
    /// Path and query as the upstream will see them, or where a redirect leads.
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
    /// What its headers and its query say.
    pub conditions: &'a [Condition],
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
        let key = LookupKey {
            host,
            path: path.matched.as_bytes(),
            method: head.method,
            headers: head.headers,
            query: head.uri.query(),
        };
        let found = compiled.table.find(key);
        let index = match found {
            // No route would take it for what it is.
            RouteLookup::OtherMethods(_) | RouteLookup::Nothing if path.has_escaped_slash => {
                return Err(PathError::ForbiddenEscape.into());
            }
            RouteLookup::Route(index) => index,
            RouteLookup::OtherMethods(methods) => return Err(Fault::Method(methods)),
            RouteLookup::Nothing => return Err(Fault::NoRoute),
            RouteLookup::Ambiguous(error) => return Err(error.into()),
        };
        if path.has_escaped_slash {
            planner.check_escaped_slash(index, &path, key)?;
        }
        let route = &compiled.routes[index];
        let settings = &compiled.settings.routes[index];
        let target = match &settings.target {
            Target::Redirect(redirect) => {
                let host = bare_host(host);
                if host.is_empty() && redirect.to.has_host() {
                    return Err(Fault::Target("the host is missing"));
                }
                let (path, query) = (&*path.forward, head.uri.query());
                Cow::Owned(redirect.to.render(&TemplateInput { path, query, host: &host }))
            }
            _ => upstream_target(route, &path, head)?,
        };
        Ok(RouteMatch {
            index,
            settings,
            limits: &route.limits,
            tenants: route.tenants.as_ref(),
            guards: &route.guards,
            needs: compiled.needs[index],
            affinity: route.affinity.as_ref(),
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
        let settings::Route { host, path, methods, conditions, .. } = self.settings;
        RouteReason { host, path, methods, conditions }
    }
}

impl Planner<'_> {
    /// Whether the route found takes an escaped slash for part of a segment, as its upstream has to.
    /// An upstream that took it for a plain one would serve another path. So where that path has a
    /// route of its own that is more specific, the request is refused, unless that route does the same.
    fn check_escaped_slash(
        self,
        found: usize,
        path: &NormalizedPath<'_>,
        key: LookupKey<'_>,
    ) -> Result<(), Fault> {
        let (routes, settings) = (&self.compiled.routes, &self.compiled.settings.routes);
        let plain = path.matched.with_plain_slashes();
        let refused = match self.compiled.table.find(LookupKey { path: &plain, ..key }) {
            _ if !routes[found].keeps_slashes => true,
            RouteLookup::Route(other) if other != found => {
                let (pattern, other_pattern) = (&settings[found].path, &settings[other].path);
                let is_shorter = other_pattern.segments.len() < pattern.segments.len();
                let is_less_specific = other_pattern.prefix && is_shorter;
                !(routes[other].keeps_slashes || is_less_specific)
            }
            _ => false,
        };
        if refused { Err(PathError::ForbiddenEscape.into()) } else { Ok(()) }
    }
}

/// Path and query for the upstream.
fn upstream_target<'a>(
    route: &CompiledRoute,
    path: &NormalizedPath<'a>,
    head: RequestHead<'a, '_>,
) -> Result<Cow<'a, str>, Fault> {
    let whole = head.uri.path_and_query().map_or("", |whole| whole.as_str());
    // As it came, unless it came without a path: `http://host?query`.
    let is_path = whole.starts_with('/');
    let normal = &*path.forward;
    let mut target = match &route.upstream_path {
        // An upstream that does not resolve them would serve something else than what was counted.
        UpstreamPath::AsReceived if path.is_resolved => return Err(PathError::Unresolved.into()),
        UpstreamPath::AsReceived if is_path => return Ok(Cow::Borrowed(whole)),
        UpstreamPath::Normalized if is_path && matches!(path.forward, Cow::Borrowed(_)) => {
            return Ok(Cow::Borrowed(whole));
        }
        UpstreamPath::Normalized | UpstreamPath::AsReceived => normal.to_owned(),
        UpstreamPath::Stripped(segments) => strip(normal, *segments).to_owned(),
        UpstreamPath::Rewritten(template) => {
            template.render(&TemplateInput { path: normal, query: None, host: "" })
        }
    };
    if let Some(query) = head.uri.query() {
        target.push('?');
        target.push_str(query);
    }
    Ok(Cow::Owned(target))
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
