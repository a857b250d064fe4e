//! Keys that other programs have for what Weir calls otherwise: nginx, Kong, Envoy.

use toml::de::{DeTable, DeValue};

use super::client_keys;
use super::value::whole;
use crate::config::settings::{Breaker, Ejection};
use crate::config::units::{self, SOME_TIME};

/// Theirs, and ours.
const RENAMED: [(&str, &str); 18] = [
    ("client_body_timeout", "request_timeout"),
    ("client_header_timeout", "header_timeout"),
    ("client_max_body_size", "max_body"),
    ("keepalive_timeout", "idle_timeout"),
    ("lb_policy", "balance"),
    ("limit_by", "key"),
    ("max_conns", "max_connections"),
    ("max_pending_requests", "max_pending"),
    ("num_retries", "retries"),
    ("proxy_connect_timeout", "connect_timeout"),
    ("proxy_next_upstream_tries", "retries"),
    ("proxy_read_timeout", "response_timeout"),
    ("proxy_send_timeout", "request_timeout"),
    ("read_timeout", "response_timeout"),
    // In a `[server]`, where it is that of a request.
    ("read_timeout", "request_timeout"),
    ("send_timeout", "request_timeout"),
    ("worker_processes", "workers"),
    ("write_timeout", "request_timeout"),
];

/// What to write in place of a key.
pub(super) struct Replacement {
    /// The key of ours that says it.
    pub(super) key: &'static str,
    pub(super) help: String,
}

/// Whether other programs have a key, so that it is no misspelling of what looks like it.
pub(super) fn is_foreign(name: &str) -> bool {
    RENAMED.iter().any(|(theirs, _)| *theirs == name)
}

/// `None` if no other program has the key, or if ours is not among those `known` here. A line that is
/// written out is one that Weir takes, and that does not repeat a key of the `table`.
pub(super) fn replacement(
    name: &str,
    table: &DeTable<'_>,
    known: &[&str],
    store: Option<&str>,
) -> Option<Replacement> {
    if known.contains(&"key_hash")
        && let Some(help) = client_keys::help(name, table.contains_key("key_hash"))
    {
        return Some(Replacement { key: "key_hash", help });
    }
    let is_ours = |(theirs, ours): &&(&str, &str)| *theirs == name && known.contains(ours);
    let renamed = RENAMED.iter().find(is_ours);
    let found = match renamed {
        Some((_, key)) => Replacement { key, help: renamed_help(key, table) },
        None => rewritten(name, &ForeignTable { table }, store)?,
    };
    known.contains(&found.key).then_some(found)
}

fn renamed_help(ours: &str, table: &DeTable<'_>) -> String {
    match table.contains_key(ours) {
        true => format!("remove it: Weir calls it `{ours}`, which is there"),
        false => format!("Weir calls it `{ours}`"),
    }
}

/// Keys whose values are written in another way as well.
/// `store` is the kind of the store.
fn rewritten(name: &str, table: &ForeignTable<'_>, store: Option<&str>) -> Option<Replacement> {
    let (key, help) = match name {
        "max_fails" | "fail_timeout" | "outlier_detection" => {
            let parts = [table.failures(), table.time()];
            let own = usize::from(name == "fail_timeout");
            let names = ["max_fails", "fail_timeout", "outlier_detection"];
            ("ejection", table.one_table(name, &names, "ejection", &parts, own))
        }
        "circuit_breakers" if let Some(help) = table.connections(name) => ("max_connections", help),
        "circuit_breaker" | "circuit_breakers" => {
            let parts = [Some(("failures", Breaker::USUAL_FAILURES.to_string()))];
            let names = ["circuit_breaker", "circuit_breakers"];
            ("breaker", table.one_table(name, &names, "breaker", &parts, 0))
        }
        "second" | "minute" | "hour" | "day" => ("rate", table.rate(name)),
        "nodelay" => ("burst", "leave it out: what fits into `burst` passes at once".to_owned()),
        "policy" => {
            let is_local = matches!(table.value(name), Some(DeValue::String(it)) if it == "local");
            let kind = if is_local { "memory" } else { "redis" };
            let there = store.unwrap_or("memory");
            let help = if there == kind || (there, kind) == ("hybrid", "redis") {
                format!("remove it: the store of all limits is `{there}` already")
            } else {
                format!("it goes for all limits: write `kind = \"{kind}\"` in `[store]`")
            };
            ("algorithm", help)
        }
        _ => return None,
    };
    Some(Replacement { key, help })
}

/// A key of ours and its value.
type Assignment = (&'static str, String);

/// A table that has keys of other programs.
struct ForeignTable<'t> {
    table: &'t DeTable<'t>,
}

