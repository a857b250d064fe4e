//! What the guards of a configuration know of callers: counts, warnings and blocks.
//!
//! One table for the process, in shards that are locked one at a time. It is bounded: a key that is
//! blocked is never forgotten to make room. Of the others, those that are only counted go first, and
//! of them those with the fewest requests, so a flood of new keys does not hide the one that floods.
//!
//! Where gateways share a store, each tells it what it has counted and hears what all have
//! ([`GuardReport`], [`GuardTable::merge_shared`]), beside the way of requests.

mod key_text;
mod listing;
mod overflow;
mod penalty;
mod shard;
mod sharing;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard, RwLock};

pub use key_text::listed_key;
pub use listing::{PenaltyCursor, PenaltyId, PenaltyPage};
use overflow::GuardOverflow;
pub use penalty::{Penalty, PenaltyNotice};
use shard::{GuardShard, Reporting};
pub use sharing::{GuardSharing, is_overtaken};

use crate::clock::Micros;
use crate::limit::Mode;
use crate::limit::guard::{Guard, GuardNumbers, GuardStage, GuardState};
use crate::store::{BucketHasher, BucketId};
use crate::violations::Violation;

const SHARDS: usize = 64;

/// One for the process.
#[derive(Debug)]
pub struct GuardTable {
    shards: Box<[Mutex<GuardShard>]>,
    max_keys: usize,
    /// The numbers of the guards of the configuration in force, by name.
    guards: RwLock<HashMap<Arc<str>, GuardNumbers>>,
    /// Whether the store that gateways share does not answer.
    alone: AtomicBool,
    /// Penalties that the store knows of and other gateways have yet to be told about. Locked while
    /// the store is told: a report that is under way would undo what an operator lifts.
    pub(crate) unannounced: tokio::sync::Mutex<Vec<PenaltyNotice>>,
    /// Whether what is counted has to be told to a store.
    reports: bool,
    overflow: GuardOverflow,
}

/// Whose requests are counted, and by which guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardSubject {
    pub guard: Arc<str>,
    /// That of the guard when it counted: what it noticed in shadow mode holds in shadow mode alone.
    pub mode: Mode,
    /// The key as it is [listed](listed_key).
    pub key: String,
    /// The name of the counter in a shared store; empty where there is none.
    pub shared_key: Box<[u8]>,
}

/// What counting a request has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuardCount {
    pub stage: GuardStage,
    /// When that stage ends.
    pub until: Micros,
    /// How many requests came in this window.
    pub count: u64,
    pub detection: Detection,
}

/// Whether a request is the one with which a stage began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detection {
    None,
    /// It is, and that has to be counted and recorded.
    Noticed,
    /// It is, and that is counted and recorded once the store has confirmed that no other gateway has
    /// noticed the same.
    Pending,
}

/// A request in words, which are made only if they have to be remembered.
pub trait CountedRequest {
    fn subject(&self) -> GuardSubject;
    fn violation(&self, counted: &GuardCount) -> Violation;
}

/// What one gateway has to tell about one key.
#[derive(Debug, Clone)]
pub struct GuardReport {
    pub id: BucketId,
    pub subject: GuardSubject,
    pub numbers: GuardNumbers,
    /// What was counted here and not told yet.
    pub requests: u64,
    pub state: GuardState,
    /// What was noticed here, and not recorded yet.
    pub pending: Option<Box<Violation>>,
}

impl GuardTable {
    /// A table of at most so many keys.
    pub fn new(max_keys: usize, reports: bool) -> Self {
        let each = max_keys.div_ceil(SHARDS).max(1);
        let shards = (0..SHARDS).map(|_| Mutex::new(GuardShard::new(each))).collect();
        let (guards, overflow) = Default::default();
        let (alone, unannounced) = (AtomicBool::new(false), tokio::sync::Mutex::default());
        GuardTable { shards, max_keys, guards, alone, unannounced, reports, overflow }
    }

    /// Takes over the guards of a configuration.
    pub fn configure(&self, guards: &[Guard]) {
        let guards = guards.iter().map(|it| (Arc::from(it.name.as_str()), it.numbers()));
        *self.guards.write() = guards.collect();
    }

    /// How long a penalty can last.
    pub fn longest_block(&self) -> Duration {
        let longest = self.guards.read().values().map(|it| 2 * it.penalty_us).max();
        Duration::from_micros(longest.unwrap_or_default())
    }

    /// How many keys there is room for.
    pub fn max_keys(&self) -> usize {
        self.max_keys
    }

    pub fn has_guards(&self) -> bool {
        !self.guards.read().is_empty()
    }

    /// Whether the store that gateways share does not answer.
    pub fn is_alone(&self) -> bool {
        self.alone.load(Ordering::Relaxed)
    }

    /// True if that is news.
    pub fn set_alone(&self, alone: bool) -> bool {
        self.alone.swap(alone, Ordering::Relaxed) != alone
    }

