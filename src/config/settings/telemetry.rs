//! Where logs go.

use std::path::PathBuf;

/// `[telemetry]`: logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Telemetry {
    /// A line for each request.
    pub access_log: LogTarget,
    /// A line for each event that an operator may have to account for.
    pub audit_log: AuditTargets,
    /// Whether logs name callers by a hash only.
    pub hash_keys: bool,
}

/// Where the lines of a log go.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LogTarget {
    Off,
    Stdout,
    Stderr,
    File(PathBuf),
}

/// Where audit events go: to all of these.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditTargets {
    pub lines: Vec<LogTarget>,
    /// The stream in the Redis that gateways share.
    pub redis: bool,
    pub rotation: Rotation,
}

/// When a log file is moved aside, and how many such files stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rotation {
    /// In bytes; 0: never.
    pub max_size: u64,
    pub keep: usize,
}
