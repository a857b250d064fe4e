//! The stream `@penalties`, in which gateways tell each other of warnings and blocks, and of those that
//! operators lift. It is trimmed to the longest time that a penalty can last.

use redis::Cmd;
use tokio::time::timeout;

use super::reporting::{CALL_TIMEOUT, ask, open, parsed};
use crate::guards::{GuardSharing, GuardTable, Penalty, PenaltyNotice, shared_id};
use crate::limit::guard::MAX_PENALTY;
use crate::store::redis::RedisShared;
use crate::store::redis::connect::failure::{Failure, Reason};
use crate::store::redis::connect::session::Session;

/// How many announcements are read at once.
const MOST_NOTICES: usize = 1_000;
/// As long as any block lasts, in seconds.
const KEPT_SECONDS: u64 = 2 * MAX_PENALTY.as_secs();
/// The field of an announcement.
const NOTICE: &str = "penalty";

/// Announces what waits to be. What could not be announced waits on.
pub(crate) async fn announce_all(
    shared: &RedisShared,
    session: &Session,
    waiting: &mut Vec<PenaltyNotice>,
) -> Result<(), Failure> {
    let (mut announced, mut failed) = (0, None);
    for notice in waiting.iter() {
        failed = announce(shared, session, notice).await.err();
        if failed.is_some() {
            break;
        }
        announced += 1;
    }
    waiting.drain(..announced);
    failed.map_or(Ok(()), Err)
}

/// Takes over what has been announced since the last time.
pub(crate) async fn read(
    shared: &RedisShared,
    session: &Session,
    sharing: &GuardSharing,
    last_read: &mut String,
) -> Result<(), Failure> {
    let name = shared.reserved_key("penalties");
    loop {
        let from = format!("({last_read}");
        let range = |cmd: &mut Cmd| {
            cmd.arg(from.as_str()).arg("+").arg("COUNT").arg(MOST_NOTICES);
        };
        let reply = match ask(session, "XRANGE", &name, range).await {
            Err(failure) if failure.to_string().contains("WRONGTYPE") => {
                ask(session, "DEL", &name, |_| ()).await?;
                return Ok(());
            }
            reply => reply?,
        };
        let entries: Vec<(String, Vec<String>)> = parsed(reply)?;
        let (many, now) = (entries.len(), shared.clock.now());
        for (id, fields) in entries {
            *last_read = id;
            let text = fields.chunks_exact(2).find(|it| it[0] == NOTICE).map(|it| &it[1]);
            // One that this version cannot read is another version's.
            let notice = text.and_then(|text| serde_json::from_str::<PenaltyNotice>(text).ok());
            if let Some(notice) = notice {
                let id = shared_id(&sharing.hasher, notice.name.as_bytes());
                sharing.table.apply_notice(id, &notice, now);
            }
        }
        if many < MOST_NOTICES {
            return Ok(());
        }
    }
}

/// Makes a key clean for all gateways.
///
/// # Errors
/// If Redis does not take it.
pub(crate) async fn lift(
    shared: &RedisShared,
    table: &GuardTable,
    penalty: &Penalty,
) -> Result<(), Failure> {
    let lifted = async {
        let mut unannounced = table.unannounced.lock().await;
        let session = open(shared).await?;
        ask(&session, "DEL", &penalty.shared_key, |_| ()).await?;
        table.lift(penalty.id);
        let lifted = PenaltyNotice { stage: 0, ..penalty.notice() };
        unannounced.retain(|it| it.name != lifted.name);
        announce(shared, &session, &lifted).await
    };
    timeout(2 * CALL_TIMEOUT, lifted).await.unwrap_or_else(|_| Err(Failure::timeout()))
}

async fn announce(
    shared: &RedisShared,
    session: &Session,
    notice: &PenaltyNotice,
) -> Result<(), Failure> {
    let name = shared.reserved_key("penalties");
    let text = serde_json::to_string(notice)
        .map_err(|error| Failure::new(Reason::Other, error.to_string()))?;
    let oldest = (shared.clock.now().0 / 1000).saturating_sub(KEPT_SECONDS * 1000);
    ask(session, "XADD", &name, |cmd| {
        cmd.arg("MINID").arg("~").arg(oldest).arg("*").arg(NOTICE).arg(text.as_str());
    })
    .await?;
    ask(session, "EXPIRE", &name, |cmd| {
        cmd.arg(KEPT_SECONDS);
    })
    .await?;
    Ok(())
}
