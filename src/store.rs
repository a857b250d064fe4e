//! Where buckets live, and where all checks of a request are decided at once.
//!
//! Every store keeps the same promise: the checks of one request are evaluated at one instant,
//! and either all enforced ones admit and all are charged, or nothing is. Where two checks are a
//! pair ([`Choice`]), the first of them that admits is charged in the place of both.
//!
//! There are two sides to a store. Workers decide with it: [`Store`], which each holds as an
//! [`AnyStore`]. Start-up, operators and the end of the process need [`StoreControl`], of which there
//! is one for the process. [`open`] makes both from the settings. A kind of store is a folder here and
//! a line in `kinds.rs`; nothing outside knows which kind it talks to.

mod bucket_id;
mod bucket_keys;
mod check;
mod control;
pub mod hybrid;
pub mod key_format;
mod kinds;
mod memory;
pub mod redis;

use smallvec::SmallVec;

use crate::clock::Micros;

pub use bucket_id::{BucketHasher, BucketId, BucketIdBuilder, BucketMap};
pub use bucket_keys::{BucketKey, BucketKeys, KeyRange, KeysView};
pub use check::{Check, CheckOutcome, CheckSet, Choice, DeferredCheck};
pub use control::{KnownBucket, OpenedStore, StoreContext, StoreControl};
pub use kinds::{AnyStore, open};
pub use memory::{Buckets, HeldSlots, MemoryStore};

/// The outcome of all of a request's checks, taken together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// The instant at which the checks were evaluated, on the store's clock.
    pub now: Micros,
    pub admitted: bool,
    /// This node decided alone, because the shared store could not be asked.
    pub alone: bool,
}

/// Why a store could not decide.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store fails, and a limit's `on_error` is to deny.
    #[error("the limits of this request cannot be checked at the moment")]
    Unavailable,
}

/// A decision, or why there is none.
pub type Decided = Result<Decision, StoreError>;

/// Decisions and charges, as one worker makes them.
pub trait Store {
    /// Decides without waiting, if that is possible: `None` if it has to be waited for, with
    /// [`Store::decide`].
    fn try_decide(&self, asked: CheckSet<'_>, outcomes: &mut [CheckOutcome]) -> Option<Decided>;

    /// Decides all checks at one instant, and writes what came of each into `outcomes`, which has
    /// one entry for each check.
    fn decide(
        &self,
        asked: CheckSet<'_>,
        outcomes: &mut [CheckOutcome],
    ) -> impl Future<Output = Decided>;

    /// What the checks would get at one instant, without spending.
    fn peek(
        &self,
        asked: CheckSet<'_>,
        outcomes: &mut [CheckOutcome],
    ) -> impl Future<Output = Decided> {
        async move {
            let unspent = asked.checks.iter().map(|check| Check { spends: false, ..*check });
            let checks: SmallVec<[Check<'_>; 4]> = unspent.collect();
            self.decide(CheckSet { checks: &checks, ..asked }, outcomes).await
        }
    }

    /// Charges deferred costs, whether they pass or not: buckets go below zero as far as their
    /// limits have room for debts.
    fn charge_after(&self, charges: &[DeferredCheck]) -> impl Future<Output = ()>;

    /// Charges deferred costs without waiting, if that is possible: false if nothing was charged,
    /// and it has to be waited for.
    #[must_use]
    fn try_charge_after(&self, charges: &[DeferredCheck]) -> bool;

    /// Charges deferred costs in the background.
    fn charge_detached(&self, charges: &[DeferredCheck]);

    /// Releases the slots that an admitted request has held, in the background.
    fn release(&self, slots: &[DeferredCheck]);

    /// Resolves when all detached work is done.
    fn flush(&self) -> impl Future<Output = ()>;
}
