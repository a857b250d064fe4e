//! What buckets hold in Redis, for operators: read once, a command for each hash slot.

use std::time::Duration;

use redis::Value;
use tokio::time::{Instant, timeout};

use crate::limit::{Policy, Report, State};
use crate::store::KnownBucket;
use crate::store::redis::RedisShared;
use crate::store::redis::connect::failure::Failure;
use crate::store::redis::connect::hash_slot::{group_by_hash_slot, hash_slot};
use crate::store::redis::connect::session::Session;

/// An operator waits for it.
const PATIENCE: Duration = Duration::from_secs(2);

/// One for each bucket.
///
/// # Errors
/// If Redis does not tell.
pub(crate) async fn read(
    shared: &RedisShared,
    buckets: &[KnownBucket<'_>],
) -> Result<Vec<Report>, Failure> {
    let reports = async {
        let session = Session::open(&shared.dialer).await?;
        let mut reports = vec![Report::default(); buckets.len()];
        let is_cluster = shared.is_cluster();
        let slot_of = |(_, it): &(usize, &KnownBucket<'_>)| {
            if is_cluster { hash_slot(it.key) } else { 0 }
        };
        for group in group_by_hash_slot(buckets.iter().enumerate(), slot_of) {
            let command = |_| {
                let mut command = redis::cmd("MGET");
                group.items.iter().for_each(|(_, it)| {
                    command.arg(it.key);
                });
                command
            };
            let texts = session.run(group.slot, Instant::now() + PATIENCE, command).await?;
            let Value::Array(texts) = texts else { return Err(Failure::unexpected(&texts)) };
            let now = shared.clock.now();
            for ((at, bucket), text) in group.items.iter().zip(&texts) {
                let state = match text {
                    Value::BulkString(text) => state(bucket.policy, text),
                    _ => None,
                };
                reports[*at] = bucket.report(state, now);
            }
        }
        Ok(reports)
    };
    timeout(PATIENCE, reports).await.unwrap_or_else(|_| Err(Failure::timeout()))
}

/// The state that a text spells. Its numbers come in the order in which scripts reply with them: see
/// the files of the algorithms in `lua/`.
fn state(policy: &Policy, text: &[u8]) -> Option<State> {
    let text = std::str::from_utf8(text).ok()?;
    let mut numbers = text.split(' ').map(str::parse::<u64>);
    let mut next = |bound| numbers.next()?.ok().filter(|number| *number < bound);
    Some(policy.wire_state(&mut next)?.state)
}
