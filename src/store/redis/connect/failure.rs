//! Why Redis could not decide, and what that says of it.

use std::time::Duration;

use redis::{ErrorKind, RedisError, Value};

use crate::store::redis::wire::reply::ReplyError;

/// What went wrong, as metrics count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
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
    /// It ran the call only after its deadline, and charged nothing.
    Expired,
    /// Nothing was sent: the breaker is open, or there was no time left.
    NotAsked,
    Other,
}

impl Reason {
    /// Whether Redis is there and yet does not serve: that does not pass by itself.
    pub(crate) fn needs_operator(self) -> bool {
        !matches!(
            self,
            Reason::Timeout
                | Reason::Expired
                | Reason::Connection
                | Reason::Loading
                | Reason::NotAsked
        )
    }

    /// The label of `weir_store_errors_total`, one of
    /// [`STORE_ERRORS`](crate::telemetry::metrics::STORE_ERRORS).
    pub(crate) fn label(self) -> &'static str {
        match self {
            Reason::Timeout | Reason::Expired => "timeout",
            Reason::Connection => "connection",
            Reason::Loading => "loading",
            Reason::ReadOnly => "readonly",
            Reason::Busy => "busy",
            Reason::Oom => "oom",
            Reason::Cluster => "cluster",
            Reason::Script => "script",
            Reason::Reply => "reply",
            Reason::Denied => "denied",
            Reason::NotAsked | Reason::Other => "other",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub(crate) struct Failure {
    pub(crate) reason: Reason,
    detail: String,
}

impl Failure {
    pub(crate) fn new(reason: Reason, detail: impl Into<String>) -> Self {
        /// A server may answer with anything.
        const MOST: usize = 300;
        let mut detail: String = detail.into();
        detail.truncate(detail.floor_char_boundary(MOST));
        Failure { reason, detail }
    }

    /// Whether the server has not said that it did not run the call.
    pub(crate) fn is_silence(&self) -> bool {
        matches!(self.reason, Reason::Timeout | Reason::Connection | Reason::Reply)
    }

    pub(crate) fn unexpected(value: &Value) -> Self {
        Failure::new(Reason::Reply, format!("it answered with {value:?}"))
    }

    pub(crate) fn not_asked() -> Self {
        Failure::new(Reason::NotAsked, "it was not asked")
    }

    pub(crate) fn timeout() -> Self {
        Failure::new(Reason::Timeout, "no answer in time")
    }

    pub(crate) fn expired() -> Self {
        Failure::new(Reason::Expired, "no answer in time")
    }
}

/// What Redis's answers say of `store.timeout`.
impl Failure {
    /// Answers come later than any decision waits.
    pub(crate) fn too_slow(answer: Duration, timeout: Duration) -> Self {
        Failure::slow(answer, "", timeout)
    }

    /// A request that comes while a call is out waits for that one and for its own: answers that
    /// one decision can wait for may yet be too late when there are many.
    pub(crate) fn barely_in_time(answer: Duration, timeout: Duration) -> Option<Self> {
        (answer * 2 > timeout)
            .then(|| Failure::slow(answer, ", and a busy gateway waits for two of them", timeout))
    }

    fn slow(answer: Duration, how: &str, timeout: Duration) -> Self {
        let answer = answer.as_micros().div_ceil(1000);
        // Two answers, and a little more.
        let enough = (answer * 22).div_ceil(10);
        let enough = if enough > 20 { enough.next_multiple_of(10) } else { enough };
        let timeout = timeout.as_millis();
        Failure::new(
            Reason::Timeout,
            format!(
                "answers take {answer} ms{how}, more than store.timeout = {timeout}ms: raise it to \
                 at least {enough}ms, or bring Redis closer"
            ),
        )
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
            // With its text it is sent only while there is time: see `call_script`.
            Some("NOSCRIPT") => Reason::NotAsked,
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
        Failure::new(reason, text)
    }
}

impl From<ReplyError> for Failure {
    fn from(error: ReplyError) -> Self {
        Failure::new(Reason::Reply, error.to_string())
    }
}

#[cfg(test)]
mod tests;
