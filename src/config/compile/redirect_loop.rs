//! Redirects that lead back to themselves: a client that follows them gives up.

use http::{HeaderMap, Method, StatusCode};

use crate::config::file::Value;
use crate::config::settings::{HostPattern, PathPattern, Redirect, Route, Segment, Target};
use crate::route::{LookupKey, PathTemplate, RouteLookup, RouteTable, TemplateInput, normalize};

/// How often a client follows before it is clear that there is no end.
const HOPS: usize = 10;

/// `values` are where the routes say so, if they redirect at all.
pub(super) fn warn_of_loops(routes: &[Route], values: &[Option<Value<'_>>]) {
    if values.iter().all(Option::is_none) {
        return;
    }
    let table = RouteTable::new(routes);
    for (route, value) in routes.iter().zip(values) {
        let Some(value) = value else { continue };
        // What a client says besides its path may be different the next time.
        if route.conditions.is_empty() && Client::of(route).goes_in_circles(&table, routes) {
            value.warning(
                "leads back to itself",
                "name a path or a host in `to` that this route is not for",
            );
        }
    }
}

/// One that asks for something that a route is for, and goes where it is told.
struct Client {
    host: String,
    path: String,
    method: Method,
}

impl Client {
    fn of(route: &Route) -> Self {
        let host = match &route.host {
            HostPattern::Any => String::new(),
            HostPattern::Exact(host) => host.clone(),
            HostPattern::Below(above) => format!("x.{above}"),
        };
        let method = route.methods.first().cloned().unwrap_or(Method::GET);
        Client { host, path: sample(&route.path), method }
    }

    fn goes_in_circles(mut self, table: &RouteTable, routes: &[Route]) -> bool {
        (0..HOPS).all(|_| match self.redirect(table, routes) {
            Some(redirect) => self.follow(redirect),
            None => false,
        })
    }

    fn redirect<'r>(&self, table: &RouteTable, routes: &'r [Route]) -> Option<&'r Redirect> {
        let path = normalize(&self.path).ok()?;
        let RouteLookup::Route(found) = table.find(LookupKey {
            host: &self.host,
            path: path.matched.as_bytes(),
            method: &self.method,
            headers: &HeaderMap::new(),
            query: None,
        }) else {
            return None;
        };
        match &routes[found].target {
            Target::Redirect(redirect) => Some(redirect),
            _ => None,
        }
    }

    /// Whether it leads to another path of the same host, by the same scheme.
    fn follow(&mut self, Redirect { to, status }: &Redirect) -> bool {
        let location = self.location(to);
        let end = location.find(['?', '#']).unwrap_or(location.len());
        self.path = location[..end].to_owned();
        let keeps = [StatusCode::TEMPORARY_REDIRECT, StatusCode::PERMANENT_REDIRECT];
        if !keeps.contains(status) {
            self.method = Method::GET;
        }
        self.path.starts_with('/')
    }

    fn location(&self, to: &PathTemplate) -> String {
        to.render(&TemplateInput { path: &self.path, query: None, host: &self.host })
    }
}

/// A path that a pattern is for.
fn sample(pattern: &PathPattern) -> String {
    let segments = pattern.segments.iter().map(|segment| match segment {
        Segment::Literal(text) => format!("/{text}"),
        Segment::Parameter(_) => "/x".to_owned(),
    });
    let rest = if pattern.prefix { "/x" } else { "" };
    let path: String = segments.chain([rest.to_owned()]).collect();
    if path.is_empty() { "/".to_owned() } else { path }
}
