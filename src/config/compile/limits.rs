//! `[limits.NAME]`.

use http::StatusCode;

use super::cost::{self, cost};
use super::key::key;
use super::names::{self, NameTable};
use super::plans::PlanSections;
use super::policy::{BaseLimit, PolicyKeys};
use super::request_source::KnownIdentities;
use super::server::read;
use super::store::{self, StoreContext};
use super::strategy::strategy;
use super::tenants::{TenantNames, tenant_limit};
use super::trust::adaptive;
use super::when::{RouteName, when};
use crate::config::file::{Section, Value};
use crate::config::suggest::quote;
use crate::limit::rate::MAX_COUNT;
use crate::limit::tenants::{TENANTS, TenantLimit};
use crate::limit::{Cost, Key, Limit, Missing, OnError, Outcomes, Policy, Refusal, Source};

/// The longest `description` or `message`, in characters.
const LONGEST_TEXT: usize = 500;

pub(super) const MISSING: [(&str, Missing); 4] = [
    ("ip", Missing::Ip),
    ("skip", Missing::Skip),
    ("deny", Missing::Deny),
    ("shared", Missing::Shared),
];

/// What limits need to know of the rest of the file.
#[derive(Clone, Copy)]
pub(super) struct LimitContext {
    pub(super) store: StoreContext,
    pub(super) identities: KnownIdentities,
}

/// The limits, their names, the limit that tenants make, and the routes that conditions name.
pub(super) fn limits<'a>(
    root: &mut Section<'a>,
    context: LimitContext,
    tenants: &TenantNames,
) -> (Vec<Limit>, NameTable, TenantLimit, Vec<RouteName<'a>>) {
    let mut limits = Vec::new();
    let mut routes = Vec::new();
    let built_in: &[&str] = if tenants.are_defined() { &[TENANTS] } else { &[] };
    let mut names = NameTable::new("limit", built_in);
    let on_error = context.store.on_error;
    let mut of_tenants = TenantLimit { on_error, ..TenantLimit::default() };
    for entry in root.named_sections("limits") {
        if entry.name == TENANTS {
            if !tenants.are_defined() {
                entry.section.warning(
                    "has no effect: it is for the tree of tenants, and there are none",
                    "give the limit another name, or add a table `[tenants.NAME]`",
                );
            }
            of_tenants = tenant_limit(entry.section, context, tenants.tree(), &mut routes);
            continue;
        }
        let good = names::check(entry.name, entry.span.clone(), root.reporter());
        let limit = limit(entry.name, entry.section, context, &mut routes).filter(|_| good);
        names.define(entry.name, entry.span, limit.is_some().then_some(limits.len()));
        limits.extend(limit);
    }
    (limits, names, of_tenants, routes)
}

fn limit<'a>(
    name: &str,
    mut section: Section<'a>,
    context: LimitContext,
    routes: &mut Vec<RouteName<'a>>,
) -> Option<Limit> {
    let LimitContext { store: home, identities: known } = context;
    let key = section.require("key", "key = \"ip\"").and_then(|value| key(&value, known));
    let buckets = buckets(key.as_ref(), home);
    let keys = PolicyKeys::of(&mut section).in_timezone(&mut section);
    let policy = keys.policy(&mut section, buckets);
    let quota = policy.as_ref().map_or(MAX_COUNT, Policy::quota);
    let cost = cost(&mut section, |_| Some(quota));
    let count = count(&mut section, policy.as_ref());
    let missing = section.get("missing").and_then(|value| missing(&value, key.as_ref()));
    let (strategy, mode) = strategy(&mut section);
    let refusal = refusal(&mut section);
    let response_headers = read(&mut section, "response_headers", true, Value::boolean);
    let on_error = section.get("on_error").and_then(|value| on_error(&value, home));
    let enabled = read(&mut section, "enabled", true, Value::boolean);
    let description = section.get("description").and_then(|value| text(&value));
    let mut tried = section.section("candidate");
    let other = PolicyKeys::of(&mut tried);
    let plans = PlanSections::of(&mut section, known);
    let when = when(&mut section, known, routes);
    let trusting = section.get("adaptive");
    let (key, policy) = (key?, policy?);
    let charged_later = count.is_some() || cost.as_ref().is_some_and(|it| it.cost.is_of_response());
    let base = BaseLimit { keys: &keys, policy: &policy, buckets };
    let candidate = other.candidate(tried, base, charged_later);
    let plans = plans.policies(base);
    let policies = plans.iter().map(|(_, it)| it).chain(&candidate).chain([&policy]);
    let adaptive = trusting.is_some_and(|value| adaptive(&value, known, &key, policies));
    if let Some(cost) = &cost {
        cost.check(&policy, count.is_some(), "the limit");
        cost.check_plans(&plans, count.is_some(), "");
    }
    Some(Limit {
        adaptive,
        plans,
        when: when?,
        description,
        enabled,
        cost: cost.map_or(Cost::Fixed(1), |it| it.cost),
        count,
        strategy,
        mode,
        candidate,
        refusal,
        missing: missing.unwrap_or(Missing::Ip),
        response_headers,
        on_error: on_error.unwrap_or(home.on_error),
        ..Limit::new(name, key, policy)
    })
}

