//! Why Redis could not decide, and what that says of it.

use redis::{ErrorKind, RedisError};

use super::reply::ReplyError;

/// What went wrong, as metrics count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// No answer within the deadline.
    Timeout,
    /// It cannot be reached, or the connection broke.
    Connection,
    /// It is still reading its data from disk.
    Loading,
    /// It is a replica now.
    ReadOnly,
    /// Another client's script keeps it busy.
    Busy,
    /// Its memory is full.
    Oom,
    /// The cluster has no owner for a slot.
    Cluster,
    Script,
    /// It answered something else than the script does.
    Reply,
    /// Name, password or permission are not enough.
    Denied,
    /// Nobody has asked it: the breaker is open.
    Open,
    Other,
}

impl Reason {
    /// The label of `weir_store_errors_total`, one of
    /// [`STORE_ERRORS`](crate::telemetry::metrics::STORE_ERRORS).
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Reason::Timeout => "timeout",
            Reason::Connection => "connection",
            Reason::Loading => "loading",
            Reason::ReadOnly => "readonly",
            Reason::Busy => "busy",
            Reason::Oom => "oom",
            Reason::Cluster => "cluster",
            Reason::Script => "script",
            Reason::Reply => "reply",
            Reason::Denied => "denied",
            Reason::Open | Reason::Other => "other",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct Failure {
    pub reason: Reason,
    detail: String,
}

impl Failure {
    pub(super) fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Failure { reason, detail: detail.into() }
    }

    /// Whether the server has not said that it did not run the call.
    pub(super) fn is_silence(&self) -> bool {
        matches!(self.reason, Reason::Timeout | Reason::Connection | Reason::Reply)
    }

    pub(super) fn open() -> Self {
        Failure::new(Reason::Open, "the breaker is open")
    }

    pub(super) fn timeout() -> Self {
        Failure::new(Reason::Timeout, "no answer in time")
    }
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        // Before version 7 an error inside a script hides its code in the text.
        let text = error.to_string();
        let inside = |code: &str| text.contains(code);
        let reason = match error.code() {
            Some("LOADING") => Reason::Loading,
            Some("READONLY" | "MASTERDOWN") => Reason::ReadOnly,
            Some("BUSY" | "UNKILLABLE") => Reason::Busy,
            Some("OOM") => Reason::Oom,
            Some("NOAUTH" | "WRONGPASS" | "NOPERM") => Reason::Denied,
            Some("CLUSTERDOWN" | "MOVED" | "ASK" | "TRYAGAIN" | "CROSSSLOT") => Reason::Cluster,
            _ if inside("OOM command not allowed") => Reason::Oom,
            _ if inside("READONLY") => Reason::ReadOnly,
            Some("ERR") if inside("script") => Reason::Script,
            Some(_) => Reason::Other,
            None => match error.kind() {
                ErrorKind::AuthenticationFailed => Reason::Denied,
                ErrorKind::Parse | ErrorKind::UnexpectedReturnType => Reason::Reply,
                _ if error.is_timeout() => Reason::Timeout,
                ErrorKind::Io => Reason::Connection,
                _ => Reason::Other,
            },
        };
        Failure { reason, detail: text }
    }
}

impl From<ReplyError> for Failure {
    fn from(error: ReplyError) -> Self {
        Failure::new(Reason::Reply, error.to_string())
    }
}
