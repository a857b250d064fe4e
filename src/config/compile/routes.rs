//! `[[routes]]`.

use http::Method;

use super::cost::{self, CostSpec};
use super::names::{self, NameTable};
use super::request_source::KnownIdentities;
use super::route_claims::{RouteClaims, RoutePattern};
use super::route_target::{target, upstream_target};
use super::server::{SOME_TIME, read};
use super::tenants::TenantNames;
use super::{headers, host, path, redirect_loop, route_conditions, template};
use crate::config::diagnostic::Diagnostic;
use crate::config::file::{Section, UniqueValues, Value, unique_values};
use crate::config::settings::{EncodedSlash, ForwardPath, HostPattern, Route, Target};
use crate::config::suggest::{nearest, quote};
use crate::limit::rate::MAX_COUNT;
use crate::limit::tenants::TENANTS;
use crate::limit::{CostSource, Limit, Strategy};

/// What routes refer to.
#[derive(Clone, Copy)]
pub(super) struct Definitions<'d> {
    pub(super) upstreams: &'d NameTable,
    pub(super) limit_names: &'d NameTable,
    pub(super) limits: &'d [Limit],
    pub(super) guards: &'d NameTable,
    pub(super) tenants: &'d TenantNames,
    pub(super) identities: KnownIdentities,
    /// The largest body, where a route does not say.
    pub(super) max_body: Option<u64>,
}

/// The routes, and whether they are all that there are.
pub(super) fn routes(root: &mut Section<'_>, defined: Definitions<'_>) -> (Vec<Route>, bool) {
    let reporter = root.reporter();
    let sections = root.array_sections("routes");
    if sections.as_ref().is_some_and(Vec::is_empty) {
        reporter.report(
            Diagnostic::error(0..0, "there are no routes: every request would be refused")
                .help(
                    "add one such as `[[routes]]`, `name = \"all\"`, `path = \"/*\"`, \
                     `upstream = \"echo\"`",
                )
                .absence(),
        );
    }
    let mut routes = Vec::new();
    let mut names = UniqueValues::new();
    let mut claims = RouteClaims::default();
    let sections = sections.unwrap_or_default();
    let many = sections.len();
    let mut redirects = Vec::new();
    for section in sections {
        if let Some((route, redirect)) = route(section, defined, &mut names, &mut claims) {
            routes.push(route);
            redirects.push(redirect);
        }
    }
    claims.report_conflicts(reporter);
    defined.upstreams.warn_of_unused(reporter);
    defined.limit_names.warn_of_unused(reporter);
    defined.guards.warn_of_unused(reporter);
    let all = routes.len() == many;
    if all {
        redirect_loop::warn_of_loops(&routes, &redirects);
        defined.tenants.warn_of_unused(reporter);
    }
    (routes, all)
}

