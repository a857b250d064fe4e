//! Where a request goes: its route, and the target its upstream is asked for.

use std::borrow::Cow;

use http::{HeaderMap, HeaderValue, Method, header, request};

use super::compiled::{Needs, RouteLimit};
use super::live::{Live, LiveRoute};
use crate::config::settings;
use crate::forward::headers::has_passed;
use crate::respond::Fault;
use crate::route::{Found, normalize};

#[derive(Debug)]
pub struct Way<'a> {
    pub route: &'a LiveRoute,
    pub settings: &'a settings::Route,
    /// What applies to the route.
    pub limits: &'a [RouteLimit],
    pub needs: Needs,
    /// Path and query as the upstream will see them.
    pub target: Cow<'a, str>,
    host: Option<HeaderValue>,
    /// Whether the request names gateways it came through.
    pub has_via: bool,
}

impl<'a> Way<'a> {
    /// The host the client asked for; empty if it named none.
    #[must_use]
    pub fn host(&self) -> &str {
        self.host.as_ref().map_or("", host_text)
    }

    /// # Errors
    /// If the request has no route, or must not be forwarded at all.
    pub fn find(
        live: &'a Live,
        parts: &'a request::Parts,
        headers: &HeaderMap,
        via: &str,
    ) -> Result<Way<'a>, Fault> {
        if !is_served(&parts.method) {
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
        let has_via = headers.contains_key(header::VIA);
        if has_via && has_passed(headers, via) {
            return Err(Fault::Loop);
        }
        let path = normalize(parts.uri.path())?;
        let host_value = headers.get(header::HOST).cloned();
        let host = host_value.as_ref().map_or("", host_text);
        let index = match live.shared.table.find(host, path.matched.as_bytes(), &parts.method) {
            Found::Route(index) => index,
            Found::OtherMethods(methods) => return Err(Fault::Method(methods)),
            Found::Nothing => return Err(Fault::NoRoute),
        };
        let route = &live.routes[index];
        let whole = parts.uri.path_and_query().map_or("", |whole| whole.as_str());
        let target = match (&path.forward, route.stripped) {
            // As it came, unless it came without a path: `http://host?query`.
            (Cow::Borrowed(_), 0) if whole.starts_with('/') => Cow::Borrowed(whole),
            (path, stripped) => {
                let mut target = strip(path, stripped).to_owned();
                if let Some(query) = parts.uri.query() {
                    target.push('?');
                    target.push_str(query);
                }
                Cow::Owned(target)
            }
        };
        let settings = &live.shared.settings.routes[index];
        let (limits, needs) = (&*live.shared.applied[index], live.shared.needs[index]);
        Ok(Way { route, settings, limits, needs, target, host: host_value, has_via })
    }
}

/// TRACE would show headers that upstreams add; CONNECT asks for a tunnel past every rule. And
/// case tells methods apart, but not to every upstream: `post` must not find its way around a
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
