//! One worker's way to Redis: a connection that is kept up in the background. What is sent over it
//! is the business of the [`lane`](super::lane).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout_at};

use super::Shared;
use super::adjustment::{self, Adjustment, Op};
use super::backoff::Backoff;
use super::batch::Fence;
use super::dialer::CONNECT_TIMEOUT;
use super::failure::{Failure, Reason};
use super::holdings::Holdings;
use super::queue::Queue;
use super::resync::Resync;
use super::script;
use super::session::Session;
use super::slot::slot;
use super::terms::Asker;
use super::verdicts::Verdicts;
use crate::limit::Policy;

/// How long an adjustment may take. Nobody waits for it.
const ADJUST_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Link {
    pub(super) shared: Arc<Shared>,
    pub(super) worker: usize,
    pub(super) queue: Queue,
    live: watch::Sender<Option<Session>>,
    /// The last one there was, for what is still to be told to it.
    recent: RefCell<Option<Session>>,
    lost: Notify,
    /// The name of its fence, and the number of the last call that was sent: see `lua/fence.lua`.
    pub(super) fence: Vec<u8>,
    pub(super) calls: Cell<u64>,
    /// What has become known of calls whose replies did not come in time.
    pub(super) verdicts: RefCell<Verdicts>,
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
            recent: RefCell::default(),
            lost: Notify::new(),
            fence,
            calls: Cell::new(0),
            verdicts: RefCell::default(),
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
            match self.connect().await {
                Ok(live) => {
                    backoff.reset();
                    // What Redis knows of places may be out of date, or lost.
                    self.resync_all();
                    self.recent.replace(Some(live.clone()));
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

    /// A session, after it has become clear what became of the calls that were sent before it.
    async fn connect(&self) -> Result<Session, Failure> {
        let session = Session::open(&self.shared.dialer).await?;
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

    /// It has become known what was charged by calls that were in doubt.
    pub(super) fn settle(&self) {
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
            health.closed().await;
            live.wait_for(Option::is_some).await.ok().and_then(|live| live.clone())
        };
        tokio::select! {
            biased;
            found = timeout_at(deadline, found) => found.ok().flatten().ok_or_else(Failure::timeout),
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

    /// Sends adjustments to one slot, in the background. If they get lost, callers are left with
    /// less than they are due, never with more.
    pub(super) fn adjust<'a>(&self, slot: u16, adjustments: impl Iterator<Item = Adjustment<'a>>) {
        let Some(session) = self.recent.borrow().clone() else { return };
        let shared = self.shared.clone();
        let asker = self.asker();
        let owned: Vec<Owned> = adjustments.map(Owned::from).collect();
        tokio::task::spawn_local(async move {
            let adjustments: Vec<_> = owned.iter().map(Owned::borrow).collect();
            let deadline = Instant::now() + ADJUST_TIMEOUT;
            let sent = adjust(&session, slot, &adjustments, None, asker, deadline);
            if let Err(failure) = sent.await {
                shared.health.count(&failure);
            }
        });
    }
}

/// An adjustment that outlives its request.
struct Owned {
    op: Op,
    name: Vec<u8>,
    policy: Policy,
    cost: u64,
}

impl From<Adjustment<'_>> for Owned {
    fn from(it: Adjustment<'_>) -> Self {
        Owned { op: it.op, name: it.name.to_vec(), policy: *it.policy, cost: it.cost }
    }
}

impl Owned {
    fn borrow(&self) -> Adjustment<'_> {
        let Owned { op, ref name, ref policy, cost } = *self;
        Adjustment { op, name, policy, cost }
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
