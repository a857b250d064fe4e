//! `key: value`, as YAML writes it: the line that was meant.

use std::ops::Range;

use toml::de::DeTable;

use crate::config::diagnostic::Diagnostic;
use crate::config::mask::SecretMask;

/// Words of keys whose values are not repeated, in any case: more than those whose values the line itself is
/// shown without.
const SECRETS: [&str; 7] = ["pass", "secret", "token", "hash", "auth", "credential", "key"];

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
    let has_secret = mask.touches(&(start..start + line.len())) || is_secret(key);
    let meant = if has_secret { None } else { as_toml(key, value.trim()) };
    let is_masked = mask.touches(&(start..start + line.len() - value.len() - 1));
    let meant = meant.unwrap_or_else(|| format!("{} = …", if is_masked { "KEY" } else { key }));
    let fault = Diagnostic::error(at.clone(), "a key and its value are parted by `=`, not by `:`");
    Some(fault.help(format!("write `{meant}`")))
}

/// Whether the value of that key may be one. That of `key` itself says what a limit counts by.
fn is_secret(key: &str) -> bool {
    let lower = key.to_ascii_lowercase();
    key != "key" && SECRETS.iter().any(|word| lower.contains(word))
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
