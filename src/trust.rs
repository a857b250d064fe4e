//! What is known of users: how their calls have ended lately, for limits that go by trust.
//!
//! One table for the process, in shards that are locked one at a time. It is bounded: to make room,
//! those go first of whom there is least to remember. A request looks a user up once, and what came of
//! it is counted once its answer is known; nobody waits for a store.
//!
//! Where gateways share a store, each tells it what it has counted and hears what all have
//! ([`TrustReport`], [`TrustTable::merge_shared`]), beside the way of requests.

mod shard;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use shard::TrustShard;

use crate::clock::{Clock, Micros};
use crate::limit::trust::{DayCounts, Score, TrustRecord, TrustSums, day_of};
use crate::store::BucketId;
use crate::telemetry::UserScores;

const SHARDS: usize = 64;
/// How many users a snapshot keeps: those of whom there is most to remember.
const MOST_KEPT: usize = 250_000;

/// One for the process.
#[derive(Debug)]
pub struct TrustTable {
    shards: Box<[Mutex<TrustShard>]>,
    clock: Clock,
}

/// A user that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownUser {
    /// The score that it was last given.
    pub score: Score,
    pub sums: TrustSums,
}

/// What a call says of its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserEvent {
    Success,
    Failure,
    /// A limit or a guard has refused it, or it was an offence.
    Violation,
    /// Nothing: it was the upstream's fault, or refused elsewhere.
    Neither,
}

/// What one gateway has to tell about one user.
#[derive(Debug, Clone)]
pub struct TrustReport {
    pub id: BucketId,
    /// The name of the user's record in the shared store.
    pub name: Box<[u8]>,
    /// What was counted here and not told yet. Nothing, if there is only something to ask.
    pub days: SmallVec<[DayCounts; 1]>,
}

/// What a snapshot keeps of a user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptUser {
    /// The user's id, which is worth something only with the secret that has made it.
    pub id: String,
    /// See [`TrustRecord`].
    pub days: String,
    /// The score that it last had, in hundredths.
    #[serde(default)]
    pub score: u8,
}

impl TrustTable {
    /// A table of at most so many users. `reports`: what is counted has to be told to a store.
    pub fn new(max_users: usize, reports: bool, scores: &UserScores, clock: Clock) -> Self {
        let each = max_users.div_ceil(SHARDS).max(1);
        let shard = || Mutex::new(TrustShard::new(each, reports, scores.clone()));
        TrustTable { shards: (0..SHARDS).map(|_| shard()).collect(), clock }
    }

    /// The time by which days are counted: that of the store.
    pub fn now(&self) -> Micros {
        self.clock.now()
    }

    pub fn look_up(&self, id: BucketId, now: Micros) -> Option<KnownUser> {
        self.shard(id).lock().look_up(id, day_of(now))
    }

    /// Notes which score a user has; from now on it is known. `name` is made only if it is news and a
    /// store has to be asked about the user.
    pub fn introduce(&self, id: BucketId, score: Score, name: impl FnOnce() -> Vec<u8>) {
        let today = day_of(self.now());
        self.shard(id).lock().introduce(id, score, today, name);
    }

    /// Counts what a call says of a user. One that is not known any more had to make room.
    pub fn count(&self, id: BucketId, event: UserEvent) {
        let mut counts = DayCounts { day: day_of(self.now()), ..DayCounts::default() };
        match event {
            UserEvent::Success => counts.successes = 1,
            UserEvent::Failure => counts.failures = 1,
            UserEvent::Violation => counts.violations = 1,
            UserEvent::Neither => {}
        }
        self.shard(id).lock().count(id, &counts);
    }

    /// What the store has not been told or asked yet, of some users.
    pub fn take_reports(&self, most: usize) -> Vec<TrustReport> {
        let mut reports = Vec::new();
        for shard in &self.shards {
            if reports.len() >= most {
                break;
            }
            shard.lock().take_reports(most - reports.len(), &mut reports);
        }
        reports
    }

    /// The store could not be told: what was counted stays to be told.
    pub fn put_back(&self, reports: &[TrustReport]) {
        for report in reports {
            self.shard(report.id).lock().put_back(report);
        }
    }

    /// What the store knows of a user that it was asked about.
    pub fn merge_shared(&self, report: &TrustReport, text: &str) {
        let today = day_of(self.now());
        self.shard(report.id).lock().merge_shared(report.id, TrustRecord::parse(text, today));
    }

    /// What a snapshot is to keep.
    pub fn kept(&self) -> Vec<KeptUser> {
        let today = day_of(self.now());
        let each = MOST_KEPT / SHARDS;
        // Requests wait for a shard only while it is copied.
        let records = self.shards.iter().flat_map(|shard| shard.lock().kept(each, today));
        let kept = records.map(|(id, record, score)| KeptUser {
            id: format!("{:032x}", id.0),
            days: record.to_text(),
            score: score.hundredths(),
        });
        kept.collect()
    }

    /// Takes over what a snapshot has kept.
    pub fn restore(&self, kept: &[KeptUser]) {
        let today = day_of(self.now());
        for KeptUser { id, days, score } in kept {
            let Ok(id) = u128::from_str_radix(id, 16) else { continue };
            let record = TrustRecord::parse(days, today);
            let (id, score) = (BucketId(id), Score::of_hundredths((*score).into()));
            self.shard(id).lock().restore(id, record, score, today);
        }
    }

    /// How many users are known.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn shard(&self, id: BucketId) -> &Mutex<TrustShard> {
        // The low bits choose a slot within the shard.
        &self.shards[(id.0 >> 64) as usize % SHARDS]
    }
}

impl UserEvent {
    /// What an answer says of the user who asked.
    pub fn of_status(status: http::StatusCode) -> Self {
        match status.as_u16() {
            200..=399 => UserEvent::Success,
            429 => UserEvent::Neither,
            400..=499 => UserEvent::Failure,
            _ => UserEvent::Neither,
        }
    }
}

#[cfg(test)]
mod tests;
