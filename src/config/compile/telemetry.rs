//! `[telemetry]`: where logs go, and how callers are named in them.

use std::ops::RangeInclusive;

use super::output_file;
use super::server::read;
use crate::config::file::{Section, UniqueValues, Value};
use crate::config::settings::{AuditTargets, LogTarget, Rotation, Telemetry};
use crate::config::suggest::quote;

/// When the audit log is rotated unless the file says otherwise, and how many files stay.
const MAX_SIZE: u64 = 100 << 20;
const KEEP: u64 = 5;
/// Below this a file holds a few lines.
const MIN_SIZE: u64 = 64 << 10;
const SIZES: RangeInclusive<u64> = 0..=1 << 40;

const LOG_FORM: &str =
    "write `off`, `stdout`, `stderr`, or a file with a `/` in its path or `.log` at its end";
const AUDIT_FORM: &str = "write `off`, `stdout`, `stderr`, `redis`, a file with a `/` in its path \
                          or `.log` at its end, or a list of these";

/// One entry of `audit_log`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum AuditTarget {
    Lines(LogTarget),
    Redis,
}

/// `in_redis`: whether gateways share a store there.
pub(super) fn telemetry(mut section: Section<'_>, in_redis: bool) -> Telemetry {
    let access_log = read(&mut section, "access_log", LogTarget::Off, |it| {
        log_target(it, it.text("stdout")?, LOG_FORM)
    });
    let written = section.get("audit_log");
    let targets = written.as_ref().and_then(|value| audit_targets(value, in_redis));
    // What all gateways share is asked at any of them, so it is written unless somebody says no.
    let lines = vec![LogTarget::Stderr];
    let usual = AuditTargets { lines, redis: in_redis, ..AuditTargets::default() };
    let targets = targets.unwrap_or(usual);
    let max_size = read(&mut section, "audit_max_size", MAX_SIZE, max_size);
    let keep = read(&mut section, "audit_keep", KEEP, |it| it.integer(0..=1_000)) as usize;
    Telemetry {
        access_log,
        audit_log: AuditTargets { rotation: Rotation { max_size, keep }, ..targets },
        hash_keys: read(&mut section, "hash_keys", false, Value::boolean),
    }
}

fn audit_targets(value: &Value<'_>, in_redis: bool) -> Option<AuditTargets> {
    let entries = value.one_or_more();
    if entries.is_empty() {
        value.error("is empty", "write `off` if nothing is to be recorded");
        return None;
    }
    let mut targets = AuditTargets::default();
    let mut seen = UniqueValues::new();
    for entry in &entries {
        let target = audit_target(entry, in_redis)?;
        if target == AuditTarget::Lines(LogTarget::Off) && entries.len() > 1 {
            entry.error("cannot be `off` beside others", "write `audit_log = \"off\"`, or drop it");
            return None;
        }
        if !seen.insert(target.clone(), entry) {
            continue;
        }
        match target {
            AuditTarget::Redis => targets.redis = true,
            AuditTarget::Lines(LogTarget::Off) => {}
            AuditTarget::Lines(target) => targets.lines.push(target),
        }
    }
    Some(targets)
}

fn audit_target(value: &Value<'_>, in_redis: bool) -> Option<AuditTarget> {
    match value.text("stdout")? {
        "redis" if in_redis => Some(AuditTarget::Redis),
        "redis" => {
            value.error(
                "cannot be `redis`: the store is in memory",
                "set `store.kind = \"redis\"`, or name a file; violations can be asked for anyway",
            );
            None
        }
        text => log_target(value, text, AUDIT_FORM).map(AuditTarget::Lines),
    }
}

/// 0 is never.
fn max_size(value: &Value<'_>) -> Option<u64> {
    let size = value.size(SIZES)?;
    if (1..MIN_SIZE).contains(&size) {
        value.error("is too small for a log", "write a size from 64KiB on, or 0 for no rotation");
        return None;
    }
    Some(size)
}

/// A file is known by a `/` in it or a `.log` behind it, so that a misspelled word is not one.
fn log_target(value: &Value<'_>, text: &str, form: &str) -> Option<LogTarget> {
    match text {
        "off" => Some(LogTarget::Off),
        "stdout" => Some(LogTarget::Stdout),
        "stderr" => Some(LogTarget::Stderr),
        path if path.contains('\0') || path.ends_with('/') => {
            value.error(&format!("is not the path of a file: {}", quote(path)), form);
            None
        }
        path if path.contains('/') || path.ends_with(".log") => {
            output_file::output_path(path, value).map(LogTarget::File)
        }
        other => {
            value.error(&format!("cannot be {}", quote(other)), form);
            None
        }
    }
}
