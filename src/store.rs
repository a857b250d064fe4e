//! Where buckets live, and where all checks of a request are decided at once.
//!
//! Every store keeps the same promise: the checks of one request are evaluated at one instant,
//! and either all enforced ones admit and all are charged, or nothing is.

pub mod bucket_id;
pub mod memory;
pub mod names;
pub mod redis;

use std::rc::Rc;
use std::sync::Arc;

use crate::clock::{Clock, Micros};
use crate::config::settings;
use crate::limit::{OnError, Policy, Retry, State};
use crate::rulings::{Book, Ruling};

pub use self::redis::RedisStore;
pub use bucket_id::{BucketHasher, BucketId, BucketName};
pub use memory::MemoryStore;
pub use names::{Name, Names};

/// One bucket to charge with one cost, and what came of it. All checks of a request on the same
/// bucket are meant alike: in whether they spend, and whether they are enforced.
#[derive(Debug, Clone, Copy)]
pub struct Check<'a> {
    pub policy: &'a Policy,
    /// What all buckets of the limit, or of one of its plans, start from:
    /// [`BucketHasher::limit_prefix`].
    pub limit: u64,
    pub bucket: BucketId,
    /// What the bucket is called where many gateways share it; empty where none do.
    pub name: Name,
    pub cost: u64,
    /// How many microseconds ago the cost could have passed: see [`Policy::evaluate_late`], which
    /// counts one unit's worth of it at the most.
    pub late: u64,
    /// False: it is only asked whether the cost would pass.
    pub spends: bool,
    /// False: the check only watches, and whether it admits decides nothing for its request.
    pub enforced: bool,
    pub on_error: OnError,
    /// The bucket after the decision: charged if the whole request was admitted and this check
    /// would have, else as it was.
    pub state: State,
    /// The instant at which it was evaluated, on the clock of whoever keeps the bucket.
    pub now: Micros,
    /// `None`: this check admits.
    pub refused: Option<Retry>,
    /// False if the store could not be asked, and nobody stood in for it.
    pub decided: bool,
    /// The cost was charged to a bucket that its key shares with others: see
    /// [`memory::overflow`]. Places are given back where they were taken.
    pub shared: bool,
}

impl<'a> Check<'a> {
    /// A check that is yet to be decided.
    #[must_use]
    pub fn new(policy: &'a Policy, limit: u64, bucket: BucketId, cost: u64) -> Self {
        Self {
            policy,
            limit,
            bucket,
            name: Name::default(),
            cost,
            late: 0,
            spends: true,
            enforced: true,
            on_error: OnError::default(),
            state: State::default(),
            now: Micros::default(),
            refused: None,
            decided: true,
            shared: false,
        }
    }
}

/// A check that outlives its request's first half: a charge that is made when the response is
/// known, or places that are held until it has ended.
#[derive(Debug, Clone)]
pub struct Lasting {
    policy: Policy,
    limit: u64,
    bucket: BucketId,
    name: Box<[u8]>,
    pub cost: u64,
    on_error: OnError,
    now: Micros,
    shared: bool,
}

impl Lasting {
    #[must_use]
    pub fn of(check: &Check<'_>, names: &Names) -> Self {
        let Check { limit, bucket, cost, on_error, now, shared, .. } = *check;
        let name = names.get(check.name).into();
        Lasting { policy: *check.policy, limit, bucket, name, cost, on_error, now, shared }
    }

    /// The same as a check, without its name.
    #[must_use]
    pub fn check(&self) -> Check<'_> {
        let Lasting { ref policy, limit, bucket, cost, on_error, now, shared, .. } = *self;
        Check { on_error, now, shared, ..Check::new(policy, limit, bucket, cost) }
    }

    /// The same under a policy that has changed since.
    #[must_use]
    pub fn under(self, policy: Policy) -> Self {
        Lasting { policy, ..self }
    }

    /// What the bucket is called where many gateways share it.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    #[must_use]
    pub fn bucket(&self) -> BucketId {
        self.bucket
    }

    /// What all buckets of the limit, or of one of its plans, start from.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }
}

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
    /// The store fails, and a limit says that nobody passes then.
    #[error("the limits of this request cannot be checked at the moment")]
    Unavailable,
}

