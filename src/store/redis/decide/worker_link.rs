//! One worker's connection to Redis, kept up in the background, and what the worker knows of its calls.
//! What is sent over it is the business of the [pipeline](super::call_pipeline).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout_at};

use super::call_outcomes::{CallOutcome, CallOutcomes};
use super::call_queue::CallQueue;
use super::held_slots::HeldSlots;
use super::known_refusals::KnownRefusals;
use super::refunds::Refunds;
use super::resync::Resync;
use crate::store::redis::RedisShared;
use crate::store::redis::connect::backoff::Backoff;
use crate::store::redis::connect::dialer::CONNECT_TIMEOUT;
use crate::store::redis::connect::failure::{Failure, Reason};
use crate::store::redis::connect::hash_slot::hash_slot;
use crate::store::redis::connect::server_clock::ServerClock;
use crate::store::redis::connect::session::Session;
use crate::store::redis::supervise::probe;
use crate::store::redis::wire::adjustment::{self, Adjustment};
use crate::store::redis::wire::batch::Fence;
use crate::store::redis::wire::check_args::CallContext;
use crate::store::redis::wire::script;

/// How long an adjustment may take. No request waits for it.
pub(crate) const ADJUST_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct WorkerLink {
    pub(crate) shared: Arc<RedisShared>,
    pub(crate) worker: usize,
    pub(crate) queue: CallQueue,
    live: watch::Sender<Option<Session>>,
    lost: Notify,
    /// The name of its fence, and the number of the last call that was sent: see `lua/fence.lua`.
    pub(crate) fence: Vec<u8>,
    calls: Cell<u64>,
    /// The clock of the one master. Those of a cluster's nodes are the dialer's.
    pub(crate) server_clock: Cell<ServerClock>,
    /// What has become known of calls whose replies did not come in time.
    pub(crate) call_outcomes: RefCell<CallOutcomes>,
    /// What is refunded if such a call turns out to have charged it.
    pub(crate) refunds: Refunds,
    /// Buckets that are known to refuse.
    pub(crate) refusals: RefCell<KnownRefusals>,
    /// The slots that requests of this worker hold.
    pub(crate) held_slots: HeldSlots,
    pub(crate) resync: Resync,
}

impl WorkerLink {
    /// Starts to connect on the runtime of the current thread.
    pub(crate) fn start(shared: Arc<RedisShared>, worker: usize) -> Rc<Self> {
        let queue = CallQueue::new(shared.timeout, shared.is_cluster());
        let fence = shared.reserved_key(&format!("fence:{}:{worker}", shared.node));
        let held_slots = HeldSlots::new(shared.keys_per_worker);
        let link = Rc::new(WorkerLink {
            shared,
            worker,
            queue,
            live: watch::Sender::new(None),
            lost: Notify::new(),
            fence,
            calls: Cell::new(0),
            server_clock: Cell::default(),
            call_outcomes: RefCell::default(),
            refunds: Refunds::default(),
            refusals: RefCell::default(),
            held_slots,
            resync: Resync::new(),
        });
        tokio::task::spawn_local(link.clone().stay_connected());
        link
    }

    /// Connects, and again whenever the connection is lost or the breaker has opened.
    async fn stay_connected(self: Rc<Self>) {
        let breaker = &self.shared.breaker;
        let mut trips = breaker.trips();
        let mut backoff = Backoff::new();
        loop {
            let seen = *trips.borrow_and_update();
            // A connection from before the breaker opened is of no use, however it does.
            let connected = tokio::select! {
                biased;
                _ = trips.changed() => continue,
                connected = self.connect_and_probe() => connected,
            };
            match connected {
                Ok(live) => {
                    backoff.reset();
                    // What Redis knows of slots may be out of date, or lost.
                    self.resync_all();
                    self.live.send_replace(Some(live));
                    breaker.link_is_up(self.worker, seen);
                    tokio::select! {
                        _ = trips.changed() => {}
                        () = self.lost.notified() => {}
                    }
                    breaker.link_is_down(self.worker);
                    self.live.send_replace(None);
                }
                Err(failure) => {
                    breaker.count(&failure);
                    // One that broke may break again while it is made anew: that says little.
                    if backoff.is_first() && failure.reason == Reason::Connection {
                        backoff.skip();
                        continue;
                    }
                    breaker.trip(&failure);
                    sleep(backoff.next()).await;
                }
            }
        }
    }

