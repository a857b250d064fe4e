//! `[limits.tenants]`: what of the limit that tenants make is not in the tree.

use super::super::cost::cost;
use super::super::limits::{LimitContext, MISSING, on_error, refusal, text};
use super::super::parsed_key::ParsedKey;
use super::super::rate::rate;
use super::super::server::read;
use super::super::strategy::MODES;
use super::super::when::{RouteName, when};
use crate::config::file::{Section, Value};
use crate::limit::tenants::{TenantLimit, TenantTree};
use crate::limit::token_bucket::{MAX_BURST, TokenBucket};
use crate::limit::{Cost, Missing, Mode, Policy};

pub(in super::super) fn tenant_limit<'a>(
    mut section: Section<'a>,
    context: LimitContext,
    tree: &TenantTree,
    routes: &mut Vec<RouteName<'a>>,
) -> TenantLimit {
    let LimitContext { store, identities } = context;
    let unknown = unknown(&mut section);
    let missing = missing(&mut section, unknown.as_ref());
    let refusal = refusal(&mut section);
    let on_error = section.get("on_error").and_then(|value| on_error(&value, store));
    // Each bucket on the way up by what it holds itself.
    let cost = cost(&mut section, |_| None);
    if let Some(cost) = &cost {
        cost.check_tenants(tree);
        if let Some(unknown) = &unknown {
            cost.check(unknown, false, "a tenant that is not in the tree");
        }
    }
    TenantLimit {
        description: section.get("description").and_then(|value| text(&value)),
        enabled: read(&mut section, "enabled", true, Value::boolean),
        missing,
        unknown: unknown.filter(|_| matches!(missing, Missing::Ip | Missing::Shared)),
        when: when(&mut section, identities, routes).unwrap_or_default(),
        cost: cost.map_or(Cost::Fixed(1), |it| it.cost),
        mode: read(&mut section, "mode", Mode::Enforce, |it| it.choice(&MODES)),
        refusal,
        response_headers: read(&mut section, "response_headers", true, Value::boolean),
        on_error: on_error.unwrap_or(store.on_error),
        ..TenantLimit::default()
    }
}

/// `rate` and `burst`, which are for tenants that are not in the tree.
fn unknown(section: &mut Section<'_>) -> Option<Policy> {
    let rate = ParsedKey::of(section.get("rate"), |it| rate(it, it.text("100/minute")?));
    let burst = ParsedKey::of(section.get("burst"), |it| it.integer(1..=MAX_BURST));
    if rate.is_absent() {
        burst.warn_without_effect("there is no `rate`", "remove it, or add a `rate`");
    }
    let rate_value = rate.value.as_ref()?;
    let (rate, burst) = (rate.it?, burst.or(rate.it?.count())?);
    let bucket = TokenBucket::new(rate, burst);
    if let Err(why) = &bucket {
        let help = "write a smaller `burst`, or a higher `rate`";
        rate_value.error(&format!("does not go with a burst of {burst}: {why}"), help);
    }
    bucket.ok().map(Policy::TokenBucket)
}

/// What becomes of tenants that are not in the tree: they need numbers to be counted by.
fn missing(section: &mut Section<'_>, unknown: Option<&Policy>) -> Missing {
    let has_rate = section.has("rate");
    let usual = if has_rate { Missing::Ip } else { Missing::Deny };
    let Some(value) = section.get("missing") else { return usual };
    let Some(missing) = value.choice(&MISSING) else { return usual };
    let counted = matches!(missing, Missing::Ip | Missing::Shared);
    if counted && !has_rate {
        value.error(
            "counts tenants that are not in the tree, and there is no `rate` for them",
            "add a line such as `rate = \"100/minute\"`, or write `deny` or `skip`",
        );
    }
    if !counted && unknown.is_some() {
        value.warning(
            "leaves the `rate` without effect: tenants that are not in the tree are not counted",
            "remove the `rate`, or write `ip` or `shared`",
        );
    }
    missing
}
