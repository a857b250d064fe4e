//! Keeps an eye on Redis, apart from the traffic: says once a second that this node is alive,
//! counts the others, and brings Redis back into use after a failure.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::Shared;
use super::backoff::Backoff;
use super::census;
use super::cluster_view::View;
use super::failure::{Failure, Reason};
use super::payments::Payments;
use super::probe;
use super::rulings;
use super::sentinel_watch;
use super::session::Session;
use super::trial::{PAUSE, PROBES};

/// How often a node says that it is alive.
pub(super) const BEAT: Duration = Duration::from_secs(1);
/// How long one step of the keeper's may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);
/// How long the workers get to connect, once the keeper has, and at most with the probes that they
/// make then: the others want to hear of this node meanwhile.
const LINKS: Duration = Duration::from_secs(1);
const MOST_LINKS: Duration = Duration::from_secs(3);
/// How often a broken connection is made anew before Redis counts as gone.
const RENEWALS: usize = 2;
/// It holds no places: any number that is no worker's.
pub(super) const KEEPER: usize = u16::MAX as usize;

#[derive(Debug)]
pub struct Keeper {
    pub(super) shared: Arc<Shared>,
    pub(super) session: Option<Session>,
    backoff: Backoff,
    pub(super) payments: Payments,
    /// When it last said that this node is alive.
    pub(super) beaten: Instant,
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
            payments: Payments::new(shared.name(&format!("fence:{}:keeper", shared.node))),
            beaten: Instant::now(),
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
                () = shared.owing.notified() => {
                    self.refunds_made().await;
                    self.pay().await.map(|_| ())
                }
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
        let probes = (self.shared.timeout + PAUSE) * PROBES;
        let deadline = Instant::now() + (LINKS + probes).min(MOST_LINKS);
        while !self.shared.health.all_links_are_up(trips) {
            if Instant::now() >= deadline || *self.shared.health.trips().borrow() != trips {
                return false;
            }
            sleep(Duration::from_millis(2)).await;
        }
        // What was admitted here meanwhile is paid while that goes on, so that next to nothing is
        // left when requests wait for it.
        if let Err(failure) = self.pay_down().await {
            self.fail(&failure);
            return false;
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
        self.warn_of_unpaid();
        self.shared.health.close(trips)
    }

    /// Shows that Redis serves: it answers, it decides, it writes. What is owed is paid once every
    /// worker has a connection, since only then is it known what lost calls have charged.
    async fn prove(&mut self) -> Result<(), Failure> {
        // A connection from before the failure may be half dead.
        let session = Session::open(&self.shared.dialer).await?;
        within(session.ping()).await?;
        let sent = Instant::now();
        let now = probe::decide(&self.shared, &session, KEEPER).await?;
        self.shared.clock.steer(now, sent, Instant::now());
        self.warn_of_eviction(&session).await;
        self.session = Some(session);
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
        self.pay().await.map(|_| ())
    }

    pub(super) async fn beat(&mut self) -> Result<(), Failure> {
        self.beaten = Instant::now();
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
