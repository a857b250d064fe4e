//! One decision over several buckets, in several shards.
//!
//! **Why it is exact under concurrency.** A decision takes the locks of all shards it touches, in
//! ascending order and the overflow shard's last, before it looks at the clock or any bucket, and
//! gives none back before its last write. One that finds out too late that it needs the overflow
//! shard starts again with all of them. Locks taken in one order cannot deadlock. And of two decisions
//! that share a bucket, one has done all its work on all its buckets before the other sees any of
//! it; since locks are only released once all are held, "came before" has no cycles (two-phase
//! locking). So what concurrent decisions do together is what they would do one after another.
//!
//! **Why it is all or nothing.** Every check is evaluated on copies. Only if all that are enforced
//! admit are the copies written.

use parking_lot::MutexGuard;
use smallvec::SmallVec;

use super::shard::Shard;
use super::{MemoryStore, shard_of, tag_of};
use crate::clock::Micros;
use crate::limit::sliding_log::Log;
use crate::limit::{Policy, State, Verdict};
use crate::store::{Check, Decision};

/// A request with more checks than this allocates.
const USUAL: usize = 8;

/// The locks of one decision, and its instant.
struct Held<'a> {
    store: &'a MemoryStore,
    /// Ascending, without doubles.
    indexes: SmallVec<[usize; USUAL]>,
    shards: SmallVec<[MutexGuard<'a, Shard>; USUAL]>,
    /// The last in the order; taken only by decisions that need it, for they all share it.
    overflow: Option<MutexGuard<'a, Shard>>,
    now: Micros,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A position in [`Held::shards`], and the tag in that shard.
    Own(usize, u64),
    Overflow(u64),
}

/// What is to become of one bucket.
struct Plan<'p> {
    place: Place,
    policy: &'p Policy,
    /// Room in the table was set aside for this bucket.
    reserved: bool,
    before: State,
    /// The same as before if it is not to be charged.
    after: State,
    /// The sum of all checks on this bucket: they count as one.
    cost: u64,
    /// Whether its caller comes late.
    late: bool,
    /// The entries that a new log starts with.
    seed: Option<Log>,
}

/// Whether limits are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Decide,
    /// Everything is charged, whether it passes or not.
    Owe,
}

