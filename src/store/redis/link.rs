//! One worker's way to Redis: a connection that is kept up in the background. What is sent over it
//! is the business of the [`lane`](super::lane).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout_at};

use super::Shared;
use super::adjustment::{self, Adjustment};
use super::backoff::Backoff;
use super::batch::Fence;
use super::dialer::CONNECT_TIMEOUT;
use super::failure::{Failure, Reason};
use super::holdings::Holdings;
use super::probe;
use super::queue::Queue;
use super::refunds::Refunds;
use super::refusals::Refusals;
use super::resync::Resync;
use super::script;
use super::server_clock::ServerClock;
use super::session::Session;
use super::slot::slot;
use super::terms::Asker;
use super::verdicts::{Heard, Verdicts};

/// How long an adjustment may take. Nobody waits for it.
pub(super) const ADJUST_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Link {
    pub(super) shared: Arc<Shared>,
    pub(super) worker: usize,
    pub(super) queue: Queue,
    live: watch::Sender<Option<Session>>,
    lost: Notify,
    /// The name of its fence, and the number of the last call that was sent: see `lua/fence.lua`.
    pub(super) fence: Vec<u8>,
    calls: Cell<u64>,
    /// The clock of the one master. Those of a cluster's nodes are the dialer's.
    pub(super) server_clock: Cell<ServerClock>,
    /// What has become known of calls whose replies did not come in time.
    pub(super) verdicts: RefCell<Verdicts>,
    /// What is given back if such a call turns out to have charged it.
    pub(super) refunds: Refunds,
    /// Buckets that are known to refuse.
    pub(super) refusals: RefCell<Refusals>,
    /// The places that requests of this worker hold.
    pub(super) holdings: Holdings,
    pub(super) resync: Resync,
}

impl Link {
    /// Starts to connect on the runtime of the current thread.
    pub(super) fn start(shared: Arc<Shared>, worker: usize) -> Rc<Self> {
        let queue = Queue::new(shared.timeout, shared.is_cluster());
        let fence = shared.name(&format!("fence:{}:{worker}", shared.node));
        let holdings = Holdings::new(shared.keys_per_worker);
        let link = Rc::new(Link {
            shared,
            worker,
            queue,
            live: watch::Sender::new(None),
            lost: Notify::new(),
            fence,
            calls: Cell::new(0),
            server_clock: Cell::default(),
            verdicts: RefCell::default(),
            refunds: Refunds::default(),
            refusals: RefCell::default(),
            holdings,
            resync: Resync::new(),
        });
        tokio::task::spawn_local(link.clone().stay_connected());
        link
    }

    /// Connects, and again whenever the connection is lost or the breaker has opened.
    async fn stay_connected(self: Rc<Self>) {
        let health = &self.shared.health;
        let mut trips = health.trips();
        let mut backoff = Backoff::new();
        loop {
            let seen = *trips.borrow_and_update();
            // A connection from before the breaker opened is of no use, however it does.
            let connected = tokio::select! {
                biased;
                _ = trips.changed() => continue,
                connected = self.connect_in_earnest() => connected,
            };
            match connected {
                Ok(live) => {
                    backoff.reset();
                    // What Redis knows of places may be out of date, or lost.
                    self.resync_all();
                    self.live.send_replace(Some(live));
                    health.link_is_up(self.worker, seen);
                    tokio::select! {
                        _ = trips.changed() => {}
                        () = self.lost.notified() => {}
                    }
                    health.link_is_down(self.worker);
                    self.live.send_replace(None);
                }
                Err(failure) => {
                    health.count(&failure);
                    // One that broke may break again while it is made anew: that says little.
                    if backoff.is_first() && failure.reason == Reason::Connection {
                        backoff.skip();
                        continue;
                    }
                    health.trip(&failure);
                    sleep(backoff.next()).await;
                }
            }
        }
    }

    /// A session that decisions can use: while they are made without Redis, one on which it has
    /// shown that it is fast enough.
    async fn connect_in_earnest(self: &Rc<Self>) -> Result<Session, Failure> {
        let session = self.connect().await?;
        if self.shared.health.is_open() {
            probe::until_fast(&self.shared, &session, self.worker).await?;
        }
        Ok(session)
    }

