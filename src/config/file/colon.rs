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

/// `None` if that is no line of TOML, with or without quotes.
fn as_toml(key: &str, value: &str) -> Option<String> {
    let is_toml = |line: &String| DeTable::parse(line).is_ok();
    let value = value.split(" #").next().unwrap_or_default().trim_end();
    if value.is_empty() {
        return None;
    }
    let lines = [format!("{key} = {value}"), format!("{key} = \"{value}\"")];
    lines.into_iter().find(is_toml)
}
