//! Where buckets live, and where all checks of a request are decided at once.
//!
//! Every store keeps the same promise: the checks of one request are evaluated at one instant,
//! and either all enforced ones admit and all are charged, or nothing is.

pub mod bucket_id;
pub mod memory;
pub mod redis;

use crate::clock::Micros;
use crate::limit::{Policy, Retry, State};

pub use bucket_id::{BucketHasher, BucketId, BucketName};
pub use memory::MemoryStore;

/// One bucket to charge with one cost, and what came of it.
#[derive(Debug, Clone, Copy)]
pub struct Check<'a> {
    pub policy: &'a Policy,
    /// What all buckets of the limit start from: [`BucketHasher::limit_prefix`].
    pub limit: u64,
    pub bucket: BucketId,
    pub cost: u64,
    /// The bucket after the decision: charged if the whole request was admitted, else as it was.
    pub state: State,
    /// `None`: this check admits.
    pub refused: Option<Retry>,
}

impl<'a> Check<'a> {
    /// A check that is yet to be decided.
    #[must_use]
    pub fn new(policy: &'a Policy, limit: u64, bucket: BucketId, cost: u64) -> Self {
        Self { policy, limit, bucket, cost, state: State::default(), refused: None }
    }
}

/// The outcome of all of a request's checks, taken together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// The instant at which the checks were evaluated, on the store's clock.
    pub now: Micros,
    pub admitted: bool,
}

/// Why a store could not decide.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {}

/// One behaviour, whatever keeps the buckets.
pub trait Store {
    /// Decides all checks at one instant and writes the outcome into them.
    fn decide(
        &self,
        checks: &mut [Check<'_>],
    ) -> impl Future<Output = Result<Decision, StoreError>>;
}

/// The store that the configuration names.
#[derive(Debug)]
pub enum AnyStore {
    Memory(MemoryStore),
}

impl Store for AnyStore {
    async fn decide(&self, checks: &mut [Check<'_>]) -> Result<Decision, StoreError> {
        match self {
            AnyStore::Memory(store) => store.decide(checks).await,
        }
    }
}