/// A route, and where it says that it redirects.
fn route<'a>(
    mut section: Section<'a>,
    defined: Definitions<'_>,
    names: &mut UniqueValues<String>,
    claims: &mut RouteClaims,
) -> Option<(Route, Option<Value<'a>>)> {
    let reporter = section.reporter();
    let name = section.require("name", "name = \"api\"").and_then(|value| {
        let name = value.text("api")?;
        let good = names::check(name, value.span(), reporter);
        (good && names.insert(name.to_owned(), &value)).then(|| name.to_owned())
    });
    let host = section.get("host").map(|value| host::host(&value));
    let written = section.require("path", "path = \"/*\"");
    let path = written.as_ref().and_then(path::pattern);
    let methods = section.get("methods").map(|value| methods(&value));
    let conditions = route_conditions::conditions(&mut section);
    let target = target(&mut section, path.as_ref(), defined.upstreams);
    let limit_names = defined.limit_names;
    let mut tenants = false;
    let limits = section.get("limits").map(|value| {
        let by_tenant = |name: &str, entry: &Value<'_>| {
            let named = name == TENANTS;
            tenants |= named && defined.tenants.resolve(entry, defined.identities);
            named
        };
        name_indexes(&value, limit_names, defined.guards, "per-ip", by_tenant)
    });
    let limits = limits.unwrap_or_else(|| Some(Vec::new()));
    let limit_indexes = limits.as_ref().map(|it| it.iter().map(|at| &defined.limits[*at]));
    let guards = section
        .get("guards")
        .map(|value| name_indexes(&value, defined.guards, limit_names, "flood", |_, _| false));
    let guards = guards.unwrap_or_else(|| Some(Vec::new()));
    // What is charged after the answer is owed: no limit owes more than it holds unasked.
    let cost = cost::cost(&mut section, |from| match from {
        CostSource::Response(_) => None,
        CostSource::Header(_) | CostSource::Query(_) => Some(MAX_COUNT),
    });
    if let Some(cost) = &cost {
        for limit in limit_indexes.clone().into_iter().flatten() {
            cost.check(&limit.policy, limit.count.is_some(), &format!("limit `{}`", limit.name));
            let of = format!(" of limit `{}`", limit.name);
            cost.check_plans(&limit.plans, limit.count.is_some(), &of);
            if let Some(candidate) = &limit.candidate {
                cost.goes_with(candidate, &format!("the candidate of limit `{}`", limit.name));
            }
        }
        if tenants {
            cost.check_tenants(defined.tenants.tree());
        }
    }
    let answers_itself = target.as_ref().is_some_and(|it| !it.is_upstream());
    let degrade = degrade(&mut section, defined.upstreams, limit_indexes, answers_itself);
    let stripped = section.get("strip_prefix");
    let strip_prefix = stripped.as_ref().map(|value| path::strip_prefix(value, path.as_ref()));
    let rewritten = section.get("rewrite");
    let rewrite = rewritten.as_ref().and_then(|value| template::rewrite(value, path.as_ref()));
    let slashes = [("reject", EncodedSlash::Reject), ("keep", EncodedSlash::Keep)];
    let encoded_slash = section.get("encoded_slash");
    let encoded_slash = encoded_slash.and_then(|value| value.choice(&slashes));
    let spelling = section.get("forward_path");
    let spellings =
        [("normalized", ForwardPath::Normalized), ("as_received", ForwardPath::AsReceived)];
    let forward_path = spelling.as_ref().and_then(|value| value.choice(&spellings));
    let raw = spelling.as_ref().filter(|_| forward_path == Some(ForwardPath::AsReceived));
    match (&stripped, &rewritten, raw) {
        (Some(_), Some(value), _) => value.error(
            "takes the place of the whole path, and so of what `strip_prefix` leaves of it",
            "keep one of the two",
        ),
        (Some(_), _, Some(value)) | (_, Some(_), Some(value)) => value.error(
            "cannot be `as_received` where `strip_prefix` or `rewrite` changes the path",
            "keep one of the two",
        ),
        _ => {}
    }
    let max_body = read(&mut section, "max_body", defined.max_body.unwrap_or(0), |it| {
        it.size(0..=i64::MAX as u64)
    });
    let request_headers = headers::edits(section.section("request_headers"));
    let response_headers = headers::edits(section.section("response_headers"));
    let patience = section.get("timeout");
    let timeout = patience.as_ref().and_then(|value| value.duration(SOME_TIME));
    if answers_itself {
        let edits = section.get("request_headers").filter(|_| !request_headers.is_empty());
        for value in [&stripped, &rewritten, &spelling, &patience, &edits].into_iter().flatten() {
            value.warning("has no effect: the route has no upstream", "leave it out");
        }
        warn_of_limits_without_upstream(&mut section, defined, cost.as_ref());
    }
    let (host, path) = (host.unwrap_or(Some(HostPattern::Any))?, path?);
    let methods = methods.unwrap_or_default();
    let conditions = conditions?;
    let requests =
        RoutePattern { host: &host, path: &path, methods: &methods, conditions: &conditions };
    claims.claim(requests, name.as_deref(), written?.span());
    let route = Route {
        name: name?,
        host,
        path,
        methods,
        conditions,
        target: target?,
        limits: limits?,
        tenants,
        guards: guards?,
        strip_prefix: strip_prefix.flatten(),
        rewrite,
        encoded_slash: encoded_slash.unwrap_or(EncodedSlash::Reject),
        forward_path: forward_path.unwrap_or(ForwardPath::Normalized),
        max_body: Some(max_body).filter(|bytes| *bytes > 0),
        request_headers,
        response_headers,
        timeout,
        cost: cost.map(|it| it.cost),
        degrade,
    };
    Some((route, section.get("redirect")))
}

