//! One decision over several buckets, in several shards.
//!
//! **Why it is exact under concurrency.** A decision takes the locks of all shards it touches, in
//! ascending order and the overflow shard's last, before it looks at the clock or any bucket, and
//! gives none back before its last write. One that finds out too late that it needs the overflow shard
//! starts again with all of them. Locks taken in one order cannot deadlock. And of two decisions that
//! share a bucket, one has done all its work on all its buckets before the other sees any of it; since
//! locks are only released once all are held, "came before" has no cycles (two-phase locking). So what
//! concurrent decisions do together is what they would do one after another.
//!
//! Instants of other clocks, those of a cluster's masters, are read by the caller, before these locks
//! are taken. It holds the lock of the ledger meanwhile, so that no two such decisions overtake each
//! other; only a charge after the fact does not, and that refuses nobody.
//!
//! **Why it is all or nothing.** Every check is evaluated on copies. Only if all that are enforced
//! admit are the copies written. Of a pair, the second is evaluated only if the first refuses, and
//! only one of them changes its copy. What a limit that only watches would have charged by several
//! checks is taken back if one of these refuses.

mod known_buckets;

use parking_lot::MutexGuard;
use smallvec::SmallVec;

use super::shard::{Evaluation, Shard};
use super::{MemoryStore, shard_of, tag_of};
use crate::clock::Micros;
use crate::limit::sliding_log::Log;
use crate::limit::{Policy, Retry, State, Verdict};
use crate::store::{BucketId, Check, CheckOutcome, Choice, Decision};

/// A request with more checks than this allocates.
const USUAL: usize = 8;

/// What is to be decided, and when.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimedChecks<'a> {
    pub(super) checks: &'a [Check<'a>],
    /// The instant of each check; none if all are decided at that of the store's clock.
    pub(super) times: &'a [Micros],
}

/// The locks of one decision, and its instant.
struct LockedShards<'a> {
    store: &'a MemoryStore,
    /// Ascending, without doubles.
    indexes: SmallVec<[usize; USUAL]>,
    shards: SmallVec<[MutexGuard<'a, Shard>; USUAL]>,
    /// The last in the order; taken only by decisions that need it, for they all share it.
    overflow: Option<MutexGuard<'a, Shard>>,
    now: Micros,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BucketLocation {
    /// A position in [`LockedShards::shards`], and the tag in that shard.
    Own(usize, u64),
    Overflow(u64),
}

/// What is to become of one bucket.
struct BucketChange<'p> {
    location: BucketLocation,
    policy: &'p Policy,
    /// The instant at which it is judged.
    now: Micros,
    /// Room in the table was set aside for this bucket.
    reserved: bool,
    before: State,
    /// The same as before if it is not to be charged.
    after: State,
    /// Whether a log gets the cost as an entry. One that is full may come to the same state by it.
    logs_cost: bool,
    /// The sum of all checks on this bucket: they count as one.
    cost: u64,
    /// Whether its caller has waited.
    waited: bool,
    /// The entries that a new log starts with.
    seed: Option<Log>,
}

/// Whether limits are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChargeMode {
    Decide,
    /// Everything is charged, whether it passes or not.
    ChargeAfter,
}

pub(super) fn decide(
    store: &MemoryStore,
    asked: TimedChecks<'_>,
    outcomes: &mut [CheckOutcome],
    mode: ChargeMode,
) -> Decision {
    let checks = asked.checks;
    let mut locked = LockedShards::lock(store, checks, false);
    if mode == ChargeMode::Decide
        && asked.times.is_empty()
        && let Some(decision) = locked.decide_known(checks, outcomes)
    {
        return decision;
    }
    locked.decide(asked, outcomes, mode).unwrap_or_else(|NeedsOverflow| {
        let with = LockedShards::lock(store, checks, true).decide(asked, outcomes, mode);
        with.unwrap_or_else(|NeedsOverflow| unreachable!("the overflow shard is held"))
    })
}

/// A key without a bucket found the table full, and the overflow shard is not locked.
struct NeedsOverflow;

