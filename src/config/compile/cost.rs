//! `cost`, of a limit or a route, and `count`: what is charged, and for which outcomes.

use super::request_source::{self, is_connection_header};
use crate::config::file::{Section, Value, unique_values};
use crate::config::suggest::{nearest, one_of, quote, shown};
use crate::limit::rate::MAX_COUNT;
use crate::limit::tenants::TenantTree;
use crate::limit::{Cost, CostSource, Outcomes, Policy, Source};

const SOURCES: [&str; 3] = ["header:NAME", "query:NAME", "response:NAME"];

/// A cost as it is written.
pub(super) struct CostSpec<'a> {
    pub(super) cost: Cost,
    value: Value<'a>,
    /// Where it says what counts for requests that tell nothing.
    default: Option<Value<'a>>,
}

/// The `cost` of a limit or a route, if it has one that is good. Where a cost that is told has no
/// `max`, it is at most what `most` says of its source: see [`Cost::Dynamic`].
pub(super) fn cost<'a>(
    section: &mut Section<'a>,
    most: impl FnOnce(&CostSource) -> Option<u64>,
) -> Option<CostSpec<'a>> {
    let (value, mut table) = section.value_or_section("cost");
    let from = table.require("from", "from = \"header:x-weight\"").map(|value| source(&value));
    let default = table.get("default");
    let max = table.get("max");
    let value = value?;
    if let Some(written) = value.as_str() {
        let help = match written.split_once(':') {
            Some((kind, _)) if SOURCES.iter().any(|it| it.starts_with(&format!("{kind}:"))) => {
                format!("write `cost = {{ from = \"{}\" }}`", shown(written))
            }
            _ => format!(
                "write a number from 1 to {MAX_COUNT}, or a table such as \
                 `{{ from = \"header:x-weight\" }}`"
            ),
        };
        value.error("must be an integer or a table, not a string", help);
        return None;
    }
    if !value.is_table() {
        let cost = Cost::Fixed(value.integer(1..=MAX_COUNT)?);
        return Some(CostSpec { cost, value, default: None });
    }
    // Only the upstream may say that a request has cost nothing.
    let told_by_caller = matches!(from, Some(Some(CostSource::Header(_) | CostSource::Query(_))));
    let least = u64::from(told_by_caller);
    let usual = default.as_ref().map_or(Some(1), |it| it.integer(least..=MAX_COUNT));
    let highest = max.as_ref().map(|it| it.integer(1..=MAX_COUNT));
    let usual = usual?;
    let highest = match highest {
        Some(highest) => Some(highest?),
        None => most(from.as_ref()?.as_ref()?).map(|it| it.max(usual)),
    };
    if let (Some(max), Some(highest)) = (max, highest.filter(|highest| *highest < usual)) {
        max.error(
            &format!("is {highest}, below the `default` of {usual}"),
            format!("write at least {usual}, or a lower `default`"),
        );
        return None;
    }
    let cost = Cost::Dynamic { from: from??, default: usual, max: highest };
    Some(CostSpec { cost, value, default })
}

impl CostSpec<'_> {
    /// Notes what does not go with a limit that is charged so. `whose` is how messages call it.
    pub(super) fn check(&self, policy: &Policy, counts: bool, whose: &str) {
        // What is charged later only has to find something there.
        if !self.goes_with(policy, whose) || counts || self.cost.is_of_response() {
            return;
        }
        let quota = policy.quota();
        if self.usual() > quota {
            let (what, so) = (format!("{whose} never holds more than {quota}"), "every request is");
            self.warn_above(quota, &what, so, "the limit");
        }
    }

    /// The same for the buckets of tenants.
    pub(super) fn check_tenants(&self, tree: &TenantTree) {
        if self.cost.is_of_response() {
            return;
        }
        let cost = self.usual();
        let mut short = tree.tenants().iter().filter(|it| it.effective.quota() < cost);
        let Some(first) = short.next() else { return };
        let (name, quota) = (&first.spec.name, first.effective.quota());
        let others = match short.count() {
            0 => String::new(),
            1 => ", nor 1 other holds enough".to_owned(),
            many => format!(", nor {many} others hold enough"),
        };
        let what = format!("tenant `{name}` never holds more than {quota}{others}");
        let so = if others.is_empty() { "all its requests are" } else { "all their requests are" };
        self.warn_above(quota, &what, so, "the tenant");
    }

    /// What a request costs that tells nothing.
    fn usual(&self) -> u64 {
        match &self.cost {
            Cost::Fixed(cost) => *cost,
            Cost::Dynamic { default, .. } => *default,
        }
    }

    /// A cost that does not fit never passes, which is a way to close a route, too.
    fn warn_above(&self, quota: u64, what: &str, refused: &str, holder: &str) {
        let (value, so) = match &self.cost {
            Cost::Fixed(_) => (&self.value, format!(": {refused} refused")),
            Cost::Dynamic { .. } => (self.default.as_ref().unwrap_or(&self.value), String::new()),
        };
        value.warning(
            &format!("is {}, and {what}{so}", self.usual()),
            format!("write at most {quota}, or let {holder} hold more"),
        );
    }

    /// Notes that it never comes, where nobody is asked who would tell it.
    pub(super) fn warn_without_upstream(&self) {
        if self.cost.is_of_response() {
            let help = "write a number, or tell it by a `header:` or `query:`";
            self.value.warning("is always its `default`: the route has no upstream", help);
        }
    }

    /// The same for the plans of a limit, which have its algorithm: what does not go with that is
    /// noted already.
    pub(super) fn check_plans(&self, plans: &[(String, Policy)], counts: bool, of: &str) {
        for (name, policy) in plans {
            if !matches!(policy, Policy::Concurrency(_)) || !self.cost.is_of_response() {
                self.check(policy, counts, &format!("plan `{name}`{of}"));
            }
        }
    }

    /// Notes a fault if it comes too late for the policy.
    pub(super) fn goes_with(&self, policy: &Policy, whose: &str) -> bool {
        let late = self.cost.is_of_response() && matches!(policy, Policy::Concurrency(_));
        if late {
            self.value.error(
                &format!("comes with the response, and {whose} counts requests in flight"),
                "tell it by a `header:` or `query:`, or count by a rate",
            );
        }
        !late
    }
}

