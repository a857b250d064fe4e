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
mod tests {
    use std::io;

    use super::*;
    use crate::telemetry::metrics::STORE_ERRORS;

    /// What comes of an error line as servers send them.
    fn said(line: &str) -> Failure {
        let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).expect("a reply");
        value.extract_error().expect_err("an error").into()
    }

    #[test]
    fn servers_are_understood() {
        let lines = [
            ("LOADING Redis is loading the dataset in memory", Reason::Loading),
            ("READONLY You can't write against a read only replica.", Reason::ReadOnly),
            (
                "READONLY You can't write against a read only replica. script: 6f9d, on \
                 @user_script:1.",
                Reason::ReadOnly,
            ),
            (
                "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
                Reason::ReadOnly,
            ),
            (
                "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN \
                 NOSAVE.",
                Reason::Busy,
            ),
            ("OOM command not allowed when used memory > 'maxmemory'.", Reason::Oom),
            ("NOAUTH Authentication required.", Reason::Denied),
            ("WRONGPASS invalid username-password pair or user is disabled.", Reason::Denied),
            ("NOPERM this user has no permissions to run the 'evalsha' command", Reason::Denied),
            ("CLUSTERDOWN Hash slot not served", Reason::Cluster),
            ("MOVED 3999 127.0.0.1:6381", Reason::Cluster),
            ("ASK 3999 127.0.0.1:6381", Reason::Cluster),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Reason::Cluster),
            ("CROSSSLOT Keys in request don't hash to the same slot", Reason::Cluster),
            (
                "ERR user_script:1: Script attempted to access nonexistent global variable 'x' \
                 script: 6f9d, on @user_script:1.",
                Reason::Script,
            ),
            ("ERR max number of clients reached", Reason::Other),
            ("MISCONF Redis is configured to save RDB snapshots", Reason::Other),
            ("NOREPLICAS Not enough good replicas to write.", Reason::Other),
            ("FENCED this call has been given up", Reason::Other),
        ];
        for (line, reason) in lines {
            let failure = said(line);
            assert_eq!(failure.reason, reason, "{line}");
            assert!(!failure.is_silence(), "it says that nothing was run: {line}");
        }
    }

    /// As versions before 7 wrap what goes wrong inside a script.
    #[test]
    fn servers_are_understood_that_hide_the_code() {
        let wrapped = |what: &str| {
            said(&format!(
                "ERR Error running script (call to f_6f9d): @user_script:57: @user_script: 57: \
                 {what}"
            ))
            .reason
        };
        let oom = wrapped("-OOM command not allowed when used memory > 'maxmemory'.");
        assert_eq!(oom, Reason::Oom);
        let replica = wrapped("-READONLY You can't write against a read only replica.");
        assert_eq!(replica, Reason::ReadOnly);
        assert_eq!(wrapped("attempt to index a nil value"), Reason::Script);
    }

    #[test]
    fn silence_is_told_from_a_servers_word() {
        let io = |kind: io::ErrorKind| Failure::from(RedisError::from(io::Error::from(kind)));
        for (failure, reason) in [
            (io(io::ErrorKind::ConnectionReset), Reason::Connection),
            (io(io::ErrorKind::BrokenPipe), Reason::Connection),
            (io(io::ErrorKind::UnexpectedEof), Reason::Connection),
            (io(io::ErrorKind::TimedOut), Reason::Timeout),
            (redis::parse_redis_value(b"?\r\n").expect_err("no reply").into(), Reason::Reply),
            (ReplyError.into(), Reason::Reply),
            (Failure::timeout(), Reason::Timeout),
        ] {
            assert_eq!(failure.reason, reason, "{failure}");
            assert!(failure.is_silence(), "{failure}");
        }
        assert!(!Failure::not_asked().is_silence());
    }

    #[test]
    fn slowness_is_reported_with_the_timeout_that_it_would_take() {
        let [answer, barely, timeout] = [31, 15, 20].map(Duration::from_millis);
        let slow = Failure::too_slow(answer, timeout);
        let said = "answers take 31 ms, more than store.timeout = 20ms: raise it to at least \
                    70ms, or bring Redis closer";
        assert_eq!((slow.reason, slow.to_string().as_str()), (Reason::Timeout, said));
        let said = "answers take 15 ms, and a busy gateway waits for two of them, more than \
                    store.timeout = 20ms: raise it to at least 40ms, or bring Redis closer";
        let slow = Failure::barely_in_time(barely, timeout).map(|it| it.to_string());
        assert_eq!(slow.as_deref(), Some(said));
        assert_eq!(Failure::barely_in_time(timeout / 2, timeout), None);
        let quick = Failure::too_slow(Duration::from_micros(2100), Duration::from_millis(2));
        assert!(quick.to_string().contains("at least 7ms"), "{quick}");
    }

    #[test]
    fn every_label_is_one_that_metrics_know() {
        use Reason::{
            Busy, Cluster, Connection, Denied, Loading, NotAsked, Oom, Other, ReadOnly, Reply,
            Script, Timeout,
        };
        let all = [
            Timeout, Connection, Loading, ReadOnly, Busy, Oom, Cluster, Script, Reply, Denied,
            NotAsked, Other,
        ];
        for reason in all {
            assert!(STORE_ERRORS.contains(&reason.label()), "{reason:?}");
        }
        for label in STORE_ERRORS {
            assert!(all.iter().any(|reason| reason.label() == label), "nothing counts as {label}");
        }
    }
}