    /// A session, after it has become clear what became of the calls that were sent before it.
    async fn connect(self: &Rc<Self>) -> Result<Session, Failure> {
        let session = Session::open(&self.shared.dialer).await?;
        // It may be another server than before.
        self.server_clock.set(session.clock().await);
        let last = self.calls.get();
        if session.is_cluster() || last == 0 {
            return Ok(session);
        }
        let script = &*script::FENCE;
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        let raise = session.run(slot(&self.fence), deadline, |form| {
            let mut command = script.call(form, 0, 0);
            command.arg(1).arg(&self.fence[..]).arg(last);
            command
        });
        let text = match raise.await? {
            redis::Value::BulkString(text) => String::from_utf8_lossy(&text).into_owned(),
            other => return Err(Failure::unexpected(&other)),
        };
        self.verdicts.borrow_mut().hear_fence(&text, last);
        self.settle();
        Ok(session)
    }

    /// The number of a call that is about to be sent.
    pub(super) fn next_call(&self) -> u64 {
        self.calls.set(self.calls.get() + 1);
        self.calls.get()
    }

    /// It has become known what became of a call.
    pub(super) fn hear(self: &Rc<Self>, call: u64, heard: Heard) {
        self.verdicts.borrow_mut().hear(call, heard);
        self.settle();
    }

    /// It has become known what was charged by calls that were in doubt.
    fn settle(self: &Rc<Self>) {
        self.settle_refunds();
        let mut ledger = self.shared.ledger.lock();
        if ledger.has_doubts() {
            let verdicts = self.verdicts.borrow();
            let now = self.shared.clock.now();
            ledger.settle(self.worker, now, |call, request| verdicts.charged(call, request));
            self.shared.owing.notify_one();
        }
    }

    /// A session to send on, once there is one, unless the breaker opens first.
    pub(super) async fn live(&self, deadline: Instant) -> Result<Session, Failure> {
        let health = &self.shared.health;
        let mut trips = health.trips();
        if health.is_open() {
            return Err(Failure::not_asked());
        }
        let mut live = self.live.subscribe();
        let found = async {
            // Whoever waits for the last debts to be paid has not asked Redis anything.
            let closed = timeout_at(deadline, health.closed()).await;
            closed.map_err(|_| Failure::not_asked())?;
            let found = timeout_at(deadline, live.wait_for(Option::is_some)).await;
            let found = found.ok().and_then(Result::ok).and_then(|live| live.clone());
            found.ok_or_else(Failure::timeout)
        };
        tokio::select! {
            biased;
            found = found => found,
            _ = trips.changed() => Err(Failure::not_asked()),
        }
    }

    /// The session does not work any more.
    pub(super) fn lose(&self) {
        self.live.send_replace(None);
        self.lost.notify_one();
    }

    pub(super) fn asker(&self) -> Asker {
        self.shared.asker(self.worker)
    }

    /// The session there is now, if there is one.
    pub(super) fn session(&self) -> Option<Session> {
        self.live.borrow().clone()
    }

    /// Resolves when there is a connection, whether the breaker is closed or not.
    pub(super) async fn connected(&self) -> Option<Session> {
        let mut live = self.live.subscribe();
        // The sender is this link's own, and lives as long as it does.
        live.wait_for(Option::is_some).await.ok().and_then(|live| live.clone())
    }

    /// Charges costs to one slot, whether they pass or not, and waits until that is done.
    ///
    /// # Errors
    /// If it was not, or cannot be known to be.
    pub(super) async fn owe(
        &self,
        slot: u16,
        adjustments: &[Adjustment<'_>],
        deadline: Instant,
    ) -> Result<(), Failure> {
        // Without a session nothing is sent.
        let session = self.live(deadline).await.map_err(|_| Failure::not_asked())?;
        let owed = adjust(&session, slot, adjustments, None, self.asker(), deadline);
        timeout_at(deadline, owed).await.unwrap_or(Err(Failure::timeout()))
    }
}

/// Gives back, charges what is owed, or tells what is held, on keys that all lie in `slot`.
pub(super) async fn adjust(
    session: &Session,
    slot: u16,
    adjustments: &[Adjustment<'_>],
    fence: Option<Fence<'_>>,
    asker: Asker,
    deadline: Instant,
) -> Result<(), Failure> {
    let script = &*script::ADJUST;
    let run = session
        .run(slot, deadline, |form| adjustment::call(adjustments, script, form, fence, asker));
    run.await.map(|_| ())
}