fn source(value: &Value<'_>) -> Option<CostSource> {
    let text = value.text("header:x-weight")?;
    let (kind, name) = text.split_once(':').unwrap_or((text, ""));
    let named = match kind {
        "header" | "response" => request_source::named("header", name),
        "query" => request_source::named("query", name),
        _ => {
            let kinds = SOURCES.map(|it| it.split_once(':').map_or(it, |(kind, _)| kind));
            let help = match nearest(kind, kinds) {
                Some(meant) => format!("did you mean `{meant}:NAME`?"),
                None => format!("write {}", one_of(SOURCES)),
            };
            value.error(&format!("cannot be {}", quote(text)), help);
            return None;
        }
    };
    match named {
        Some(Source::Header(name)) if is_connection_header(name.as_str()) => {
            let name = shown(name.as_str());
            value.error(
                &format!(
                    "cannot be `{kind}:{name}`: it belongs to a connection, and tells no cost"
                ),
                format!("name one that tells a cost, such as `\"{kind}:x-cost\"`"),
            );
            None
        }
        Some(Source::Header(name)) if kind == "header" => Some(CostSource::Header(name)),
        Some(Source::Header(name)) => Some(CostSource::Response(name)),
        Some(Source::Query(name)) => Some(CostSource::Query(name)),
        _ => {
            let what = if kind == "query" { "parameter" } else { "header" };
            value.error(
                &format!("does not name a {what}: {}", quote(text)),
                format!("write one such as `\"{kind}:x-cost\"`"),
            );
            None
        }
    }
}

/// `count`: one status or class, or several.
pub(super) fn count(value: &Value<'_>) -> Option<Outcomes> {
    let entries = value.one_or_more();
    if entries.is_empty() {
        value.error(
            "is empty: nothing would be charged",
            "name statuses such as `\"4xx\"`, or leave it out to charge every request",
        );
        return None;
    }
    let ranges = unique_values(&entries, outcome);
    (ranges.len() == entries.len()).then_some(Outcomes(ranges))
}

fn outcome(value: &Value<'_>) -> Option<(u16, u16)> {
    let text = value.text("4xx")?;
    let found = range(text);
    if found.is_none() {
        let lower = text.to_ascii_lowercase();
        let help = match range(&lower) {
            Some(_) => format!("write `\"{lower}\"`"),
            None => {
                "write a status from 100 to 599 such as `\"401\"`, or a class such as `\"4xx\"`"
                    .to_owned()
            }
        };
        value.error(&format!("is not a status: {}", quote(text)), help);
    }
    found
}

fn range(text: &str) -> Option<(u16, u16)> {
    let digit = |digit: &u8| digit.is_ascii_digit().then(|| u16::from(digit - b'0'));
    let [class, tens, ones] = text.as_bytes() else { return None };
    let class = digit(class).filter(|it| (1..=5).contains(it))? * 100;
    if [tens, ones] == [&b'x', &b'x'] {
        return Some((class, class + 99));
    }
    let status = class + digit(tens)? * 10 + digit(ones)?;
    Some((status, status))
}
