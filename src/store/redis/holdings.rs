//! The places of `concurrency` limits that one worker's requests hold.
//!
//! Redis has its own count of them, which may be wrong: a request may have left while it was being
//! decided, a call may have been given up and run after all, Redis may have lost what it knew. So
//! what is told to Redis is never a difference but how many there are, and whatever makes that
//! doubtful only has to say so. What a dead worker held lapses (`lua/concurrency.lua`).

use std::cell::{Cell, RefCell};

use hashbrown::HashMap;
use tokio::sync::Notify;

use super::adjustment::{Adjustment, Op};
use crate::limit::Policy;
use crate::store::BucketId;

#[derive(Debug, Default)]
pub(super) struct Holdings {
    held: RefCell<HashMap<BucketId, Held>>,
    doubted: Cell<bool>,
    /// Some of it is being told.
    telling: Cell<bool>,
    changed: Notify,
}

/// What is being told to Redis, until it has been.
#[derive(Debug)]
pub(super) struct Telling<'a> {
    held: Vec<Held>,
    telling: &'a Cell<bool>,
}

impl Telling<'_> {
    pub(super) fn held(&self) -> &[Held] {
        &self.held
    }
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        self.telling.set(false);
    }
}

/// The places in one bucket.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) bucket: BucketId,
    pub(super) name: Vec<u8>,
    pub(super) policy: Policy,
    count: u64,
    /// Redis may believe something else.
    doubted: bool,
}

impl Held {
    /// What makes Redis believe it.
    pub(super) fn adjustment(&self) -> Adjustment<'_> {
        Adjustment { op: Op::Hold, name: &self.name, policy: &self.policy, cost: self.count }
    }
}

impl Holdings {
    /// A request holds places, and Redis knows.
    pub(super) fn take(&self, bucket: BucketId, name: &[u8], policy: &Policy, count: u64) {
        self.with(bucket, name, policy, |held| held.count += count);
    }

    /// A request has ended.
    pub(super) fn give_back(&self, bucket: BucketId, name: &[u8], policy: &Policy, count: u64) {
        self.with(bucket, name, policy, |held| {
            held.count = held.count.saturating_sub(count);
            held.doubted = true;
        });
        self.say_so();
    }

    /// Redis may have another count of this bucket.
    pub(super) fn doubt(&self, bucket: BucketId, name: &[u8], policy: &Policy) {
        self.with(bucket, name, policy, |held| held.doubted = true);
        self.say_so();
    }

    /// Redis may have other counts of all of them, or none: or is to hear that all still hold.
    pub(super) fn doubt_all(&self) {
        let mut held = self.held.borrow_mut();
        if !held.is_empty() {
            held.values_mut().for_each(|it| it.doubted = true);
            self.say_so();
        }
    }

    pub(super) fn is_doubted(&self) -> bool {
        self.doubted.get()
    }

    /// Whether Redis knows of all that is held, and of no more.
    pub(super) fn is_settled(&self) -> bool {
        !self.doubted.get() && !self.telling.get()
    }

    /// Resolves when there is something to tell.
    pub(super) async fn changed(&self) {
        while !self.doubted.get() {
            self.changed.notified().await;
        }
    }

    /// What is to be told. Buckets without a place are forgotten with it.
    pub(super) fn take_doubted(&self) -> Telling<'_> {
        self.doubted.set(false);
        self.telling.set(true);
        let mut held = self.held.borrow_mut();
        let doubted: Vec<_> = held.values().filter(|it| it.doubted).cloned().collect();
        held.retain(|_, it| {
            it.doubted = false;
            it.count > 0
        });
        Telling { held: doubted, telling: &self.telling }
    }

    fn with(&self, bucket: BucketId, name: &[u8], policy: &Policy, change: impl FnOnce(&mut Held)) {
        let mut held = self.held.borrow_mut();
        let held = held.entry(bucket).or_insert_with(|| Held {
            bucket,
            name: name.to_vec(),
            policy: *policy,
            count: 0,
            doubted: false,
        });
        held.policy = *policy;
        change(held);
    }

    fn say_so(&self) {
        self.doubted.set(true);
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::concurrency::Concurrency;

    fn told(holdings: &Holdings) -> Vec<(u128, u64)> {
        let mut told: Vec<_> =
            holdings.take_doubted().held().iter().map(|it| (it.bucket.0, it.count)).collect();
        told.sort_unstable();
        told
    }

    #[test]
    fn what_is_doubted_is_told_once_as_it_is() {
        let policy = Policy::Concurrency(Concurrency::new(5).expect("a limit"));
        let holdings = Holdings::default();
        for bucket in [1, 2] {
            holdings.take(BucketId(bucket), b"name", &policy, 2);
        }
        assert!(!holdings.is_doubted(), "Redis knows");
        holdings.give_back(BucketId(1), b"name", &policy, 1);
        holdings.doubt(BucketId(3), b"name", &policy);
        assert!(holdings.is_doubted());
        assert_eq!(told(&holdings), [(1, 1), (3, 0)]);
        assert_eq!(told(&holdings), []);
        holdings.doubt_all();
        assert_eq!(told(&holdings), [(1, 1), (2, 2)], "the third holds nothing");
    }
}
