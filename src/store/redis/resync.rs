//! Telling Redis which slots a worker holds, beside its decisions.
//!
//! **Why it crosses no decision.** A resync says how many slots a worker has in a bucket. It would be
//! wrong if a call that takes more of them were run before it and not counted in it. Only the lane
//! sends either, and never a resync while a call is out, nor before all requests of the last one
//! have counted what they got. What it sends afterwards comes behind the resync: to one server on
//! the same connection, which keeps the order, so that no call waits; in a cluster, where redirects
//! may change it, a call waits for resyncs of its own slots, and for no others.
//!
//! **Why it harms no decision.** It goes in small chunks, one at a time, has a deadline of its own,
//! and if nobody hears it, it is said again: that says nothing of how Redis decides.

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

use super::adjustment::{self, Adjustment};
use super::failure::{Failure, Reason};
use super::holdings::Told;
use super::link::{Link, adjust};
use super::nodes::Nodes;
use super::script::{self, Form};
use super::session::{Session, is_unknown_script, send};
use super::slot::slot;
use crate::clock;
use crate::store::BucketId;

/// How long a resync may take. Nobody waits for it, and leases are longer.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long after one that was not heard it is said again.
const SAY_AGAIN: Duration = Duration::from_millis(100);

/// What one worker's resyncs have to remember.
#[derive(Debug)]
pub(super) struct Resync {
    /// Nothing is said before this.
    next: Cell<Instant>,
    /// Redis does not know the script, as far as is known.
    unknown: Cell<bool>,
    /// Slots of a cluster that a resync is on its way to.
    slots: RefCell<HashSet<u16>>,
    arrived: Notify,
}

impl Resync {
    pub(super) fn new() -> Self {
        Resync {
            next: Cell::new(Instant::now()),
            unknown: Cell::new(true),
            slots: RefCell::default(),
            arrived: Notify::new(),
        }
    }
}

impl Link {
    /// Resolves when there is something to tell, and somebody to tell it to.
    pub(super) async fn has_to_resync(&self) {
        self.holdings.due().await;
        sleep_until(self.resync.next.get()).await;
        self.connected().await;
    }

    /// There is a new connection: Redis may be another, or have lost all it knew.
    pub(super) fn resync_all(&self) {
        self.resync.unknown.set(true);
        self.resync.next.set(Instant::now());
        self.holdings.doubt_all();
    }

    /// Sends what is to be told next: of the buckets that are asked for right behind it, and some
    /// more. Has to be called while no call is out, and once everybody has counted what they hold.
    /// What is sent over `session` afterwards comes behind it.
    pub(super) async fn resync(
        self: &Rc<Self>,
        session: &Session,
        asked: impl Iterator<Item = BucketId>,
    ) {
        let chunk = self.holdings.take_chunk(clock::recent(), asked);
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
        chunk: Vec<Told>,
    ) {
        let unknown = self.resync.unknown.replace(false);
        // Not by its hash and then whole: the second would come behind what is sent after the first.
        let form = if unknown { Form::Text } else { Form::Hash };
        let adjustments: Vec<_> = chunk.iter().map(Told::adjustment).collect();
        let command = adjustment::call(&adjustments, &script::ADJUST, form, None, self.asker());
        drop(adjustments);
        let mut sent = Box::pin(async move { send(&mut connection, &command).await });
        // This puts it into the connection's queue. The lane has just begun to run, so nothing
        // holds it up that it would not wait for in order.
        let begun = poll_fn(|context| Poll::Ready(sent.as_mut().poll(context))).await;
        let link = self.clone();
        let hear = async move {
            let answer = match begun {
                Poll::Ready(answer) => Ok(answer),
                Poll::Pending => timeout(PATIENCE, sent).await,
            };
            let heard = match answer {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(error)) if is_unknown_script(&error) => {
                    link.resync.unknown.set(true);
                    link.holdings.told(&chunk, false);
                    return;
                }
                Ok(Err(error)) => Err(error.into()),
                Err(_) => Err(Failure::timeout()),
            };
            link.has_told(&chunk, heard);
        };
        tokio::task::spawn_local(hear);
    }

    fn resync_cluster(self: &Rc<Self>, nodes: Arc<Nodes>, mut chunk: Vec<Told>) {
        chunk.sort_by_key(|it| slot(&it.name));
        self.resync.slots.borrow_mut().extend(chunk.iter().map(|it| slot(&it.name)));
        let link = self.clone();
        tokio::task::spawn_local(async move {
            let session = Session::Cluster(nodes);
            let deadline = Instant::now() + PATIENCE;
            let tell = async |some: &[Told]| {
                let slot = slot(&some[0].name);
                let adjustments: Vec<Adjustment<'_>> = some.iter().map(Told::adjustment).collect();
                let told = adjust(&session, slot, &adjustments, None, link.asker(), deadline).await;
                link.resync.slots.borrow_mut().remove(&slot);
                link.resync.arrived.notify_waiters();
                told
            };
            let same = |a: &Told, b: &Told| slot(&a.name) == slot(&b.name);
            let told = join_all(chunk.chunk_by(same).map(tell)).await;
            let heard = told.into_iter().collect::<Result<Vec<()>, Failure>>().map(|_| ());
            link.has_told(&chunk, heard);
        });
    }

    fn has_told(&self, chunk: &[Told], heard: Result<(), Failure>) {
        if let Err(failure) = &heard {
            self.resync.next.set(Instant::now() + SAY_AGAIN);
            self.shared.health.count(failure);
            // Without traffic nobody else finds out, and Redis may have lost all it knew.
            if failure.reason == Reason::Connection {
                self.lose();
            }
        }
        self.holdings.told(chunk, heard.is_ok());
    }

    /// Waits until no resync is on its way to any of these slots of a cluster.
    ///
    /// # Errors
    /// If that takes too long.
    pub(super) async fn resynced(
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