    /// A session that decisions can use: while they are made without Redis, one on which it has
    /// shown that it is fast enough.
    async fn connect_and_probe(self: &Rc<Self>) -> Result<Session, Failure> {
        let session = self.connect().await?;
        if self.shared.breaker.is_open() {
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
        let raise = session.run(hash_slot(&self.fence), deadline, |form| {
            let mut command = script.call(form, 0, 0);
            command.arg(1).arg(&self.fence[..]).arg(last);
            command
        });
        let text = match raise.await? {
            redis::Value::BulkString(text) => String::from_utf8_lossy(&text).into_owned(),
            other => return Err(Failure::unexpected(&other)),
        };
        self.call_outcomes.borrow_mut().record_fence(&text, last);
        self.resolve_uncertain();
        Ok(session)
    }

    /// The number of a call that is about to be sent.
    pub(crate) fn next_call(&self) -> u64 {
        self.calls.set(self.calls.get() + 1);
        self.calls.get()
    }

    /// It has become known what became of a call.
    pub(crate) fn record_outcome(self: &Rc<Self>, call: u64, outcome: CallOutcome) {
        self.call_outcomes.borrow_mut().record(call, outcome);
        self.resolve_uncertain();
    }

    /// It has become known what uncertain calls have charged.
    fn resolve_uncertain(self: &Rc<Self>) {
        self.resolve_refunds();
        let mut ledger = self.shared.ledger.lock();
        if ledger.has_uncertain() {
            let call_outcomes = self.call_outcomes.borrow();
            let now_of = |name: &[u8]| self.shared.now_of(name);
            ledger.resolve(self.worker, now_of, |call, request| call_outcomes.of(call, request));
            self.shared.debts_noted.notify_one();
        }
    }

    /// A session to send on, if nothing has to be waited for.
    pub(super) fn live_now(&self) -> Option<Session> {
        if self.shared.breaker.is_closed() { self.session() } else { None }
    }

    /// A session to send on, once there is one, unless the breaker opens first.
    pub(crate) async fn live(&self, deadline: Instant) -> Result<Session, Failure> {
        let breaker = &self.shared.breaker;
        let mut trips = breaker.trips();
        if breaker.is_open() {
            return Err(Failure::not_asked());
        }
        let mut live = self.live.subscribe();
        let found = async {
            // A request that waits for the last debts to be paid has sent nothing.
            let closed = timeout_at(deadline, breaker.closed()).await;
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
    pub(crate) fn lose(&self) {
        self.live.send_replace(None);
        self.lost.notify_one();
    }

    pub(crate) fn call_context(&self) -> CallContext {
        self.shared.call_context(self.worker)
    }

    /// The sessions of this worker, one after another.
    pub(crate) fn sessions(&self) -> watch::Receiver<Option<Session>> {
        self.live.subscribe()
    }

    /// The session there is now, if there is one.
    pub(crate) fn session(&self) -> Option<Session> {
        self.live.borrow().clone()
    }

    /// Resolves when there is a connection, whether the breaker is closed or not.
    pub(crate) async fn connected(&self) -> Option<Session> {
        let mut live = self.live.subscribe();
        // The sender is this link's own, and lives as long as it does.
        live.wait_for(Option::is_some).await.ok().and_then(|live| live.clone())
    }

    /// Charges costs to one slot, whether they pass or not, and waits until that is done.
    ///
    /// # Errors
    /// If it was not, or cannot be known to be.
    pub(crate) async fn charge_after(
        &self,
        slot: u16,
        adjustments: &[Adjustment<'_>],
        deadline: Instant,
    ) -> Result<(), Failure> {
        // Without a session nothing is sent.
        let session = self.live(deadline).await.map_err(|_| Failure::not_asked())?;
        let target = AdjustTarget { session: &session, slot, deadline };
        adjust(target, adjustments, None, self.call_context()).await
    }
}

/// Where an adjustment goes: all its keys lie in one hash slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AdjustTarget<'a> {
    pub(crate) session: &'a Session,
    pub(crate) slot: u16,
    pub(crate) deadline: Instant,
}

/// Makes refunds, charges debts, or reports held slots.
pub(crate) async fn adjust(
    target: AdjustTarget<'_>,
    adjustments: &[Adjustment<'_>],
    fence: Option<Fence<'_>>,
    context: CallContext,
) -> Result<(), Failure> {
    let AdjustTarget { session, slot, deadline } = target;
    let script = &*script::ADJUST;
    let run = session
        .run(slot, deadline, |form| adjustment::call(adjustments, script, form, fence, context));
    run.await.map(|_| ())
}