/// One behaviour, whatever keeps the buckets.
pub trait Store {
    /// Decides all checks at one instant and writes the outcome into them.
    fn decide(
        &self,
        checks: &mut [Check<'_>],
        names: &Names,
    ) -> impl Future<Output = Result<Decision, StoreError>>;

    /// Looks at buckets at one instant, and at what the checks would get, without spending.
    fn peek(
        &self,
        checks: &mut [Check<'_>],
        names: &Names,
    ) -> impl Future<Output = Result<Decision, StoreError>> {
        checks.iter_mut().for_each(|check| check.spends = false);
        self.decide(checks, names)
    }

    /// Charges costs after the fact, whether they pass or not: buckets go below zero as far as
    /// their limits have room for debts.
    fn owe(&self, charges: &[Lasting]) -> impl Future<Output = ()>;

    /// The same for one who does not wait until it is done.
    fn owe_unheard(&self, charges: &[Lasting]);

    /// Gives back the places that an admitted request has held. Does not wait.
    fn release(&self, places: &[Lasting]);

    /// Resolves when everything that does not wait has been done.
    fn settle(&self) -> impl Future<Output = ()>;
}

/// The store that the configuration names, as one worker holds it.
#[derive(Debug)]
pub enum AnyStore {
    Memory(Arc<MemoryStore>),
    Redis(RedisStore),
}

impl AnyStore {
    /// Charges costs after the fact, also if whoever waits for that leaves meanwhile.
    pub async fn owe_surely(self: &Rc<Self>, charges: Vec<Lasting>) -> Vec<Lasting> {
        if let AnyStore::Memory(store) = &**self {
            store.owe_unheard(&charges);
            return charges;
        }
        let store = self.clone();
        let charged = tokio::task::spawn_local(async move {
            store.owe(&charges).await;
            charges
        });
        charged.await.unwrap_or_default()
    }
}

impl Store for AnyStore {
    async fn decide(
        &self,
        checks: &mut [Check<'_>],
        names: &Names,
    ) -> Result<Decision, StoreError> {
        match self {
            AnyStore::Memory(store) => store.decide(checks, names).await,
            AnyStore::Redis(store) => store.decide(checks, names).await,
        }
    }

    async fn owe(&self, charges: &[Lasting]) {
        match self {
            AnyStore::Memory(store) => store.owe(charges).await,
            AnyStore::Redis(store) => store.owe(charges).await,
        }
    }

    fn owe_unheard(&self, charges: &[Lasting]) {
        match self {
            AnyStore::Memory(store) => store.owe_unheard(charges),
            AnyStore::Redis(store) => store.owe_unheard(charges),
        }
    }

    fn release(&self, places: &[Lasting]) {
        match self {
            AnyStore::Memory(store) => Store::release(&**store, places),
            AnyStore::Redis(store) => store.release(places),
        }
    }

    async fn settle(&self) {
        if let AnyStore::Redis(store) = self {
            store.settle().await;
        }
    }
}

/// What all workers share of the store.
#[derive(Debug, Clone)]
pub enum Shared {
    Memory(Arc<MemoryStore>),
    Redis(Arc<redis::Shared>),
}

impl Shared {
    /// One worker's hold on the store. Has to be called on the worker's runtime.
    #[must_use]
    pub fn for_worker(&self) -> AnyStore {
        match self {
            Shared::Memory(store) => AnyStore::Memory(store.clone()),
            Shared::Redis(shared) => AnyStore::Redis(RedisStore::start(shared.clone())),
        }
    }

    /// Takes over what a reload has changed.
    pub fn configure(&self, settings: &settings::Store) {
        if let Shared::Redis(shared) = self {
            shared.configure(settings);
        }
    }

    /// The buckets in this process: all there are, or what is known of those elsewhere.
    #[must_use]
    pub fn memory(&self) -> &MemoryStore {
        match self {
            Shared::Memory(store) => store,
            Shared::Redis(shared) => shared.local(),
        }
    }

    /// The clock that decisions are made by.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.memory().clock()
    }

    /// The name that metrics and health go by.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Shared::Memory(_) => "memory",
            Shared::Redis(_) => "redis",
        }
    }

    /// Whether limits are being served without the store they live in.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        match self {
            Shared::Memory(_) => false,
            Shared::Redis(shared) => shared.health().is_open(),
        }
    }

    /// Why it fails, if that is known.
    #[must_use]
    pub fn failure(&self) -> Option<&'static str> {
        match self {
            Shared::Memory(_) => None,
            Shared::Redis(shared) => shared.health().reason(),
        }
    }

    /// Shares what operators decide with all who use the store.
    pub fn share(&self, book: &Arc<Book>) {
        if let Shared::Redis(shared) = self {
            shared.share(book.clone());
        }
    }

    /// Makes a ruling known to all who use the store.
    ///
    /// # Errors
    /// If the store does not take it.
    pub async fn put_ruling(&self, ruling: &Ruling) -> Result<(), String> {
        match self {
            Shared::Memory(_) => Ok(()),
            Shared::Redis(it) => it.put_ruling(ruling).await.map_err(|it| it.to_string()),
        }
    }

    /// Takes one back.
    ///
    /// # Errors
    /// If the store does not take it.
    pub async fn remove_ruling(&self, id: &str) -> Result<(), String> {
        match self {
            Shared::Memory(_) => Ok(()),
            Shared::Redis(it) => it.remove_ruling(id).await.map_err(|it| it.to_string()),
        }
    }

    /// Brings the store into use, or finds out that it is not there, and sees to it from then on.
    pub async fn begin(&self) {
        if let Shared::Redis(shared) = self {
            let mut keeper = shared.keeper();
            keeper.begin().await;
            tokio::spawn(keeper.keep());
        }
    }

    /// Tells others who share the store that this node goes.
    pub async fn leave(&self) {
        if let Shared::Redis(shared) = self
            && !self.is_degraded()
        {
            shared.leave().await;
        }
    }
}
