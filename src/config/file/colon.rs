//! `key: value`, as YAML writes it: the line that was meant.

use std::ops::Range;

use toml::de::DeTable;

use super::client_keys::{self, ends_in_client};
use crate::config::diagnostic::Diagnostic;
use crate::config::mask::SecretMask;

/// What to say of a line where the parser missed an `=`, if it has a `:` in its place.
pub(super) fn fault(text: &str, mask: &SecretMask, at: &Range<usize>) -> Option<Diagnostic> {
    let before = text.get(..at.start)?;
    let start = before.rfind('\n').map_or(0, |found| found + 1);
    let line = text[start..].lines().next()?;
    let (key, value) = line.split_once(':')?;
    let key = key.trim();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if key.is_empty() || !key.chars().all(plain) {
        return None;
    }
    let fault = Diagnostic::error(at.clone(), "a key and its value are parted by `=`, not by `:`");
    if ends_in_client(before)
        && let Some(help) = client_keys::help(key, false)
    {
        return Some(fault.help(help));
    }
    let has_secret = mask.touches(&(start..start + line.len()));
    let meant = if has_secret { None } else { as_toml(key, value.trim()) };
    let is_masked = mask.touches(&(start..start + line.len() - value.len() - 1));
    let meant = meant.unwrap_or_else(|| format!("{} = …", if is_masked { "KEY" } else { key }));
    Some(fault.help(format!("write `{meant}`")))
}

/// Keys by what their values are, as far as people write these in another way elsewhere. What other
/// keys take is not known here.
pub(in crate::config) const LISTS: [&str; 5] =
    ["limits", "guards", "methods", "servers", "trusted_proxies"];
pub(in crate::config) const BOOLEANS: [&str; 8] = [
    "adaptive",
    "cluster",
    "enabled",
    "http2",
    "proxy_protocol",
    "redirect_https",
    "required",
    "response_headers",
];
pub(in crate::config) const NUMBERS: [&str; 14] = [
    "burst",
    "cost",
    "keepalive",
    "limit",
    "max_body",
    "max_connections",
    "max_keys",
    "max_pending",
    "max_queue",
    "max_requests",
    "retries",
    "status",
    "threshold",
    "workers",
];

/// The line as Weir takes it; `None` if that is not known.
fn as_toml(key: &str, value: &str) -> Option<String> {
    let is_toml = |line: &String| DeTable::parse(line).is_ok();
    let value = value.split(" #").next().unwrap_or_default().trim_end();
    let bare = value.trim_matches(['"', '\'']);
    if bare.is_empty() {
        return None;
    }
    let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
    let written = if BOOLEANS.contains(&key) {
        boolean(bare)?.to_owned()
    } else if NUMBERS.contains(&key) {
        Some(value).filter(|_| is_number)?.to_owned()
    } else if LISTS.contains(&key) {
        list_of(value)?
    } else if value.starts_with(['"', '\'']) {
        value.to_owned()
    } else if is_number || value.starts_with(['[', '{']) || boolean(value).is_some() {
        return None;
    } else {
        format!("\"{value}\"")
    };
    Some(format!("{key} = {written}")).filter(is_toml)
}

/// As YAML and nginx have them.
fn boolean(value: &str) -> Option<&'static str> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" => Some("true"),
        "false" | "no" | "off" => Some("false"),
        _ => None,
    }
}

/// A list of texts, each with its quotes.
fn list_of(value: &str) -> Option<String> {
    let inner = value.strip_prefix('[').map_or(Some(value), |it| it.strip_suffix(']'))?;
    let entries = inner.split(',').map(|it| it.trim().trim_matches(['"', '\''])).map(|entry| {
        let is_plain = !entry.is_empty() && !entry.contains(['"', '[', ']', '{', '}', ' ']);
        is_plain.then(|| format!("\"{entry}\""))
    });
    Some(format!("[{}]", entries.collect::<Option<Vec<_>>>()?.join(", ")))
}
