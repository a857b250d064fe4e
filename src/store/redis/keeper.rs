//! Keeps an eye on Redis, apart from the traffic: says once a second that this node is alive,
//! counts the others, and brings Redis back into use after a failure.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::time::{Instant, sleep, timeout};

use super::Shared;
use super::adjustment::{Adjustment, Op};
use super::backoff::Backoff;
use super::batch::{Batch, Charge};
use super::census;
use super::failure::{Failure, Reason};
use super::link::adjust;
use super::reply::Reply;
use super::script;
use super::session::Session;
use super::slot::slot;
use crate::limit::token_bucket::TokenBucket;
use crate::limit::{Policy, Rate};
use crate::store::BucketId;

/// How often a node says that it is alive.
const BEAT: Duration = Duration::from_secs(1);
/// How long one step of the keeper's may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the workers get to connect, once the keeper has.
const LINKS: Duration = Duration::from_secs(1);
/// Debts that are paid in one call.
const DEBTS: usize = 200;

#[derive(Debug)]
pub struct Keeper {
    shared: Arc<Shared>,
    session: Option<Session>,
    backoff: Backoff,
    /// What was last warned of, so that it is not said at every reconnect.
    warned: Vec<String>,
}

impl Keeper {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Keeper { shared, session: None, backoff: Backoff::new(), warned: Vec::new() }
    }

    /// The first contact: Redis is in use when this returns true. Takes no longer than it takes
    /// to find out that there is none.
    pub async fn begin(&mut self) -> bool {
        self.restore().await
    }

    /// Never ends.
    pub async fn keep(mut self) {
        let shared = self.shared.clone();
        let mut trips = shared.health.trips();
        loop {
            if self.shared.health.is_open() {
                if !self.restore().await {
                    sleep(self.backoff.next()).await;
                }
                continue;
            }
            self.backoff.reset();
            let done = tokio::select! {
                () = sleep(BEAT) => self.beat().await,
                () = shared.owing.notified() => self.pay().await,
                _ = trips.changed() => continue,
            };
            if let Err(failure) = done {
                self.fail(&failure);
            }
        }
    }

    /// Tries to bring Redis into use. False if it is not there, or not yet for every worker.
    async fn restore(&mut self) -> bool {
        let trips = *self.shared.health.trips().borrow();
        match self.prove().await {
            Ok(()) => {}
            Err(failure) => {
                self.fail(&failure);
                return false;
            }
        }
        let deadline = Instant::now() + LINKS;
        while !self.shared.health.all_links_are_up(trips) {
            if Instant::now() >= deadline || *self.shared.health.trips().borrow() != trips {
                return false;
            }
            sleep(Duration::from_millis(2)).await;
        }
        if !self.shared.health.half_close(trips) {
            return false;
        }
        // Nobody is admitted alone from here on, and nobody by Redis before the last debt is paid.
        if let Err(failure) = self.pay().await {
            self.fail(&failure);
            return false;
        }
        self.shared.health.close(trips)
    }

    /// Shows that Redis serves: it answers, it decides, it writes; and pays what is owed.
    async fn prove(&mut self) -> Result<(), Failure> {
        // A connection from before the failure may be half dead.
        let session = Session::open(&self.shared.dialer).await?;
        within(session.ping()).await?;
        within(self.try_out(&session)).await?;
        self.warn_of_eviction(&session).await;
        self.session = Some(session);
        self.pay().await?;
        self.beat().await
    }

    async fn beat(&mut self) -> Result<(), Failure> {
        let Some(session) = &self.session else { return Err(Failure::timeout()) };
        if session.is_cluster() {
            within(session.ping()).await?;
        }
        let name = self.shared.name("nodes");
        let beat = census::beat(&name, &self.shared.node, self.shared.clock.now());
        self.shared.set_nodes(within(session.count(&name, &beat)).await?);
        Ok(())
    }

    /// One decision on a bucket of its own: whether the script runs, writes, and makes sense.
    async fn try_out(&self, session: &Session) -> Result<(), Failure> {
        let policy = probe_policy()
            .ok_or_else(|| Failure::new(Reason::Other, "the probe has no valid policy"))?;
        let name = self.shared.name("probe");
        let mut batch = Batch::default();
        let charge = Charge { bucket: BucketId(0), name: &name, policy: &policy, cost: 1 };
        let request = batch.push(std::iter::once(charge));
        let value = session
            .run(slot(&name), Instant::now() + PATIENCE, |form| {
                batch.call(&script::DECIDE, form, None)
            })
            .await?;
        let Value::BulkString(bytes) = value else {
            return Err(Failure::new(Reason::Reply, "the script gave no text"));
        };
        let reply = Reply::parse(&bytes, &batch)?;
        self.shared.clock.steer(reply.now(), Instant::now());
        // Refused or not, it has answered.
        let _ = reply.admitted(request);
        Ok(())
    }

    /// Charges what was admitted without Redis.
    async fn pay(&mut self) -> Result<(), Failure> {
        let Some(session) = self.session.clone() else { return Ok(()) };
        let now = self.shared.clock.now();
        let mut debts = self.shared.ledger.lock().take(now);
        if session.is_cluster() {
            debts.sort_by_key(|(_, debt)| slot(&debt.name));
        }
        while let Some((_, first)) = debts.last() {
            let here = if session.is_cluster() { slot(&first.name) } else { 0 };
            let same = |name: &[u8]| !session.is_cluster() || slot(name) == here;
            let count = debts.iter().rev().take(DEBTS).take_while(|it| same(&it.1.name)).count();
            let due = &debts[debts.len() - count..];
            let adjustments: Vec<_> = due
                .iter()
                .map(|(_, debt)| Adjustment {
                    op: Op::Owe,
                    name: &debt.name,
                    policy: &debt.policy,
                    cost: debt.cost,
                })
                .collect();
            let deadline = Instant::now() + PATIENCE;
            if let Err(failure) = adjust(&session, here, &adjustments, deadline).await {
                self.shared.ledger.lock().restore(debts);
                return Err(failure);
            }
            debts.truncate(debts.len() - count);
        }
        Ok(())
    }

    /// A store that forgets buckets to make room gives callers fresh ones.
    async fn warn_of_eviction(&mut self, session: &Session) {
        let policies = match within(session.eviction_policies()).await {
            Ok(policies) => policies,
            Err(failure) => return tracing::debug!(%failure, "maxmemory-policy cannot be read"),
        };
        let evicting: Vec<_> = policies.into_iter().filter(|it| it != "noeviction").collect();
        if !evicting.is_empty() && evicting != self.warned {
            tracing::warn!(
                "redis has maxmemory-policy {}: when its memory is full it forgets buckets, and \
                 their callers start afresh; set it to noeviction",
                evicting.join(", ")
            );
        }
        self.warned = evicting;
    }

    fn fail(&mut self, failure: &Failure) {
        self.session = None;
        self.shared.health.count(failure);
        self.shared.health.trip(failure);
    }
}

/// Says good-bye, so that the others' shares grow at once. If it is not heard, they find out by
/// themselves.
pub(super) async fn leave(shared: &Shared) {
    let _ = within(async {
        let session = Session::open(&shared.dialer).await?;
        let name = shared.name("nodes");
        session.count(&name, &census::leave(&name, &shared.node)).await
    })
    .await;
}

async fn within<T>(step: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    timeout(PATIENCE, step).await.unwrap_or_else(|_| Err(Failure::timeout()))
}

/// Refills at once and expires soon.
fn probe_policy() -> Option<Policy> {
    let rate = Rate::new(1_000, Duration::from_secs(1)).ok()?;
    TokenBucket::new(rate, 1_000).ok().map(Policy::TokenBucket)
}
