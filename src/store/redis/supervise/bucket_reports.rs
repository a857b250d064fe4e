//! What buckets hold in Redis, for operators: read once, a command for each hash slot.

use std::time::Duration;

use redis::Value;
use tokio::time::{Instant, timeout};

use crate::clock::Micros;
use crate::limit::lease::{LeasedBucket, Outstanding};
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
            let now = shared.now_in(group.slot);
            for ((at, bucket), text) in group.items.iter().zip(&texts) {
                let state = match text {
                    Value::BulkString(text) => state(bucket.policy, text, now),
                    _ => None,
                };
                reports[*at] = bucket.report(state, now);
            }
        }
        Ok(reports)
    };
    timeout(PATIENCE, reports).await.unwrap_or_else(|_| Err(Failure::timeout()))
}

/// The state that a text spells, without what is outstanding. Its numbers come in the order in which
/// scripts reply with them, see the files of the algorithms in `lua/`; grants and a journal may follow.
fn state(policy: &Policy, text: &[u8], now: Micros) -> Option<State> {
    let text = std::str::from_utf8(text).ok()?;
    let (text, rest) = text.split_once('|').unwrap_or((text, ""));
    let mut numbers = text.split(' ').map(str::parse::<u64>);
    let mut next = |bound| numbers.next()?.ok().filter(|number| *number < bound);
    let state = policy.wire_state(&mut next)?.state;
    let mut leased = LeasedBucket { state, outstanding: Outstanding::parse(rest) };
    leased.advance(policy, now);
    Some(leased.state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Rate;
    use crate::limit::token_bucket::TokenBucket;

    #[test]
    fn what_stands_behind_a_state_is_read_as_such() {
        let bucket = TokenBucket::new(Rate::ONE_A_SECOND, 10).expect("a bucket");
        let (policy, now) = (Policy::TokenBucket(bucket), Micros(1_000_000_000));
        let left = |text: &str| {
            let state = state(&policy, text.as_bytes(), now).expect("a state");
            policy.report(state, now).remaining
        };
        assert_eq!(left("1003000000 0"), 7);
        assert_eq!(
            left("1003000000 0|1002000000 0|1004000000|999000000:1000000:0"),
            7,
            "a journal"
        );
        assert_eq!(
            left("1003000000 0|L1000500000:6000000"),
            4,
            "more is outstanding than is missing"
        );
        assert_eq!(left("0 0|L1000500000:6000000|0 0|1|1:1:0"), 4, "both");
    }
}
