//! The stream `@penalties`, in which gateways tell each other of warnings and blocks, and of those that
//! operators lift. It has entries for as long as a penalty can last, and not many more than there can be
//! penalties.

use futures_util::future::join_all;
use redis::Cmd;
use tokio::time::timeout;

use super::guards::tell;
use super::reporting::{CALL_TIMEOUT, ask, open, parsed};
use crate::guards::{GuardSharing, GuardTable, Penalty, PenaltyNotice, shared_id};
use crate::store::redis::RedisShared;
use crate::store::redis::connect::failure::{Failure, Reason};
use crate::store::redis::connect::session::Session;

/// How many announcements are read at once.
const MOST_READ: usize = 1_000;
/// How many are on their way at once.
const MOST_SENT: usize = 500;
/// How much longer than a penalty lasts its announcement is kept.
const MARGIN_SECONDS: u64 = 60;
/// The field of an announcement.
const NOTICE: &str = "penalty";

/// How far a gateway has read.
#[derive(Debug, Default)]
pub(crate) struct StreamPosition {
    /// The announcement that was last read. `None` before the first one.
    last_read: Option<String>,
}

/// Announces what waits to be. What could not be announced waits on, with what was sent beside it: to
/// hear of a penalty twice does no harm.
pub(crate) async fn announce_all(
    shared: &RedisShared,
    session: &Session,
    table: &GuardTable,
    waiting: &mut Vec<PenaltyNotice>,
) -> Result<(), Failure> {
    while !waiting.is_empty() {
        let many = waiting.len().min(MOST_SENT);
        announce(shared, session, table, &waiting[..many]).await?;
        waiting.drain(..many);
    }
    Ok(())
}

impl StreamPosition {
    /// Takes over what has been announced since the last time.
    pub(crate) async fn read(
        &mut self,
        shared: &RedisShared,
        session: &Session,
        sharing: &GuardSharing,
    ) -> Result<(), Failure> {
        let name = shared.reserved_key("penalties");
        loop {
            // The one that was read last is read again: without it, the stream is another one.
            let oldest = || oldest_needed(shared, &sharing.table).to_string();
            let from = self.last_read.clone().unwrap_or_else(oldest);
            let range = |cmd: &mut Cmd| {
                cmd.arg(from.as_str()).arg("+").arg("COUNT").arg(MOST_READ);
            };
            let reply = match ask(session, "XRANGE", &name, range).await {
                Err(failure) if failure.to_string().contains("WRONGTYPE") => {
                    ask(session, "DEL", &name, |_| ()).await?;
                    return Ok(());
                }
                reply => reply?,
            };
            let entries: Vec<(String, Vec<String>)> = parsed(reply)?;
            let first = entries.first().map(|(id, _)| id);
            if self.last_read.is_some() && first != self.last_read.as_ref() {
                // Redis was emptied, or has trimmed what was read.
                self.last_read = None;
                sharing.table.report_penalties_again();
                continue;
            }
            let (many, now) = (entries.len(), shared.clock.now());
            let known = usize::from(self.last_read.is_some());
            for (id, fields) in entries.into_iter().skip(known) {
                self.last_read = Some(id);
                let text = fields.chunks_exact(2).find(|it| it[0] == NOTICE).map(|it| &it[1]);
                // One that this version cannot read is another version's.
                let notice = text.and_then(|text| serde_json::from_str::<PenaltyNotice>(text).ok());
                if let Some(notice) = notice {
                    let id = shared_id(&sharing.hasher, notice.name.as_bytes());
                    sharing.table.apply_notice(id, &notice, now);
                }
            }
            if many < MOST_READ {
                return Ok(());
            }
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
        let lifted = if let Some(report) = table.lifting_report(penalty, shared.clock.now()) {
            let (slot, lifted) = (shared.slot_of(&penalty.shared_key), report.state.lifted);
            // Redis knows for a while that it was lifted: others may be about to report it.
            tell(shared, &session, slot, &[report]).await?;
            lifted
        } else {
            ask(&session, "DEL", &penalty.shared_key, |_| ()).await?;
            shared.clock.now()
        };
        table.lift(penalty.id, lifted);
        let lifted = penalty.lifted_notice(lifted);
        unannounced.retain(|it| it.name != lifted.name);
        announce(shared, &session, table, &[lifted]).await
    };
    timeout(2 * CALL_TIMEOUT, lifted).await.unwrap_or_else(|_| Err(Failure::timeout()))
}

/// Sends announcements all at once, so that many take no longer than one.
async fn announce(
    shared: &RedisShared,
    session: &Session,
    table: &GuardTable,
    notices: &[PenaltyNotice],
) -> Result<(), Failure> {
    let name = &shared.reserved_key("penalties");
    let oldest = oldest_needed(shared, table);
    let most = table.max_keys().max(MOST_READ);
    let add = async |index: usize, notice: &PenaltyNotice| {
        let text = serde_json::to_string(notice)
            .map_err(|error| Failure::new(Reason::Other, error.to_string()))?;
        // One command trims by age or by number: every other one by either.
        let by_age = (index as u64 + oldest).is_multiple_of(2);
        let trim = |cmd: &mut Cmd| {
            if by_age {
                cmd.arg("MINID").arg("~").arg(oldest)
            } else {
                cmd.arg("MAXLEN").arg("~").arg(most)
            };
            cmd.arg("*").arg(NOTICE).arg(text.as_str());
        };
        ask(session, "XADD", name, trim).await
    };
    let added =
        join_all(notices.iter().enumerate().map(|(index, notice)| add(index, notice))).await;
    added.into_iter().try_for_each(|it| it.map(|_| ()))?;
    let seconds = table.longest_block().as_secs() + MARGIN_SECONDS;
    ask(session, "EXPIRE", name, |cmd| {
        cmd.arg(seconds);
    })
    .await?;
    Ok(())
}

/// Since when there may be announcements of penalties that have not ended, in Redis's milliseconds.
fn oldest_needed(shared: &RedisShared, table: &GuardTable) -> u64 {
    let kept = table.longest_block().as_millis() as u64 + MARGIN_SECONDS * 1_000;
    (shared.clock.now().0 / 1_000).saturating_sub(kept)
}
