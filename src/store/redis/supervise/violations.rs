//! The violations of all gateways that share a Redis: a stream, `@violations`, of a bounded length.
//!
//! It is written beside requests, on a connection and with deadlines of its own. What Redis does not
//! take waits, as much of it as [`AuditLog`](crate::telemetry::AuditLog) has room for.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Pipeline};
use tokio::time::{sleep, timeout};

use super::reporting::{CALL_TIMEOUT, ReportLink, ask, open, parsed};
use crate::store::redis::RedisShared;
use crate::store::redis::connect::failure::Failure;
use crate::store::redis::connect::session::Session;
use crate::violations::{
    KeptViolation, MAX_KEPT, Violation, ViolationId, ViolationPage, ViolationQuery,
};

/// How often violations are sent, while there are some.
const SEND_INTERVAL: Duration = Duration::from_millis(250);
/// How long is waited after Redis has failed.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);
/// How many are sent or read at once.
const BATCH: usize = 500;
/// How long the stream lives after the last of them, in seconds.
const KEPT_SECONDS: u64 = 30 * 86_400;
/// The field of an entry.
const VIOLATION: &str = "violation";

/// Never ends.
pub(crate) async fn send_forever(shared: Arc<RedisShared>) {
    let mut link = ReportLink::default();
    loop {
        sleep(SEND_INTERVAL).await;
        let sent = send(&shared, &mut link).await;
        link.note(
            &sent,
            "violations cannot be written to Redis; they wait",
            "violations are written to Redis again",
        );
        if sent.is_err() {
            sleep(FAILURE_PAUSE).await;
        }
    }
}

/// The process ends: sends what is left, once.
pub(crate) async fn send_last(shared: &RedisShared) {
    let _ = send(shared, &mut ReportLink::default()).await;
}

/// Sends all that wait. What cannot be sent waits on.
async fn send(shared: &RedisShared, link: &mut ReportLink) -> Result<(), Failure> {
    while !shared.breaker.is_open() {
        let violations = shared.audit.take_unsent(BATCH);
        if violations.is_empty() {
            break;
        }
        if let Err(failure) = append(shared, link, &violations).await {
            shared.audit.put_back_unsent(violations);
            return Err(failure);
        }
    }
    Ok(())
}

async fn append(
    shared: &RedisShared,
    link: &mut ReportLink,
    violations: &[Arc<str>],
) -> Result<(), Failure> {
    let name = shared.reserved_key("violations");
    let mut commands = Pipeline::new();
    for violation in violations {
        let add = commands.cmd("XADD").arg(&name).arg("MAXLEN").arg("~").arg(MAX_KEPT);
        add.arg("*").arg(VIOLATION).arg(&**violation).ignore();
    }
    commands.cmd("EXPIRE").arg(&name).arg(KEPT_SECONDS);
    let sent = async {
        let session = link.session(shared).await?;
        session.run_together(&name, &commands).await.map(|_: u64| ())
    };
    timeout(CALL_TIMEOUT, sent).await.unwrap_or_else(|_| Err(Failure::timeout()))
}

/// The page that is asked for.
///
/// # Errors
/// If Redis does not tell.
pub(crate) async fn read(
    shared: &RedisShared,
    query: &ViolationQuery,
) -> Result<ViolationPage, Failure> {
    let (mut page, mut before) = (ViolationPage::default(), query.before);
    // Nothing stands before the first id, and Redis takes that for a mistake.
    if before == Some(ViolationId::default()) {
        return Ok(page);
    }
    let session = open(shared).await?;
    loop {
        let entries = read_batch(shared, &session, before).await?;
        let (count, last) = (entries.len(), entries.last().map(|(id, _)| *id));
        for (id, violation) in entries {
            let Some(violation) = violation else { continue };
            if page.offer(query, KeptViolation { id, violation }) {
                return Ok(page);
            }
        }
        if count < BATCH {
            return Ok(page);
        }
        before = last;
    }
}

/// Entries newest first, with what this version can read of them.
async fn read_batch(
    shared: &RedisShared,
    session: &Session,
    before: Option<ViolationId>,
) -> Result<Vec<(ViolationId, Option<Violation>)>, Failure> {
    let name = shared.reserved_key("violations");
    let end = before.map_or_else(|| "+".to_owned(), |id| format!("({id}"));
    let range = |cmd: &mut Cmd| {
        cmd.arg(&end).arg("-").arg("COUNT").arg(BATCH);
    };
    let reply = ask(session, "XREVRANGE", &name, range).await?;
    let entries: Vec<(String, Vec<String>)> = parsed(reply)?;
    let entries = entries.into_iter().filter_map(|(id, fields)| {
        let text = fields.chunks_exact(2).find(|it| it[0] == VIOLATION).map(|it| &it[1]);
        Some((id.parse().ok()?, text.and_then(|text| serde_json::from_str(text).ok())))
    });
    Ok(entries.collect())
}
