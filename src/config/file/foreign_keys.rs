//! Keys that other programs have for what Weir calls otherwise: nginx, Kong, Envoy.

use toml::de::DeValue;

use crate::config::units;

/// Theirs, and ours.
const RENAMED: [(&str, &str); 13] = [
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
    ("read_timeout", "response_timeout"),
    ("worker_processes", "workers"),
];

/// What to write in place of a key.
pub(super) struct Replacement {
    /// The key of ours that says it.
    pub(super) key: &'static str,
    pub(super) help: String,
}

/// `None` if no other program has the key, or if ours is not among those `known` here.
pub(super) fn replacement(name: &str, value: &DeValue<'_>, known: &[&str]) -> Option<Replacement> {
    let renamed = RENAMED.iter().find(|(theirs, _)| *theirs == name);
    let found = match renamed {
        Some((_, key)) => Replacement { key, help: format!("Weir calls it `{key}`") },
        None => rewritten(name, value)?,
    };
    known.contains(&found.key).then_some(found)
}

/// Keys whose values are written in another way as well.
fn rewritten(name: &str, value: &DeValue<'_>) -> Option<Replacement> {
    let write = |key, line: String| Replacement { key, help: format!("write `{line}`") };
    let failures = |key, usual| write(key, format!("{key} = {{ failures = {usual} }}"));
    Some(match name {
        "max_fails" => failures("ejection", count(value).unwrap_or(5)),
        "outlier_detection" => failures("ejection", 5),
        "circuit_breaker" | "circuit_breakers" => failures("breaker", 20),
        "fail_timeout" => {
            let time = match value {
                DeValue::String(text) if units::duration(text).is_some() => text,
                _ => "10s",
            };
            write("ejection", format!("ejection = {{ time = \"{time}\" }}"))
        }
        "second" | "minute" | "hour" | "day" => {
            let count = count(value).unwrap_or(20);
            write("rate", format!("rate = \"{count}/{name}\""))
        }
        "nodelay" => {
            let help = "leave it out: what fits into `burst` passes at once".to_owned();
            Replacement { key: "burst", help }
        }
        "policy" => {
            let is_local = matches!(value, DeValue::String(text) if text == "local");
            let kind = if is_local { "memory" } else { "redis" };
            let help = format!("it goes for all limits: write `kind = \"{kind}\"` in `[store]`");
            Replacement { key: "algorithm", help }
        }
        _ => return None,
    })
}

fn count(value: &DeValue<'_>) -> Option<u64> {
    match value {
        DeValue::Integer(number) if number.radix() == 10 => number.as_str().parse().ok(),
        _ => None,
    }
}