impl ForeignTable<'_> {
    fn value(&self, name: &str) -> Option<&DeValue<'_>> {
        self.table.get(name).map(|it| it.get_ref())
    }

    /// The help for `name`, one of several keys that together are one table of `ours`. Only the first of
    /// them is told the line, with all `parts`: a line for each would be a duplicate key. Where the table
    /// is there already, each is told its `own` part.
    fn one_table(
        &self,
        name: &str,
        names: &[&str],
        ours: &str,
        parts: &[Option<Assignment>],
        own: usize,
    ) -> String {
        let line = |(key, value): &Assignment| format!("{key} = {value}");
        if let (Some(there), Some(Some(part))) = (self.value(ours), parts.get(own)) {
            let has = matches!(there, DeValue::Table(table) if table.contains_key(part.0));
            return match has {
                true => format!("remove it: `{ours}` has `{}`", part.0),
                false => format!("write `{}` in `{ours}`", line(part)),
            };
        }
        match self.first_of(names) {
            Some(first) if first != name => format!("remove it: the line for `{first}` says it"),
            _ => {
                let parts: Vec<String> = parts.iter().flatten().map(line).collect();
                format!("write `{ours} = {{ {} }}`", parts.join(", "))
            }
        }
    }

    /// The help for a table of bounds that Envoy has for connections, if it is one.
    fn connections(&self, name: &str) -> Option<String> {
        let bounds = match self.value(name)? {
            DeValue::Table(table) => table,
            _ => return None,
        };
        let bounds = match bounds.get("thresholds").map(|it| it.get_ref()) {
            Some(DeValue::Array(items)) => match items.iter().next()?.get_ref() {
                DeValue::Table(table) => table,
                _ => return None,
            },
            _ => bounds,
        };
        let renamed =
            [("max_connections", "max_connections"), ("max_pending_requests", "max_pending")];
        let written = renamed.into_iter().filter_map(|(theirs, ours)| {
            let number = count(bounds.get(theirs)?.get_ref());
            Some((ours, number.filter(|it| *it <= 1_000_000)))
        });
        let written: Vec<_> = written.collect();
        let lacking = written.iter().filter(|(ours, _)| self.value(ours).is_none());
        let lines: Vec<String> = lacking
            .map(|(ours, number)| match number {
                Some(number) => format!("`{ours} = {number}`"),
                None => format!("`{ours}`"),
            })
            .collect();
        match (written.first()?, lines.is_empty()) {
            ((ours, _), true) => Some(format!("remove it: `{ours}` is there")),
            _ => Some(format!("write {} in its place", lines.join(" and "))),
        }
    }

    fn failures(&self) -> Option<Assignment> {
        let value = self.value("max_fails").or_else(|| self.value("outlier_detection"))?;
        let usual = u64::from(Ejection::default().failures);
        let failures = count(value).filter(|it| Ejection::FAILURES.contains(it)).unwrap_or(usual);
        Some(("failures", failures.to_string()))
    }

    fn time(&self) -> Option<Assignment> {
        let time = duration(self.value("fail_timeout")?).unwrap_or_else(|| "10s".to_owned());
        Some(("time", format!("\"{time}\"")))
    }

    fn rate(&self, period: &str) -> String {
        let rate = |count: u64| format!("{count}/{period}");
        let written = self.value(period).and_then(count).map(rate);
        let rate = written.filter(|it| units::rate(it).is_ok()).unwrap_or_else(|| rate(20));
        let first = self.first_of(&["second", "minute", "hour", "day"]);
        if self.value("rate").is_some() || first.is_some_and(|it| it != period) {
            return format!(
                "there can be one `rate` only: remove it, or give another limit `rate = \"{rate}\"`"
            );
        }
        format!("write `rate = \"{rate}\"`")
    }

    /// The one of these that the file has first.
    fn first_of<'n>(&self, names: &[&'n str]) -> Option<&'n str> {
        let place = |name: &str| self.table.get_key_value(name).map(|(key, _)| key.span().start);
        let places = names.iter().filter_map(|name| Some((place(name)?, *name)));
        places.min().map(|(_, name)| name)
    }
}

fn count(value: &DeValue<'_>) -> Option<u64> {
    match value {
        DeValue::Integer(number) => whole(number),
        _ => None,
    }
}

/// A time as Weir writes it, from one in another spelling or a number of seconds.
fn duration(value: &DeValue<'_>) -> Option<String> {
    let text = match value {
        DeValue::String(text) => text.to_string(),
        _ => count(value)?.to_string(),
    };
    let several = || units::duration(&text).filter(|it| SOME_TIME.contains(it));
    units::meant_duration(&text, &SOME_TIME).or_else(|| several().map(units::show_duration))
}
