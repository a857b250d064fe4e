//! Keeps an eye on Redis, apart from the traffic: says once a second that this node is alive,
//! counts the others, and brings Redis back into use after a failure.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::Value;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::Shared;
use super::backoff::Backoff;
use super::batch::{Batch, Charge, Fence};
use super::census;
use super::cluster_view::View;
use super::failure::{Failure, Reason};
use super::ledger::Debt;
use super::link::adjust;
use super::reply::Reply;
use super::rulings;
use super::script;
use super::sentinel_watch;
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
/// How often a broken connection is made anew before Redis counts as gone.
const RENEWALS: usize = 2;
/// After this a payment of which it is not known whether it was made counts as made: its fence may
/// be gone.
const FORGOTTEN: Duration = Duration::from_secs(300);
/// It holds no places: any number that is no worker's.
const KEEPER: usize = u16::MAX as usize;
/// Debts that are paid in one call.
const DEBTS: usize = 200;

/// Debts that are paid together.
#[derive(Debug)]
struct Payment {
    number: u64,
    begun: Instant,
    slot: u16,
    debts: Vec<(BucketId, Debt)>,
}

#[derive(Debug)]
pub struct Keeper {
    shared: Arc<Shared>,
    session: Option<Session>,
    backoff: Backoff,
    /// The name of its fence, how many payments it has made, and one of which it does not know
    /// whether it has been: see `lua/adjust.lua`.
    fence: Vec<u8>,
    payments: u64,
    payment: Option<Payment>,
    /// When Redis was last brought into use.
    restored: Instant,
    /// What was last warned of, so that it is not said at every reconnect.
    warned: Vec<String>,
    /// The last change of rulings that was heard of.
    rulings_seen: Option<String>,
    /// Whether it is known that they cannot be heard of.
    rulings_unheard: bool,
}