impl<'a> LockedShards<'a> {
    fn lock(store: &'a MemoryStore, checks: &[Check<'_>], overflow: bool) -> Self {
        let mut indexes: SmallVec<[usize; USUAL]> =
            checks.iter().map(|check| shard_of(check.bucket, store.shards.len())).collect();
        indexes.sort_unstable();
        indexes.dedup();
        let shards = indexes.iter().map(|index| store.shards[*index].0.lock()).collect();
        let overflow = overflow.then(|| store.overflow.lock());
        // Read while the locks are held: a decision that locks a bucket later also reads a later
        // time. So no bucket sees time run back, and waiting for a lock costs no tokens.
        let now = store.clock.now();
        Self { store, indexes, shards, overflow, now }
    }

    fn decide(
        mut self,
        asked: TimedChecks<'_>,
        outcomes: &mut [CheckOutcome],
        mode: ChargeMode,
    ) -> Result<Decision, NeedsOverflow> {
        let (checks, now) = (asked.checks, self.now);
        let mut changes: SmallVec<[BucketChange<'_>; USUAL]> = SmallVec::new();
        // Which change each check is part of.
        let mut parts: SmallVec<[usize; USUAL]> = SmallVec::new();
        let mut admitted = true;
        // What the check before it has said.
        let mut previous: Option<Retry> = None;
        for (i, (check, outcome)) in checks.iter().zip(&mut *outcomes).enumerate() {
            let part = match checks[..i].iter().position(|c| c.bucket == check.bucket) {
                Some(same) => parts[same],
                None => match self.change_of(&mut changes, i, asked) {
                    Ok(part) => part,
                    Err(needs) => {
                        self.finish(&mut changes, false);
                        return Err(needs);
                    }
                },
            };
            parts.push(part);
            let change = &mut changes[part];
            outcome.now = change.now;
            outcome.shared = matches!(change.location, BucketLocation::Overflow(_));
            outcome.withheld = false;
            outcome.skipped = check.choice.is_skipped(previous);
            if outcome.skipped {
                outcome.refused = None;
                continue;
            }
            let cost = change.cost;
            change.cost = cost.saturating_add(check.cost);
            let verdict = match mode {
                ChargeMode::Decide => self.evaluate(change, check.waited),
                ChargeMode::ChargeAfter => {
                    let (before, now, cost) = (change.before, change.now, change.cost);
                    Verdict::Admit(check.policy.charge_after(before, now, cost))
                }
            };
            change.logs_cost = mode == ChargeMode::ChargeAfter
                && change.cost > 0
                && matches!(change.policy, Policy::SlidingLog(_));
            (outcome.refused, change.after) = match verdict {
                Verdict::Admit(after) if check.spends => (None, after),
                Verdict::Admit(_) => (None, change.before),
                // In an overflow bucket there may be another check's cost.
                Verdict::Refuse(retry) if check.choice == Choice::First => {
                    change.cost = cost;
                    (Some(retry), change.after)
                }
                Verdict::Refuse(retry) => {
                    admitted &= !check.enforced;
                    (Some(check.choice.earlier(previous, retry)), change.before)
                }
            };
            previous = outcome.refused;
        }
        if checks.iter().zip(&*outcomes).any(|(check, outcome)| check.withholds(outcome)) {
            let entries = checks.iter().zip(&mut *outcomes).zip(&parts);
            for ((_, outcome), part) in entries.filter(|((check, _), _)| check.is_bound()) {
                outcome.withheld = true;
                changes[*part].after = changes[*part].before;
            }
        }
        for (outcome, part) in outcomes.iter_mut().zip(&parts) {
            let change = &changes[*part];
            outcome.state = if admitted { change.after } else { change.before };
        }
        self.finish(&mut changes, admitted);
        Ok(Decision { now, admitted, alone: false })
    }

    fn evaluate(&self, change: &BucketChange<'_>, waited: u64) -> Verdict {
        let (state, now, cost) = (change.before, change.now, change.cost);
        let request = Evaluation { state, now, cost, waited };
        match (change.location, change.policy, &change.seed) {
            (_, Policy::SlidingLog(it), Some(seed)) => it.evaluate_log(seed, now, cost),
            (BucketLocation::Own(at, tag), policy, _) => {
                self.shards[at].evaluate(tag, policy, request)
            }
            (BucketLocation::Overflow(tag), policy, _) => match &self.overflow {
                Some(held) => held.evaluate(tag, policy, request),
                None => policy.evaluate_waited(state, now, cost, waited),
            },
        }
    }

    /// The change of the bucket that decides check `i`: its own, if it has one or there is room for
    /// it, else one of the limit's shared ones.
    fn change_of<'p>(
        &mut self,
        changes: &mut SmallVec<[BucketChange<'p>; USUAL]>,
        i: usize,
        asked: TimedChecks<'p>,
    ) -> Result<usize, NeedsOverflow> {
        let (store, now, checks) = (self.store, self.now, asked.checks);
        let (check, own_now) = (&checks[i], asked.times.get(i).copied().unwrap_or(now));
        let index = shard_of(check.bucket, store.shards.len());
        let at = self.indexes.partition_point(|held| *held < index);
        let tag = tag_of(check.bucket);
        let shard = &mut *self.shards[at];
        let mut seed = None;
        let (location, reserved, before) = match shard.get(tag, check.policy, own_now) {
            Some(state) => (BucketLocation::Own(at, tag), false, state),
            None => {
                let spare = |tag| checks.iter().any(|check| tag_of(check.bucket) == tag);
                let here = |change: &&BucketChange<'_>| matches!(change.location, BucketLocation::Own(it, _) if it == at);
                let pending = changes.iter().filter(here).filter(|change| change.reserved).count();
                let mut reserved = store.reserve(shard, pending, own_now, spare);
                let overflow = overflow_tag(check.limit_prefix, check.bucket);
                // A key without a bucket may have spent from the shared one, so its new bucket
                // starts with the state of that one and not with fresh tokens. The mark is new
                // enough: a charge to the shared bucket for this key was made under the lock that
                // is held now.
                let shared = if reserved && store.overflow.until() <= now {
                    State::default()
                } else if let Some(held) = &mut self.overflow {
                    store.overflow.get(held, overflow, check.policy, now)
                } else {
                    store.free_room(usize::from(reserved));
                    return Err(NeedsOverflow);
                };
                // Slots are released where they were taken, and cannot move; nor can what was spent by
                // another clock.
                let stays = check.policy.is_held() || own_now != now;
                if reserved && stays && shared.ends_at > now {
                    store.free_room(1);
                    reserved = false;
                }
                let location = if reserved {
                    BucketLocation::Own(at, tag)
                } else {
                    BucketLocation::Overflow(overflow)
                };
                if let (true, Some(held)) = (reserved, &self.overflow) {
                    seed = held.log(overflow).filter(|_| shared.ends_at > now).cloned();
                }
                (location, reserved, shared)
            }
        };
        if let Some(same) = changes.iter().position(|change| change.location == location) {
            return Ok(same);
        }
        let (policy, after) = (check.policy, before);
        let waited = check.waited > 0;
        let is_own = matches!(location, BucketLocation::Own(..));
        changes.push(BucketChange {
            location,
            policy,
            now: if is_own { own_now } else { now },
            reserved,
            before,
            after,
            logs_cost: false,
            cost: 0,
            waited,
            seed,
        });
        Ok(changes.len() - 1)
    }

    /// Writes what was decided, if it was admitted, and frees room that was not used.
    fn finish(mut self, changes: &mut [BucketChange<'_>], admitted: bool) {
        for change in changes {
            let now = change.now;
            // A bucket that is full again equals none, unless a queued request was charged: then the
            // state says since when it is full, so that what refilled is not counted twice.
            let says = change.after.ends_at > now || change.waited;
            let write = admitted && says && (change.logs_cost || change.after != change.before);
            let mut is_new = false;
            match change.location {
                BucketLocation::Own(at, tag) if write => {
                    is_new = change.write(&mut self.shards[at], tag, now)
                }
                BucketLocation::Overflow(tag) if write => {
                    if let Some(held) = &mut self.overflow {
                        self.store.overflow.put(held, change.after, now, |shard| {
                            change.write(shard, tag, now);
                        });
                    }
                }
                _ => {}
            }
            if change.reserved && !is_new {
                self.store.free_room(1);
            }
        }
    }
}

impl BucketChange<'_> {
    /// True if the bucket is a new one.
    fn write(&mut self, shard: &mut Shard, tag: u64, now: Micros) -> bool {
        let Policy::SlidingLog(it) = self.policy else { return shard.put(tag, self.after) };
        if let Some(seed) = self.seed.take() {
            shard.put_log(tag, seed);
        }
        shard.charge_log(tag, it, now, self.cost)
    }
}

/// One of the limit's shared buckets, by the keyed hash.
pub(super) fn overflow_tag(limit_prefix: u64, bucket: BucketId) -> u64 {
    let mask = super::OVERFLOW_BUCKETS - 1;
    (limit_prefix & !mask) | (tag_of(bucket) & mask)
}

#[cfg(test)]
mod tests;
