//! What a configuration says of header fields, gathered from all its parts.

use http::HeaderName;

use super::{CompiledRoute, condition_sources};
use crate::caller::Identity;
use crate::config::Settings;
use crate::forward::field_rules::FieldRules;
use crate::gateway::plan::RouteAffinity;
use crate::limit::{Condition, Source, What};

/// As far as settings say it alone.
pub(super) fn field_rules(
    settings: &Settings,
    identity: &Identity,
    routes: &[CompiledRoute],
) -> FieldRules {
    let key_headers = counted_headers(settings, identity, routes);
    let with_underscore = key_headers.iter().filter(|name| name.as_str().contains('_'));
    let forwarded = settings.identity.forward.headers.iter();
    FieldRules {
        identity_names: forwarded.map(|(_, header)| header.clone()).collect(),
        address_header: settings.identity.address_header.clone(),
        key_header_aliases: with_underscore.map(|it| it.as_str().replace('_', "-")).collect(),
        key_headers,
        by_method: conditions(settings).any(|it| it.what == What::Method),
        warns: !settings.guards.is_empty(),
        ..FieldRules::default()
    }
}

/// What limits and guards ask before they apply.
fn conditions(settings: &Settings) -> impl Iterator<Item = &Condition> {
    let limits = settings.limits.iter().flat_map(|limit| &limit.when);
    let limits = limits.chain(&settings.tenants.limit.when);
    limits.chain(settings.guards.iter().flat_map(|guard| &guard.when))
}

/// The headers that callers are told apart by: those of keys, conditions, identities and costs, and
/// the one that carries the caller's address. A client must not be able to have one removed.
fn counted_headers(
    settings: &Settings,
    identity: &Identity,
    routes: &[CompiledRoute],
) -> Vec<HeaderName> {
    let keys = settings.limits.iter().flat_map(|limit| &limit.key.0);
    let keys = keys.chain(settings.guards.iter().flat_map(|guard| &guard.key.0));
    let keys = keys.chain(condition_sources(conditions(settings)));
    let hashed_by = routes.iter().filter_map(|route| route.affinity.as_ref());
    let keys = keys.chain(hashed_by.flat_map(RouteAffinity::keys).flat_map(|key| &key.0));
    let routed = settings.routes.iter().flat_map(|route| &route.conditions);
    let keys = keys.chain(condition_sources(routed));
    let keys = keys.flat_map(|source| identity.sources(source));
    // Also where only a plan or an access list asks for the identity.
    let named = [&identity.user, &identity.client, &identity.tenant, &identity.plan];
    let keys = keys.chain(named.into_iter().flatten());
    let keys = keys.filter_map(|source| match source {
        Source::Header(name) => Some(name.clone()),
        _ => None,
    });
    let limits = routes.iter().flat_map(|route| route.limits.iter().chain(&route.tenants));
    let costs = limits.filter_map(|limit| limit.cost.header().cloned());
    let mut counted: Vec<HeaderName> = Vec::new();
    for name in keys.chain(costs).chain(settings.identity.address_header.clone()) {
        if !counted.contains(&name) {
            counted.push(name);
        }
    }
    counted
}