pub(super) fn decide(store: &MemoryStore, checks: &mut [Check<'_>], act: Act) -> Decision {
    let without = Held::lock(store, checks, false).decide(checks, act);
    without.unwrap_or_else(|NeedsOverflow| {
        let with = Held::lock(store, checks, true).decide(checks, act);
        with.unwrap_or_else(|NeedsOverflow| unreachable!("the overflow shard is held"))
    })
}

/// A key without a bucket found the table full, and the overflow shard is not locked.
struct NeedsOverflow;

impl<'a> Held<'a> {
    fn lock(store: &'a MemoryStore, checks: &[Check<'_>], overflow: bool) -> Self {
        let mut indexes: SmallVec<[usize; USUAL]> =
            checks.iter().map(|check| shard_of(check.bucket, store.shards.len())).collect();
        indexes.sort_unstable();
        indexes.dedup();
        let shards = indexes.iter().map(|index| store.shards[*index].0.lock()).collect();
        let overflow = overflow.then(|| store.overflow.lock());
        // Read while the locks are held: whoever locks a bucket later also reads a later time, so
        // no bucket sees time run back by waiting, and waiting for a lock costs the caller no
        // tokens.
        let now = store.clock.now();
        Self { store, indexes, shards, overflow, now }
    }

    fn decide(mut self, checks: &mut [Check<'_>], act: Act) -> Result<Decision, NeedsOverflow> {
        let now = self.now;
        let mut plans: SmallVec<[Plan<'_>; USUAL]> = SmallVec::new();
        // Which plan each check is part of.
        let mut parts: SmallVec<[usize; USUAL]> = SmallVec::new();
        let mut admitted = true;
        for i in 0..checks.len() {
            let part = match checks[..i].iter().position(|c| c.bucket == checks[i].bucket) {
                Some(same) => parts[same],
                None => match self.plan(&mut plans, i, checks) {
                    Ok(part) => part,
                    Err(needs) => {
                        self.finish(&mut plans, false);
                        return Err(needs);
                    }
                },
            };
            parts.push(part);
            let check = &mut checks[i];
            check.now = now;
            let plan = &mut plans[part];
            check.shared = matches!(plan.place, Place::Overflow(_));
            plan.cost = plan.cost.saturating_add(check.cost);
            let verdict = match act {
                Act::Decide => self.evaluate(plan, check.late),
                Act::Owe => Verdict::Admit(check.policy.owe(plan.before, now, plan.cost)),
            };
            (check.refused, plan.after) = match verdict {
                Verdict::Admit(after) if check.spends => (None, after),
                Verdict::Admit(_) => (None, plan.before),
                Verdict::Refuse(retry) => {
                    admitted &= !check.enforced;
                    (Some(retry), plan.before)
                }
            };
        }
        for (check, part) in checks.iter_mut().zip(&parts) {
            let plan = &plans[*part];
            check.state = if admitted { plan.after } else { plan.before };
        }
        self.finish(&mut plans, admitted);
        Ok(Decision { now, admitted, alone: false })
    }

    fn evaluate(&self, plan: &Plan<'_>, late: u64) -> Verdict {
        let (state, asked) = ((plan.before, self.now), (plan.cost, late));
        match (plan.place, plan.policy, &plan.seed) {
            (_, Policy::SlidingLog(it), Some(seed)) => it.evaluate_log(seed, self.now, plan.cost),
            (Place::Own(at, tag), policy, _) => self.shards[at].evaluate(tag, policy, state, asked),
            (Place::Overflow(tag), policy, _) => match &self.overflow {
                Some(held) => held.evaluate(tag, policy, state, asked),
                None => policy.evaluate_late(plan.before, self.now, plan.cost, late),
            },
        }
    }

    /// The plan of the bucket that decides check `i`: its own, if it has one or there is room for
    /// it, else one of the limit's shared ones.
    fn plan<'p>(
        &mut self,
        plans: &mut SmallVec<[Plan<'p>; USUAL]>,
        i: usize,
        checks: &[Check<'p>],
    ) -> Result<usize, NeedsOverflow> {
        let (store, now, check) = (self.store, self.now, &checks[i]);
        let index = shard_of(check.bucket, store.shards.len());
        let at = self.indexes.partition_point(|held| *held < index);
        let tag = tag_of(check.bucket);
        let shard = &mut *self.shards[at];
        let mut seed = None;
        let (place, reserved, before) = match shard.get(tag, check.policy, now) {
            Some(state) => (Place::Own(at, tag), false, state),
            None => {
                let spare = |tag| checks.iter().any(|check| tag_of(check.bucket) == tag);
                let here = |plan: &&Plan<'_>| matches!(plan.place, Place::Own(it, _) if it == at);
                let pending = plans.iter().filter(here).filter(|plan| plan.reserved).count();
                let mut reserved = store.reserve(shard, pending, now, spare);
                let overflow = overflow_tag(check);
                // Whoever has no bucket may have spent from the shared one, so a new bucket
                // starts as the shared one stands: moving in is no way to fresh tokens. The mark
                // is as new as it must be: a charge to the shared bucket on behalf of this key
                // was made under the lock that is held now.
                let shared = if reserved && store.overflow.until() <= now {
                    State::default()
                } else if let Some(held) = &mut self.overflow {
                    store.overflow.get(held, overflow, check.policy, now)
                } else {
                    store.release(usize::from(reserved));
                    return Err(NeedsOverflow);
                };
                // Places are given back where they were taken, and cannot move.
                if reserved && check.policy.is_held() && shared.until > now {
                    store.release(1);
                    reserved = false;
                }
                let place = if reserved { Place::Own(at, tag) } else { Place::Overflow(overflow) };
                if let (true, Some(held)) = (reserved, &self.overflow) {
                    seed = held.log(overflow).filter(|_| shared.until > now).cloned();
                }
                (place, reserved, shared)
            }
        };
        if let Some(same) = plans.iter().position(|plan| plan.place == place) {
            return Ok(same);
        }
        let (policy, after) = (check.policy, before);
        let late = check.late > 0;
        plans.push(Plan { place, policy, reserved, before, after, cost: 0, late, seed });
        Ok(plans.len() - 1)
    }

    /// Writes what was decided, if it was admitted, and gives back room that nobody took.
    fn finish(mut self, plans: &mut [Plan<'_>], admitted: bool) {
        let now = self.now;
        for plan in plans {
            // What has ended says no more than its absence, unless a late caller has been charged:
            // then it says since when the bucket is full, and what refilled is not counted twice.
            let says = plan.after.until > now || plan.late;
            let write = admitted && plan.after != plan.before && says;
            let mut is_new = false;
            match plan.place {
                Place::Own(at, tag) if write => is_new = plan.write(&mut self.shards[at], tag, now),
                Place::Overflow(tag) if write => {
                    if let Some(held) = &mut self.overflow {
                        self.store.overflow.put(held, plan.after, now, |shard| {
                            plan.write(shard, tag, now);
                        });
                    }
                }
                _ => {}
            }
            if plan.reserved && !is_new {
                self.store.release(1);
            }
        }
    }
}

impl Plan<'_> {
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
pub(super) fn overflow_tag(check: &Check<'_>) -> u64 {
    let mask = super::OVERFLOW_BUCKETS - 1;
    (check.limit & !mask) | (tag_of(check.bucket) & mask)
}
