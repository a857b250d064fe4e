//! Reporting to Redis which slots a worker holds, beside its decisions.
//!
//! **Why it crosses no decision.** A resync says how many slots a worker has in a bucket. It would be
//! wrong if a call that takes more of them were run before it and not counted in it. Only the
//! pipeline sends either, and never a resync while a call is out, nor before all requests of the last one
//! have counted what they got. What it sends afterwards comes behind the resync: to one server on
//! the same connection, which keeps the order, so that no call waits; in a cluster, where redirects
//! may change it, a call waits for resyncs of its own slots, and for no others.
//!
//! **Why it harms no decision.** It goes in small chunks, one at a time, has a deadline of its own,
//! and is sent again if it is lost: that says nothing of how Redis decides.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join_all;
use hashbrown::HashSet;
use redis::aio::MultiplexedConnection;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::held_slots::SlotReport;
use super::worker_link::{AdjustTarget, WorkerLink, adjust};
use crate::clock;
use crate::store::BucketId;
use crate::store::redis::connect::failure::{Failure, Reason};
use crate::store::redis::connect::hash_slot::{HashSlotGroup, group_by_hash_slot, hash_slot};
use crate::store::redis::connect::nodes::Nodes;
use crate::store::redis::connect::script_call::is_unknown_script;
use crate::store::redis::connect::session::{Session, send};
use crate::store::redis::wire::adjustment;
use crate::store::redis::wire::script::{self, Form};

/// How long a resync may take. No request waits for it, and leases are longer.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long after one that was lost it is sent again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// What one worker's resyncs have to remember.
#[derive(Debug)]
pub(crate) struct Resync {
    /// Nothing is sent before this.
    next: Cell<Instant>,
    /// Redis does not know the script, as far as is known.
    unknown: Cell<bool>,
    /// Slots of a cluster that a resync is on its way to.
    slots: RefCell<HashSet<u16>>,
    arrived: Notify,
}

impl Resync {
    pub(crate) fn new() -> Self {
        Resync {
            next: Cell::new(Instant::now()),
            unknown: Cell::new(true),
            slots: RefCell::default(),
            arrived: Notify::new(),
        }
    }
}

impl WorkerLink {
    /// Resolves when there is something to report and a connection for it.
    pub(crate) async fn has_to_resync(&self) {
        self.held_slots.due().await;
        sleep_until(self.resync.next.get()).await;
        self.connected().await;
    }

    /// There is a new connection: it may lead to another server, or to one that has lost its data.
    pub(crate) fn resync_all(&self) {
        self.resync.unknown.set(true);
        self.resync.next.set(Instant::now());
        self.held_slots.mark_all_dirty();
    }

    /// Sends the next reports: of the buckets that the next call asks for, and some more. Has to be
    /// called while no call is out, and once all requests of the last one have counted their slots.
    /// What is sent over `session` afterwards comes behind it.
    pub(crate) async fn resync(
        self: &Rc<Self>,
        session: &Session,
        asked: impl Iterator<Item = BucketId>,
    ) {
        let chunk = self.held_slots.take_chunk(clock::cached_now(), asked);
        if chunk.is_empty() {
            return;
        }
        match session {
            Session::Single(connection) => self.resync_single(connection.clone(), chunk).await,
            Session::Cluster(nodes) => self.resync_cluster(nodes.clone(), chunk),
        }
    }

    async fn resync_single(
        self: &Rc<Self>,
        mut connection: MultiplexedConnection,
        chunk: Vec<SlotReport>,
    ) {
        let unknown = self.resync.unknown.replace(false);
        // Not by its hash and then whole: the second would come behind what is sent after the first.
        let form = if unknown { Form::Text } else { Form::Hash };
        let adjustments: Vec<_> = chunk.iter().map(SlotReport::adjustment).collect();
        let command =
            adjustment::call(&adjustments, &script::ADJUST, form, None, self.call_context());
        drop(adjustments);
        let mut sent = Box::pin(async move { send(&mut connection, &command).await });
        // This puts it into the connection's queue. The pipeline has just begun to run, so nothing
        // holds it up that it would not wait for in order.
        let begun = poll_fn(|context| Poll::Ready(sent.as_mut().poll(context))).await;
        let link = self.clone();
        let finish = async move {
            let answer = match begun {
                Poll::Ready(answer) => Ok(answer),
                Poll::Pending => timeout(PATIENCE, sent).await,
            };
            let received = match answer {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(error)) if is_unknown_script(&error) => {
                    link.resync.unknown.set(true);
                    link.held_slots.finish_chunk(&chunk, false);
                    return;
                }
                Ok(Err(error)) => Err(error.into()),
                Err(_) => Err(Failure::timeout()),
            };
            link.finish_report(&chunk, received);
        };
        tokio::task::spawn_local(finish);
    }

    fn resync_cluster(self: &Rc<Self>, nodes: Arc<Nodes>, chunk: Vec<SlotReport>) {
        let groups = group_by_hash_slot(chunk, |it| hash_slot(&it.name));
        self.resync.slots.borrow_mut().extend(groups.iter().map(|group| group.slot));
        let link = self.clone();
        tokio::task::spawn_local(async move {
            let session = Session::Cluster(nodes);
            let deadline = Instant::now() + PATIENCE;
            let report = async |HashSlotGroup { slot, items }: &HashSlotGroup<SlotReport>| {
                let adjustments: Vec<_> = items.iter().map(SlotReport::adjustment).collect();
                let target = AdjustTarget { session: &session, slot: *slot, deadline };
                let reported = adjust(target, &adjustments, None, link.call_context()).await;
                link.resync.slots.borrow_mut().remove(slot);
                link.resync.arrived.notify_waiters();
                reported
            };
            let reported = join_all(groups.iter().map(report)).await;
            let reported = reported.into_iter().collect::<Result<Vec<()>, Failure>>().map(|_| ());
            let chunk: Vec<SlotReport> = groups.into_iter().flat_map(|it| it.items).collect();
            link.finish_report(&chunk, reported);
        });
    }

    fn finish_report(&self, chunk: &[SlotReport], received: Result<(), Failure>) {
        if let Err(failure) = &received {
            self.resync.next.set(Instant::now() + RETRY_PAUSE);
            self.shared.breaker.count(failure);
            // Without traffic nothing else notices, and Redis may have lost all it knew.
            if failure.reason == Reason::Connection {
                self.lose();
            }
        }
        self.held_slots.finish_chunk(chunk, received.is_ok());
    }

    /// Waits until no resync is on its way to any of these slots of a cluster.
    ///
    /// # Errors
    /// If that takes too long.
    pub(crate) async fn resynced(
        &self,
        slots: impl Iterator<Item = u16> + Clone,
        deadline: Instant,
    ) -> Result<(), Failure> {
        loop {
            let arrived = self.resync.arrived.notified();
            let under_way = {
                let known = self.resync.slots.borrow();
                !known.is_empty() && slots.clone().any(|slot| known.contains(&slot))
            };
            if !under_way {
                return Ok(());
            }
            timeout_at(deadline, arrived).await.map_err(|_| Failure::not_asked())?;
        }
    }
}
