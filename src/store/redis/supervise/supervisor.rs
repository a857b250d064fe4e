//! The background task that looks after Redis: sends a heartbeat once a second, counts the other
//! gateways, and brings Redis back into use after a failure.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::census;
use super::joint_recovery::ANNOUNCEMENT_INTERVAL;
use super::masters::Masters;
use super::overrides;
use super::payments::Payments;
use super::probe;
use super::recovery_trial::{PAUSE, PROBES};
use super::silence::watch_silence;
use super::tenants;
use crate::store::redis::RedisShared;
use crate::store::redis::connect::backoff::Backoff;
use crate::store::redis::connect::failure::{Failure, Reason};
use crate::store::redis::connect::reply_deadline::reply_by;
use crate::store::redis::connect::sentinel_watch;
use crate::store::redis::connect::server_clock::ServerClock;
use crate::store::redis::connect::session::Session;

/// How often a node says that it is alive.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(1);
/// How long one step of the supervisor may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
/// How often the tenants of run time are kept from ending.
const KEEP_TENANTS: Duration = Duration::from_secs(86_400);
/// How long the workers get to connect once the supervisor has.
const LINK_CONNECT_TIME: Duration = Duration::from_secs(1);
/// How long they are waited for at most, with the probes that they make then: the heartbeat of this node
/// waits for it.
const LONGEST_LINK_WAIT: Duration = Duration::from_secs(3);
/// How often a broken connection is made anew before Redis counts as gone.
const RENEWALS: usize = 2;
/// It holds no slots: any number that is no worker's.
pub(crate) const SUPERVISOR: usize = u16::MAX as usize;

#[derive(Debug)]
pub(crate) struct Supervisor {
    pub(crate) shared: Arc<RedisShared>,
    pub(crate) session: Option<Session>,
    backoff: Backoff,
    pub(crate) payments: Payments,
    /// The names of the gateways that share the store, as last heard while it was in use; and those
    /// that were heard since.
    pub(super) known_nodes: Vec<String>,
    /// Those of the last heartbeat.
    pub(super) last_heard: Vec<String>,
    /// The clock by which the sets of nodes are kept, and when it was last read.
    pub(super) server_clock: ServerClock,
    pub(super) time_read: Instant,
    /// When Redis was last taken into use again.
    pub(super) restored: Option<Instant>,
    /// When it last said that this node is alive.
    pub(crate) last_heartbeat: Instant,
    /// When all that is done once a second was last done.
    pub(super) last_tick: Instant,
    /// When Redis was last brought into use, or connected to again: the others are counted anew.
    pub(super) counting_since: Instant,
    /// How often the breaker had opened when the recovery began that is under way, or was last.
    pub(super) trips: u64,
    pub(super) masters: Masters,
    /// The mark of the overrides that were last read.
    overrides_seen: Option<String>,
    /// Whether it has been logged that they cannot be read, or the tenants.
    overrides_failing: bool,
    /// When the tenants were last kept from ending.
    tenants_kept: Instant,
}

impl Supervisor {
    pub(crate) fn new(shared: Arc<RedisShared>) -> Self {
        Supervisor {
            session: None,
            backoff: Backoff::new(),
            payments: Payments::new(
                shared.reserved_key(&format!("fence:{}:supervisor", shared.node)),
            ),
            known_nodes: Vec::new(),
            last_heard: Vec::new(),
            server_clock: ServerClock::default(),
            time_read: Instant::now(),
            restored: None,
            last_heartbeat: Instant::now(),
            last_tick: Instant::now(),
            counting_since: Instant::now(),
            trips: 0,
            masters: Masters::new(),
            overrides_seen: None,
            overrides_failing: false,
            tenants_kept: Instant::now(),
            shared,
        }
    }

    /// The first contact: Redis is in use when this returns true. Takes as long as it takes to find out
    /// that there is none, or until gateways that were in an outage have paid what they owe.
    pub(crate) async fn start(&mut self) -> bool {
        sentinel_watch::start(&self.shared);
        self.restore().await
    }

