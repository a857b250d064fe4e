//! `[telemetry]`: where logs go, how callers are named in them, and which ids requests have.

use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;

use super::output_file::{self, file_identity};
use super::server::read;
use super::traces::traces;
use crate::config::diagnostic::Diagnostic;
use crate::config::file::{Section, UniqueValues, Value};
use crate::config::settings::{
    AccessLogFormat, AuditTargets, IdSource, LogTarget, Rotation, Telemetry,
};
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

/// The file that another log is written to.
struct TakenFile {
    identity: PathBuf,
    span: Range<usize>,
}

/// `in_redis`: whether gateways share a store there. `has_proxies`: whether there are any to trust.
pub(super) fn telemetry(mut section: Section<'_>, in_redis: bool, has_proxies: bool) -> Telemetry {
    let written = section.get("access_log");
    let access_log = written.as_ref().and_then(|it| log_target(it, it.text("stdout")?, LOG_FORM));
    let taken = written.zip(access_log.as_ref().and_then(identity));
    let taken = taken.map(|(value, identity)| TakenFile { identity, span: value.span() });
    let written = section.get("audit_log");
    let targets = written.as_ref().and_then(|value| audit_targets(value, in_redis, taken.as_ref()));
    let is_faulty = written.is_some() && targets.is_none();
    // What all gateways share is asked at any of them, so it is written unless somebody says no.
    let lines = vec![LogTarget::Stderr];
    let usual = AuditTargets { lines, redis: in_redis, ..AuditTargets::default() };
    let targets = targets.unwrap_or(usual);
    let is_file = |target: &LogTarget| matches!(target, LogTarget::File(_));
    let rotates = is_faulty || targets.lines.iter().any(is_file);
    let rotation = rotation(&mut section, rotates);
    let access_log = access_log.unwrap_or(LogTarget::Off);
    // Lines are found again by their ids.
    let usual = (access_log != LogTarget::Off).then_some(IdSource::Any);
    let access_log_format = access_log_format(&mut section, &access_log);
    Telemetry {
        access_log,
        access_log_format,
        request_id: read(&mut section, "request_id", usual, |it| id_source(it, has_proxies)),
        traces: traces(section.section("traces"), has_proxies),
        audit_log: AuditTargets { rotation, ..targets },
        hash_keys: read(&mut section, "hash_keys", false, Value::boolean),
    }
}

fn access_log_format(section: &mut Section<'_>, log: &LogTarget) -> AccessLogFormat {
    read(section, "access_log_format", AccessLogFormat::Json, |value| {
        let formats = [("json", AccessLogFormat::Json), ("combined", AccessLogFormat::Combined)];
        let format = value.choice(&formats)?;
        if format != AccessLogFormat::Json && *log == LogTarget::Off {
            let help = "add one such as `access_log = \"stdout\"`, or remove it";
            value.warning("has no effect: there is no `access_log`", help);
        }
        Some(format)
    })
}

/// Whose ids are believed, if anybody's.
pub(super) fn id_source(value: &Value<'_>, has_proxies: bool) -> Option<Option<IdSource>> {
    let (any, trusted) = (Some(IdSource::Any), Some(IdSource::TrustedProxies));
    let source = value.choice(&[("any", any), ("trusted", trusted), ("off", None)])?;
    if source == trusted && !has_proxies {
        value.warning(
            "believes nobody: there are no `trusted_proxies`",
            "list your proxies in `identity.trusted_proxies`",
        );
    }
    Some(source)
}

/// When files of the audit log are moved aside, if there are any.
fn rotation(section: &mut Section<'_>, rotates: bool) -> Rotation {
    let mut number = |key, default, parse: fn(&Value<'_>) -> Option<u64>| {
        read(section, key, default, |value| {
            let number = parse(value)?;
            if !rotates && number != default {
                let help = "remove it, or name a file in `audit_log`";
                value.warning("has no effect: `audit_log` names no file", help);
            }
            Some(number)
        })
    };
    Rotation {
        max_size: number("audit_max_size", MAX_SIZE, max_size),
        keep: number("audit_keep", KEEP, |it| it.integer(0..=1_000)) as usize,
    }
}

fn audit_targets(
    value: &Value<'_>,
    in_redis: bool,
    taken: Option<&TakenFile>,
) -> Option<AuditTargets> {
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
        let file = match &target {
            AuditTarget::Lines(target) => identity(target),
            AuditTarget::Redis => None,
        };
        if let Some(taken) = taken.filter(|it| file.as_ref() == Some(&it.identity)) {
            report_taken(entry, taken);
            return None;
        }
        let as_seen = file.map(|file| AuditTarget::Lines(LogTarget::File(file)));
        if !seen.insert(as_seen.unwrap_or_else(|| target.clone()), entry) {
            continue;
        }
        match target {
            AuditTarget::Redis => targets.redis = true,
            AuditTarget::Lines(LogTarget::Off) => {}
            AuditTarget::Lines(target) => targets.lines.push(target),
        }
    }
    if targets.redis && targets.lines.is_empty() {
        value.warning(
            "keeps violations only: Redis takes no other event, such as `override_set`",
            "add a file or `stderr`: `audit_log = [\"redis\", \"stderr\"]`",
        );
    }
    Some(targets)
}

/// Two logs in one file would be mixed, and the one that is rotated takes the other away with it.
fn report_taken(value: &Value<'_>, taken: &TakenFile) {
    let fault = Diagnostic::error(value.span(), "`audit_log` is the file of `access_log`");
    let fault = fault.also(taken.span.clone(), "which is here");
    value.report(fault.help("name another file: they would be mixed, and rotated together"));
}

fn identity(target: &LogTarget) -> Option<PathBuf> {
    match target {
        LogTarget::File(path) => file_identity(path),
        _ => None,
    }
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