    /// What is known of a key, without counting anything.
    pub fn look_up(&self, numbers: &GuardNumbers, id: BucketId, now: Micros) -> GuardCount {
        self.shard(id).lock().look_up(numbers, id, now)
    }

    /// Counts one request.
    pub fn count(
        &self,
        numbers: &GuardNumbers,
        id: BucketId,
        now: Micros,
        request: &impl CountedRequest,
    ) -> GuardCount {
        let mut shard = self.shard(id).lock();
        // Read under the lock, so that `take_pending` misses nothing once the gateway is alone.
        let reporting = match (self.reports, self.is_alone()) {
            (false, _) => Reporting::Never,
            (true, true) => Reporting::Later,
            (true, false) => Reporting::Now,
        };
        shard.count(numbers, id, now, reporting, request).unwrap_or_else(|| {
            self.overflow.note(now);
            let (stage, until) = (GuardStage::Clean, Micros(0));
            GuardCount { stage, until, count: 1, detection: Detection::None }
        })
    }

    /// What was noticed here and is not recorded yet: the store cannot say whether others have noticed it.
    pub fn take_pending(&self) -> Vec<(Penalty, Violation)> {
        self.shards.iter().flat_map(|shard| shard.lock().take_pending()).collect()
    }

    /// What the store has not been told yet, of some keys.
    pub fn take_reports(&self, most: usize) -> Vec<GuardReport> {
        let mut reports = Vec::new();
        let guards = self.guards.read();
        for shard in &self.shards {
            if reports.len() >= most {
                break;
            }
            shard.lock().take_reports(most - reports.len(), &guards, &mut reports);
        }
        reports
    }

    /// The store could not be told: what was counted stays to be told.
    pub fn put_back(&self, reports: &[GuardReport]) {
        for report in reports {
            self.shard(report.id).lock().put_back(report);
        }
    }

    /// Adds what the store knows of a key that it was told about.
    pub fn merge_shared(&self, report: &GuardReport, shared: GuardState, now: Micros) {
        self.shard(report.id).lock().merge_shared(report, shared, now);
    }

    /// Another gateway has warned or blocked a key, or lifted its penalty.
    pub fn apply_notice(&self, id: BucketId, notice: &PenaltyNotice, now: Micros) {
        let Some(numbers) = self.guards.read().get(notice.guard.as_str()).copied() else {
            return;
        };
        if self.shard(id).lock().apply_notice(id, notice, &numbers, now).is_none() {
            self.overflow.note(now);
        }
    }

    /// Has all penalties told again: the store may have lost them.
    pub fn report_penalties_again(&self) {
        self.shards.iter().for_each(|shard| shard.lock().mark_penalties());
    }

    /// Everybody who is warned or blocked.
    pub fn penalties(&self, now: Micros) -> Vec<Penalty> {
        self.find_penalties(now, |_, _| true)
    }

    /// Those of whom that is so.
    pub fn find_penalties(
        &self,
        now: Micros,
        which: impl Fn(&GuardSubject, PenaltyId) -> bool,
    ) -> Vec<Penalty> {
        let penalties = |shard| self.locked_at(shard, now).penalties(now, &which);
        self.shards.iter().flat_map(penalties).collect()
    }

    /// A part of the table whose penalties are as they hold at an instant.
    fn locked_at<'a>(
        &self,
        shard: &'a Mutex<GuardShard>,
        now: Micros,
    ) -> MutexGuard<'a, GuardShard> {
        let guards = self.guards.read();
        let mut shard = shard.lock();
        shard.advance_penalties(now, &guards);
        shard
    }

    /// Forgets a penalty: the key is clean from an instant on. False if it has none.
    pub fn lift(&self, id: BucketId, lifted: Micros) -> bool {
        self.shard(id).lock().lift(id, lifted)
    }

    /// How a store is told that a penalty is lifted. `None` if the guard is no more.
    pub fn lifting_report(&self, penalty: &Penalty, now: Micros) -> Option<GuardReport> {
        let numbers = *self.guards.read().get(penalty.guard.as_str())?;
        let lifted = numbers.lifting_instant(penalty.stage, penalty.until, now);
        Some(GuardReport {
            id: penalty.id,
            subject: GuardSubject {
                guard: penalty.guard.as_str().into(),
                mode: penalty.mode,
                key: penalty.key.clone(),
                shared_key: penalty.shared_key.clone(),
            },
            numbers,
            requests: 0,
            state: GuardState { lifted, ..GuardState::default() },
            pending: None,
        })
    }

    /// How many keys are known.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn shard(&self, id: BucketId) -> &Mutex<GuardShard> {
        // The low bits choose a slot within the shard.
        &self.shards[(id.0 >> 64) as usize % SHARDS]
    }
}

/// The id of a key by the name of its counter in a shared store.
pub fn shared_id(hasher: &BucketHasher, name: &[u8]) -> BucketId {
    let mut id = hasher.start(0);
    id.part(0, name);
    id.finish()
}

#[cfg(test)]
mod tests;
