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
        ("NOSCRIPT No matching script. Please use EVAL.", Reason::NotAsked),
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
        Busy, Cluster, Connection, Denied, Loading, NotAsked, Oom, Other, ReadOnly, Reply, Script,
        Timeout,
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