    /// Never ends.
    pub(crate) async fn run(mut self) {
        let shared = self.shared.clone();
        let mut trips = shared.breaker.trips();
        let mut beats = interval(HEARTBEAT);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut announcements = interval(ANNOUNCEMENT_INTERVAL);
        announcements.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if self.shared.breaker.is_open() {
                if !self.restore().await {
                    sleep(self.backoff.next()).await;
                }
                continue;
            }
            self.backoff.reset();
            let mut done = tokio::select! {
                _ = beats.tick() => self.tick().await,
                _ = announcements.tick(), if self.is_announced() => self.announce().await,
                () = shared.debts_noted.notified() => {
                    self.wait_for_refunds().await;
                    self.pay_in_use().await
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
        self.trips = *self.shared.breaker.trips().borrow();
        match self.probe().await {
            Ok(()) => {}
            Err(failure) => {
                self.fail(&failure);
                return false;
            }
        }
        if !self.wait_for_links().await {
            return false;
        }
        // What was admitted here meanwhile is paid while that goes on, so that next to nothing is
        // left when requests wait for it.
        let group = match self.pay_with_others().await {
            Ok(group) => group,
            Err(failure) => {
                self.fail(&failure);
                return false;
            }
        };
        // At the cutover no request is decided without Redis any more, though a worker may have lost its
        // connection just before: it is waited for while requests are held back.
        let is_cutover = group.as_ref().is_some_and(|it| it.is_cutover);
        if !is_cutover && !self.wait_for_links().await {
            return false;
        }
        if !self.shared.breaker.half_close(self.trips) {
            return false;
        }
        self.counting_since = Instant::now();
        // From here on no request is decided without Redis, and none by Redis before the last debt is
        // paid.
        if let Err(failure) = self.pay_the_rest(group).await {
            self.fail(&failure);
            return false;
        }
        if !self.shared.breaker.close(self.trips) {
            return false;
        }
        self.payments.refill_until = None;
        self.masters.take_into_use();
        self.warn_of_unpaid();
        (self.last_tick, self.restored) = (Instant::now(), Some(Instant::now()));
        true
    }

    /// Waits until every worker has a connection that answers as fast as decisions need it. False if that
    /// takes too long.
    pub(super) async fn wait_for_links(&self) -> bool {
        let probes = (self.shared.timeout + PAUSE) * PROBES;
        let deadline = Instant::now() + (LINK_CONNECT_TIME + probes).min(LONGEST_LINK_WAIT);
        while !self.shared.breaker.all_links_are_up(self.trips) {
            if Instant::now() >= deadline || self.has_tripped() {
                return false;
            }
            sleep(Duration::from_millis(2)).await;
        }
        true
    }

    /// Tests that Redis answers, decides and writes. Debts are paid once every worker has a
    /// connection, since only then is it known what lost calls have charged.
    async fn probe(&mut self) -> Result<(), Failure> {
        // A connection from before the failure may be half dead.
        let session = Session::open(&self.shared.dialer).await?;
        within(session.ping()).await?;
        let sent = Instant::now();
        let now = probe::decide(&self.shared, &session, SUPERVISOR).await?;
        self.shared.clock.steer(now, sent, Instant::now());
        self.masters.look(&self.shared, &session).await;
        self.session = Some(session);
        self.server_clock = ServerClock::default();
        self.read_time().await?;
        if self.known_nodes.is_empty() {
            // It has just started, and the others may be in an outage.
            self.known_nodes = self.report_alive(census::REMEMBERED).await?;
        }
        self.beat().await?;
        // Before the first request comes, so that a blocked caller is blocked from the start.
        self.sync_overrides().await
    }

    async fn renew(&mut self) -> Result<(), Failure> {
        let session = Session::open(&self.shared.dialer).await?;
        self.masters.look(&self.shared, &session).await;
        self.session = Some(session);
        // It may lead to another server, or to one that has lost its data.
        self.server_clock = ServerClock::default();
        self.counting_since = Instant::now();
        self.tick().await?;
        // One that answers and does not serve yet is the outage that is to be recognised by it.
        if !self.shared.breaker.is_open() {
            self.masters.take_into_use();
        }
        Ok(())
    }

    /// What is done once a second.
    async fn tick(&mut self) -> Result<(), Failure> {
        self.read_time().await?;
        self.beat().await?;
        self.sync_overrides().await?;
        // Mostly there is nothing to pay: a new debt wakes the supervisor at once.
        self.pay_in_use().await?;
        self.announce().await?;
        if let Some(session) = &self.session {
            self.masters.follow(&self.shared, session).await;
        }
        self.last_tick = Instant::now();
        Ok(())
    }

    /// Reads the overrides and the tenants that other gateways have set. Decisions do not depend on it:
    /// a failure is logged once, unless the connection has failed.
    async fn sync_overrides(&mut self) -> Result<(), Failure> {
        let (Some(session), Some(overrides)) = (&self.session, self.shared.overrides.get()) else {
            return Ok(());
        };
        let (shared, seen) = (&self.shared, &mut self.overrides_seen);
        let (kept, tenants) = (&mut self.tenants_kept, self.shared.tenants.get());
        let synced = async {
            overrides::sync(shared, session, seen, overrides).await?;
            let Some(tenants) = tenants else { return Ok(()) };
            tenants::sync(shared, session, tenants).await?;
            if kept.elapsed() > KEEP_TENANTS {
                tenants::keep_alive(shared, session).await?;
                *kept = Instant::now();
            }
            Ok(())
        };
        match watch_silence(shared, session, within(synced)).await {
            Err(failure) if failure.reason == Reason::Connection => return Err(failure),
            Err(failure) if !self.overrides_failing => {
                tracing::warn!(%failure, "what operators have decided elsewhere is not heard of");
                self.overrides_failing = true;
            }
            Err(_) => {}
            Ok(()) => self.overrides_failing = false,
        }
        Ok(())
    }

    fn fail(&mut self, failure: &Failure) {
        self.session = None;
        self.shared.breaker.count(failure);
        self.shared.breaker.trip(failure);
    }
}

pub(crate) async fn within<T>(
    step: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let answered = reply_by(Instant::now() + PATIENCE, step).await;
    answered.unwrap_or_else(|| Err(Failure::timeout()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::tests::shared;

    #[test]
    fn steps_that_lie_in_each_other_fit_on_a_stack() {
        const ENOUGH: usize = 64 * 1024;
        let mut starting = Supervisor::new(shared(""));
        assert!(size_of_val(&starting.start()) < ENOUGH);
        assert!(size_of_val(&starting.run()) < ENOUGH);
    }
}
