//! The short way for the usual request: all of its buckets exist, and each check has one of its own. Then
//! nothing has to be set aside or merged, and each bucket is looked up once.

use super::{LockedShards, USUAL};
use crate::limit::{Policy, State, Verdict};
use crate::store::memory::{shard_of, tag_of};
use crate::store::{Check, CheckOutcome, Choice, Decision};

/// A bucket that was found, and what it holds if the request is admitted.
#[derive(Clone, Copy, Default)]
struct KnownBucket {
    /// A position in [`LockedShards::shards`].
    shard: usize,
    slot: usize,
    after: State,
}

impl LockedShards<'_> {
    /// `None` if the request has to take the long way. Nothing is charged then.
    pub(super) fn decide_known(
        &mut self,
        checks: &[Check<'_>],
        outcomes: &mut [CheckOutcome],
    ) -> Option<Decision> {
        if checks.len() > USUAL || !stand_alone(checks) {
            return None;
        }
        let now = self.now;
        let mut found = [KnownBucket::default(); USUAL];
        let mut admitted = true;
        for ((check, outcome), known) in checks.iter().zip(&mut *outcomes).zip(&mut found) {
            let index = shard_of(check.bucket, self.store.shards.len());
            let at = self.indexes.iter().position(|held| *held == index)?;
            let shard = &mut *self.shards[at];
            let slot = shard.find(tag_of(check.bucket))?;
            let before = shard.clamp(slot, check.policy, now);
            let verdict = check.policy.evaluate_waited(before, now, check.cost, check.waited);
            let (refused, after) = match verdict {
                Verdict::Admit(after) if check.spends => (None, after),
                Verdict::Admit(_) => (None, before),
                Verdict::Refuse(retry) => (Some(retry), before),
            };
            admitted &= refused.is_none() || !check.enforced;
            (outcome.state, outcome.now, outcome.refused) = (before, now, refused);
            (outcome.skipped, outcome.withheld, outcome.shared) = (false, false, false);
            *known = KnownBucket { shard: at, slot, after };
        }
        if admitted {
            for ((check, outcome), known) in checks.iter().zip(outcomes).zip(&found) {
                outcome.state = known.after;
                // As in `finish`.
                if known.after.ends_at > now || check.waited > 0 {
                    self.shards[known.shard].set(known.slot, known.after);
                }
            }
        }
        Some(Decision { now, admitted, alone: false })
    }
}

/// Whether no check has anything to do with another, and all states are in the table.
fn stand_alone(checks: &[Check<'_>]) -> bool {
    checks.iter().enumerate().all(|(i, check)| {
        let alone = check.choice == Choice::Alone && !check.is_bound();
        let has_log = matches!(check.policy, Policy::SlidingLog(_));
        alone && !has_log && checks[..i].iter().all(|other| other.bucket != check.bucket)
    })
}