impl Keeper {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Keeper {
            session: None,
            backoff: Backoff::new(),
            fence: shared.name(&format!("fence:{}:keeper", shared.node)),
            payments: 0,
            payment: None,
            restored: Instant::now(),
            warned: Vec::new(),
            rulings_seen: None,
            rulings_unheard: false,
            shared,
        }
    }

    /// The first contact: Redis is in use when this returns true. Takes no longer than it takes
    /// to find out that there is none.
    pub async fn begin(&mut self) -> bool {
        sentinel_watch::start(&self.shared);
        self.restore().await
    }

    /// Never ends.
    pub async fn keep(mut self) {
        let shared = self.shared.clone();
        let mut trips = shared.health.trips();
        let mut beats = interval(BEAT);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if self.shared.health.is_open() {
                if !self.restore().await {
                    sleep(self.backoff.next()).await;
                }
                continue;
            }
            self.backoff.reset();
            let mut done = tokio::select! {
                _ = beats.tick() => self.look_after().await,
                () = shared.owing.notified() => self.pay().await,
                _ = trips.changed() => continue,
            };
            for _ in 0..RENEWALS {
                // A connection may break though Redis is there.
                if done.as_ref().is_err_and(|it: &Failure| it.reason == Reason::Connection) {
                    done = self.renew().await;
                }
            }
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
        self.restored = Instant::now();
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
        self.beat().await?;
        // Before the first request comes: whoever is kept out is kept out from the start.
        self.hear_rulings().await
    }

    async fn renew(&mut self) -> Result<(), Failure> {
        self.session = Some(Session::open(&self.shared.dialer).await?);
        self.look_after().await
    }

    /// What is done once a second.
    async fn look_after(&mut self) -> Result<(), Failure> {
        self.beat().await?;
        self.hear_rulings().await?;
        // Mostly there is nothing to pay: whoever owes says so at once.
        self.pay().await
    }

    async fn beat(&mut self) -> Result<(), Failure> {
        let Some(session) = &self.session else { return Err(Failure::timeout()) };
        if session.is_cluster() {
            within(session.ping()).await?;
            self.refresh_nodes();
        }
        let name = self.shared.name("nodes");
        let beat = census::beat(&name, &self.shared.node, self.shared.clock.now());
        let heard = within(session.count(&name, &beat)).await?;
        // After a failure the others have to be heard of again before they count as gone.
        let gone = self.restored.elapsed() > census::LIFETIME;
        self.shared.set_nodes(if gone { heard } else { heard.max(self.shared.nodes()) });
        Ok(())
    }

    /// Learns of nodes that have joined the cluster, and forgets those that left. Nobody waits for
    /// it: what is known is good enough until one of the masters fails.
    fn refresh_nodes(&self) {
        let dialer = self.shared.dialer.clone();
        if !dialer.known.is_due() {
            return;
        }
        tokio::spawn(async move {
            let Some(seeds) = dialer.seeds() else { return };
            if let Err(failure) = View::ask(&dialer, seeds).await {
                tracing::debug!(%failure, "the nodes of the cluster are not told");
            }
        });
    }

    /// What operators have decided elsewhere. Decisions do not wait for it: whatever is wrong with it,
    /// unless it is the connection, is warned of once.
    async fn hear_rulings(&mut self) -> Result<(), Failure> {
        let (Some(session), Some(book)) = (&self.session, self.shared.book.get()) else {
            return Ok(());
        };
        let heard = rulings::hear(&self.shared, session, &mut self.rulings_seen, book);
        match within(heard).await {
            Err(failure) if failure.reason == Reason::Connection => return Err(failure),
            Err(failure) if !self.rulings_unheard => {
                tracing::warn!(%failure, "what operators have decided elsewhere is not heard of");
                self.rulings_unheard = true;
            }
            Err(_) => {}
            Ok(()) => self.rulings_unheard = false,
        }
        Ok(())
    }

    /// One decision on a bucket of its own: whether the script runs, writes, and makes sense.
    async fn try_out(&self, session: &Session) -> Result<(), Failure> {
        let policy = probe_policy()
            .ok_or_else(|| Failure::new(Reason::Other, "the probe has no valid policy"))?;
        let name = self.shared.name("probe");
        let mut batch = Batch::default();
        let charge = Charge::new(BucketId(0), &name, &policy, 1);
        let request = batch.push(std::iter::once(charge));
        let sent = Instant::now();
        let value = session
            .run(slot(&name), Instant::now() + PATIENCE, |form| {
                batch.call(&script::DECIDE, form, None, self.shared.asker(KEEPER))
            })
            .await?;
        let Value::BulkString(bytes) = value else {
            return Err(Failure::new(Reason::Reply, "the script gave no text"));
        };
        let reply = Reply::parse(&bytes, &batch)?;
        self.shared.clock.steer(reply.now(), sent, Instant::now());
        // Refused or not, it has answered.
        let _ = reply.admitted(request);
        Ok(())
    }

    /// Charges what was admitted without Redis.
    async fn pay(&mut self) -> Result<(), Failure> {
        let Some(session) = self.session.clone() else { return Ok(()) };
        let (now, nodes) = (self.shared.clock.now(), self.shared.nodes());
        if let Some(mut payment) = self.payment.take() {
            payment.debts.retain_mut(|(_, debt)| debt.age(now, nodes));
            if payment.begun.elapsed() < FORGOTTEN {
                self.make(&session, payment).await?;
            }
        }
        let (debts, overflown) = {
            let mut ledger = self.shared.ledger.lock();
            (ledger.take(), ledger.has_overflown())
        };
        if overflown {
            tracing::warn!("more was admitted without Redis than max_keys has room to remember");
        }
        let mut debts: Vec<_> = debts.into_iter().collect();
        debts.retain_mut(|(_, debt)| debt.age(now, nodes));
        let place = |debt: &Debt| if session.is_cluster() { slot(&debt.name) } else { 0 };
        debts.sort_by_key(|(_, debt)| place(debt));
        while let Some((_, last)) = debts.last() {
            let slot = place(last);
            let same = |it: &&(BucketId, Debt)| place(&it.1) == slot;
            let count = debts.iter().rev().take(DEBTS).take_while(same).count();
            let due = debts.split_off(debts.len() - count);
            self.payments += 1;
            let payment =
                Payment { number: self.payments, begun: Instant::now(), slot, debts: due };
            if let Err(failure) = self.make(&session, payment).await {
                self.owe(debts);
                return Err(failure);
            }
        }
        Ok(())
    }

    /// Makes one payment. If it cannot be known whether it was made, it is made again under the
    /// same number, which Redis does not do twice; on a cluster, which has no fence, it counts as
    /// made.
    async fn make(&mut self, session: &Session, payment: Payment) -> Result<(), Failure> {
        let debts = payment.debts.iter().map(|(_, debt)| debt);
        let adjustments: Vec<_> = debts.map(Debt::adjustment).collect();
        let fence = Fence { name: &self.fence, call: payment.number };
        let fence = (!session.is_cluster()).then_some(fence);
        let deadline = Instant::now() + PATIENCE;
        let asker = self.shared.asker(KEEPER);
        let paid = adjust(session, payment.slot, &adjustments, fence, asker, deadline).await;
        match paid {
            Ok(()) => Ok(()),
            Err(failure) => {
                if !failure.is_silence() {
                    self.owe(payment.debts);
                } else if !session.is_cluster() {
                    self.payment = Some(payment);
                }
                Err(failure)
            }
        }
    }

    /// Puts debts back that are not paid.
    fn owe(&self, debts: impl IntoIterator<Item = (BucketId, Debt)>) {
        let now = self.shared.clock.now();
        let mut ledger = self.shared.ledger.lock();
        for (bucket, debt) in debts {
            ledger.add(bucket, debt, None, now);
            self.shared.owes.store(true, Ordering::Relaxed);
        }
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