/// Notes which limits of a route that answers itself go by what an upstream would do.
fn warn_of_limits_without_upstream(
    section: &mut Section<'_>,
    defined: Definitions<'_>,
    own_cost: Option<&CostSpec<'_>>,
) {
    if let Some(cost) = own_cost {
        cost.warn_without_upstream();
    }
    let listed = section.get("limits").and_then(|value| value.list("[\"per-ip\"]"));
    for entry in listed.unwrap_or_default() {
        let named = |it: &&Limit| entry.as_str() == Some(it.name.as_str());
        let Some(limit) = defined.limits.iter().find(named) else { continue };
        let name = quote(&limit.name);
        if limit.strategy == Strategy::Degrade {
            let message = format!(
                "has no effect: limit {name} degrades requests, and the route has no upstream"
            );
            entry.warning(&message, "take it out, or use one that refuses");
        }
        if limit.cost.is_of_response() && own_cost.is_none() {
            let message = format!(
                "always costs its `default`: limit {name} costs what a response of an upstream tells"
            );
            entry.warning(&message, "write a `cost` for the route, or use another limit");
        }
    }
}

fn methods(value: &Value<'_>) -> Vec<Method> {
    let Some(entries) = value.list("[\"GET\", \"POST\"]") else { return Vec::new() };
    if entries.is_empty() {
        value.error("is empty: no request would match", "leave it out to match every method");
    }
    unique_values(&entries, method)
}

pub(super) fn method(value: &Value<'_>) -> Option<Method> {
    const STANDARD: [&str; 9] =
        ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"];
    let text = value.text("GET")?;
    let upper = text.to_ascii_uppercase();
    if upper == "TRACE" || upper == "CONNECT" {
        value.error(&format!("cannot be `{upper}`: Weir answers it with 405"), "leave it out");
        return None;
    }
    if text != upper && STANDARD.contains(&upper.as_str()) {
        let help = format!("write `\"{upper}\"`: methods are told apart by case");
        value.error(&format!("is not a method: {}", quote(text)), help);
        return None;
    }
    // Words for any of them: a method of that name is never asked for, and the limits would not hold.
    if upper == "ANY" || upper == "ALL" || text.contains(['*', '!', '|']) {
        let help = "name each method that is meant, or leave it out to match every method";
        value.error(&format!("is not a method: {}", quote(text)), help);
        return None;
    }
    match Method::from_bytes(text.as_bytes()) {
        Ok(method) if text.len() <= 64 => {
            let is_standard = STANDARD.contains(&text);
            if let Some(meant) = nearest(text, STANDARD).filter(|_| !is_standard) {
                let message = format!("is no standard method: {}", quote(text));
                value.warning(&message, format!("if {} is meant, write that", quote(meant)));
            }
            Some(method)
        }
        _ => {
            value
                .error(&format!("is not a method: {}", quote(text)), "write one such as `\"GET\"`");
            None
        }
    }
}

/// What a list of limits or guards refers to, in its order, but for those that are `special`; nothing if
/// one of them is not there or has faults of its own. `others` are those that do not belong in it.
fn name_indexes(
    value: &Value<'_>,
    names: &NameTable,
    others: &NameTable,
    example: &str,
    mut special: impl FnMut(&str, &Value<'_>) -> bool,
) -> Option<Vec<usize>> {
    // A name that only lacks its brackets is not unused.
    let alone = value.as_str();
    alone.inspect(|name| names.mark_used(name));
    let example = alone.filter(|name| names.span(name).is_some()).unwrap_or(example);
    let entries = value.list(&format!("[\"{example}\"]"))?;
    let mut seen = UniqueValues::new();
    let (mut indexes, mut specials) = (Vec::new(), 0);
    for entry in &entries {
        let Some(name) = entry.text(example) else { continue };
        if !seen.insert(name, entry) {
            continue;
        }
        if special(name, entry) {
            specials += 1;
        } else {
            indexes.extend(names.resolve_apart(name, entry, others));
        }
    }
    (indexes.len() + specials == entries.len()).then_some(indexes)
}

fn degrade<'d>(
    section: &mut Section<'_>,
    upstreams: &NameTable,
    limits: Option<impl Iterator<Item = &'d Limit>>,
    answers_itself: bool,
) -> Option<Target> {
    let mut section = section.section("degrade");
    let value = section.require("upstream", "upstream = \"echo\"");
    let target = value.and_then(|value| upstream_target(&value, upstreams));
    if answers_itself && section.is_present() {
        section.error("goes with an `upstream` only", "leave it out: the answer costs nothing");
        return None;
    }
    let degrades = |limit: &Limit| limit.strategy == Strategy::Degrade;
    if target.is_some() && limits.is_some_and(|mut it| !it.any(degrades)) {
        section.warning(
            "has no effect: no limit of this route has the strategy `degrade`",
            "remove it, or write `strategy = \"degrade\"` in one of them",
        );
    }
    target
}