/// How many buckets of the limit there may be in memory.
fn buckets(key: Option<&Key>, home: StoreContext) -> u64 {
    let few = |key: &Key| key.0.iter().all(|it| matches!(it, Source::Route | Source::Global));
    match home.in_memory {
        Some(max_keys) if !key.is_none_or(few) => max_keys,
        _ => 1,
    }
}

fn count(section: &mut Section<'_>, policy: Option<&Policy>) -> Option<Outcomes> {
    let value = section.get("count")?;
    let outcomes = cost::count(&value);
    if let Some(Policy::Concurrency(_)) = policy {
        value.error(
            "does not go with `concurrency`, which counts requests before they end",
            "remove it, or write another `algorithm`",
        );
        return None;
    }
    outcomes
}

pub(super) fn refusal(section: &mut Section<'_>) -> Refusal {
    let status = section.get("status").and_then(|value| value.integer(400..=599));
    let status = status.and_then(|it| StatusCode::from_u16(it as u16).ok());
    let message = section.get("message").and_then(|value| text(&value));
    Refusal { status: status.unwrap_or(StatusCode::TOO_MANY_REQUESTS), message }
}

/// A line for people to read.
pub(super) fn text(value: &Value<'_>) -> Option<String> {
    let text = value.text("Ten a minute for everyone.")?;
    if text.trim().is_empty() {
        value.error("is empty", "write a sentence, or leave it out");
    } else if text.chars().any(char::is_control) {
        value.error(
            &format!("has control characters: {}", quote(text)),
            "leave out line breaks, tabs and the like",
        );
    } else if text.chars().count() > LONGEST_TEXT {
        value.error("is too long", format!("write at most {LONGEST_TEXT} characters"));
    } else {
        return Some(text.to_owned());
    }
    None
}

fn missing(value: &Value<'_>, key: Option<&Key>) -> Option<Missing> {
    let missing = value.choice(&MISSING)?;
    if key.is_some_and(is_always_present) {
        value.warning(
            "has no effect: no request is without this key",
            "remove it, or count by what some requests lack, such as a `header:`",
        );
    }
    Some(missing)
}

pub(super) fn on_error(value: &Value<'_>, home: StoreContext) -> Option<OnError> {
    let on_error = store::on_error(value)?;
    if home.in_memory.is_some() {
        value.warning(
            "has no effect: the store is in memory, which does not fail",
            "remove it, or write `kind = \"redis\"` in `[store]`",
        );
    }
    Some(on_error)
}

/// Whether every request has all parts of a key, so that `missing` never comes into play.
pub(in crate::config) fn is_always_present(key: &Key) -> bool {
    let always = |it: &Source| {
        matches!(it, Source::Ip | Source::IpPrefix(_) | Source::Route | Source::Global)
    };
    key.0.iter().all(always)
}
