//! The pipeline of a worker's calls: one call is out at a time, and between two of them the worker
//! reports its held slots.

use std::cell::Cell;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::call_outcomes::CallOutcome;
use super::call_queue::{Call, CallGroup, CallStatus, CallTimes};
use super::held_slots::SWEEP;
use super::worker_link::WorkerLink;
use crate::clock;
use crate::deadline::Deadline;
use crate::store::redis::connect::failure::{Failure, Reason};
use crate::store::redis::connect::nodes::Nodes;
use crate::store::redis::connect::reply_deadline::{is_stall, reply_by, reply_by_timer};
use crate::store::redis::connect::script_call::{NodeRole, ScriptReply, call_script};
use crate::store::redis::connect::session::Session;
use crate::store::redis::wire::batch::{Batch, Fence};
use crate::store::redis::wire::check_args::CallContext;
use crate::store::redis::wire::reply::{self, Reply};
use crate::store::redis::wire::script;

/// So many failures in a row, none of which says that Redis is gone, open the breaker all the
/// same.
const STRIKES: u32 = 3;

/// How long a reply that missed its deadline is still waited for. Its requests have been decided.
pub(crate) const LATE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct CallPipeline {
    link: Rc<WorkerLink>,
    strikes: u32,
    /// The call before it. A request drops it once it has its outcome.
    last: Weak<Call>,
    /// When the process was last seen to go on after it had stood still.
    stalled_until: Cell<Option<Instant>>,
    /// The timer of its calls.
    timer: Deadline,
}

impl CallPipeline {
    /// Starts to send what is queued, on the runtime of the current thread.
    pub(crate) fn start(link: Rc<WorkerLink>) {
        let (last, stalled_until) = (Weak::new(), Cell::new(None));
        let timer = Deadline::default();
        let pipeline = CallPipeline { link, strikes: 0, last, stalled_until, timer };
        tokio::task::spawn_local(pipeline.drive());
    }

    async fn drive(mut self) {
        let link = self.link.clone();
        let mut sweep = interval(SWEEP);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let sweeping = async {
                link.held_slots.any().await;
                sweep.tick().await;
            };
            let call = tokio::select! {
                biased;
                call = link.queue.next() => call,
                () = link.has_to_resync() => {
                    self.resync().await;
                    continue;
                }
                () = sweeping => {
                    link.held_slots.sweep(clock::now());
                    continue;
                }
            };
            let mut groups = call.take();
            let sent = clock::now();
            self.send(&call, &mut groups, sent).await;
            // The clock was read when the last reply came.
            let received =
                if self.record_results(&groups) { clock::cached_now() } else { clock::now() };
            call.finish(groups, CallTimes { sent, received });
            // Redis may have given slots to requests that have left.
            for it in call.abandoned() {
                link.held_slots.mark_dirty(it.bucket, &it.name, &it.policy);
            }
            self.last = Rc::downgrade(&call);
        }
    }

    /// Reports slots while there is no call to send.
    async fn resync(&self) {
        tokio::task::yield_now().await;
        // A request that is queued meanwhile must not wait for a connection that has just gone.
        if self.last.strong_count() == 0
            && let Some(session) = self.link.session()
        {
            self.link.resync(&session, std::iter::empty()).await;
        }
    }

    /// Reports slots before a call that asks for some of them.
    async fn resync_before(
        &self,
        session: &Session,
        groups: &[CallGroup],
        deadline: Instant,
    ) -> Result<(), Failure> {
        let link = &self.link;
        if link.held_slots.is_empty() && link.held_slots.is_synced() {
            return Ok(());
        }
        link.held_slots.sweep(clock::cached_now());
        let slots = groups.iter().map(|group| group.slot);
        link.resynced(slots.clone(), deadline).await?;
        // Requests of the call before may not have run yet, and counted what they hold.
        tokio::task::yield_now().await;
        if self.last.strong_count() == 0 {
            link.resync(session, groups.iter().flat_map(|group| group.batch.buckets())).await;
        }
        link.resynced(slots, deadline).await
    }

    /// Until when a call may wait for its replies. One whose time was over while the process stood still
    /// has not waited for Redis, and has all of it again.
    fn deadline_of(&self, call: &Call) -> Instant {
        match self.stalled_until.get() {
            Some(until) if call.deadline <= until => until + self.link.shared.timeout,
            _ => call.deadline,
        }
    }

    /// Notes when a reply came, or was found not to have come.
    fn note_heard(&self, deadline: Instant, noticed: Instant) {
        if is_stall(deadline, noticed) {
            self.stalled_until.set(Some(noticed));
        }
    }

    /// Fills in the reply of each group, or why there is none.
    async fn send(&mut self, call: &Call, groups: &mut [CallGroup], began: Instant) {
        let link = self.link.clone();
        let deadline = self.deadline_of(call);
        let mut asked = began;
        loop {
            let session = match link.live_now() {
                Some(session) => session,
                None => match link.live(deadline).await {
                    Ok(session) => {
                        asked = clock::now();
                        session
                    }
                    Err(failure) => return fill(groups, &failure),
                },
            };
            // It has waited for the call before it, or for a connection. To number what will not
            // be sent would make it look as if it had been.
            if asked >= deadline {
                return fill(groups, &Failure::not_asked());
            }
            // Before any report of slots: it would not count those that this call has got.
            if let [CallGroup { status: CallStatus::Unknown(number), .. }] = groups
                && link.call_outcomes.borrow().was_run(*number)
            {
                return fill(groups, &Failure::new(Reason::Reply, "the reply was lost"));
            }
            if let Err(failure) = self.resync_before(&session, groups, deadline).await {
                return fill(groups, &failure);
            }
            link.shared.calls.inc_by(groups.len() as u64);
            let connection = match session {
                Session::Single(connection) => connection,
                Session::Cluster(nodes) => {
                    return self.send_to_cluster(&nodes, deadline, groups).await;
                }
            };
            let [group] = groups else { return };
            let number = link.next_call();
            group.status = CallStatus::Unknown(number);
            let reply = self.ask(&connection, number, deadline, group).await;
            match reply {
                // What became of it is known as soon as there is another connection, and if it
                // was not run it can be sent again.
                Err(failure) if failure.reason == Reason::Connection => {
                    link.shared.breaker.count(&failure);
                    link.lose();
                    asked = clock::now();
                    continue;
                }
                Err(failure) => {
                    if !failure.is_silence() {
                        group.status = CallStatus::NotRun;
                    }
                    group.reply = Some(Err(failure));
                }
                Ok(reply) => {
                    // Looked at when the reply came.
                    link.shared.clock.steer(reply.now(), asked, clock::cached_now());
                    group.reply = Some(Ok(reply));
                }
            }
            return;
        }
    }

    /// One call by its number. Its reply is received even if that comes too late: it tells what was
    /// charged.
    async fn ask(
        &mut self,
        connection: &MultiplexedConnection,
        number: u64,
        deadline: Instant,
        group: &CallGroup,
    ) -> Result<Reply, Failure> {
        let (link, batch) = (&self.link, &group.batch);
        loop {
            let (mut connection, expires) = (connection.clone(), group.expires);
            let (asking, asked) = (link.clone(), batch.clone());
            let mut call = Box::pin(async move {
                let command = |form| {
                    let server_clock = asking.server_clock.get();
                    let deadline = expires.then(|| server_clock.at(deadline)).flatten();
                    let context = CallContext { deadline, ..asking.call_context() };
                    let fence = Fence { name: &asking.fence, call: number };
                    asked.call(&script::DECIDE, form, Some(fence), context)
                };
                call_script(&mut connection, NodeRole::Owner, deadline, command).await
            });
            let Some(answer) = reply_by_timer(&mut self.timer, deadline, &mut call).await else {
                self.note_heard(deadline, clock::now());
                let late = async { Ok(call.await?.value) };
                tokio::task::spawn_local(receive_late(link.clone(), late, number, batch.clone()));
                return Err(Failure::timeout());
            };
            let ScriptReply { value, sent } = answer?;
            let Value::BulkString(bytes) = value else { return Err(Failure::unexpected(&value)) };
            let received = clock::now();
            self.note_heard(deadline, received);
            let instant = reply::instant(&bytes);
            if let Some((now, _)) = instant {
                let mut clock = link.server_clock.get();
                clock.update(now, sent, received);
                link.server_clock.set(clock);
            }
            match instant {
                // If there is time left, its clock was set: now that is known.
                Some((_, true)) if received < deadline => {}
                Some((_, true)) => return Err(Failure::expired()),
                _ => return Ok(Reply::parse(&bytes, batch)?),
            }
        }
    }

    /// One call for each slot. There is no fence: if a connection breaks, what was in flight on it
    /// counts as charged, and is sent no second time.
    async fn send_to_cluster(
        &self,
        nodes: &Arc<Nodes>,
        deadline: Instant,
        groups: &mut [CallGroup],
    ) {
        let ask = async |group: &mut CallGroup| {
            let number = self.link.next_call();
            group.status = CallStatus::Unknown(number);
            let (nodes, link) = (nodes.clone(), self.link.clone());
            let (slot, batch, expires) = (group.slot, group.batch.clone(), group.expires);
            let mut run = Box::pin(async move {
                let command = |form, deadline| {
                    let context = CallContext {
                        deadline: Option::filter(deadline, |_| expires),
                        ..link.call_context()
                    };
                    batch.call(&script::DECIDE, form, None, context)
                };
                nodes.decide(slot, deadline, command).await
            });
            let reply = match reply_by(deadline, &mut run).await {
                Some(Ok(Value::BulkString(bytes))) => {
                    Reply::parse(&bytes, &group.batch).map_err(Failure::from)
                }
                Some(Ok(other)) => Err(Failure::unexpected(&other)),
                Some(Err(failure)) => Err(failure),
                None => {
                    let late = receive_late(self.link.clone(), run, number, group.batch.clone());
                    tokio::task::spawn_local(late);
                    group.reply = Some(Err(Failure::timeout()));
                    return;
                }
            };
            match &reply {
                Err(failure) if failure.is_silence() => {
                    self.link.record_outcome(number, CallOutcome::Lost);
                }
                Err(_) => group.status = CallStatus::NotRun,
                Ok(_) => {}
            }
            group.reply = Some(reply);
        };
        join_all(groups.iter_mut().map(ask)).await;
        self.note_heard(deadline, clock::now());
    }

    /// What the replies say of Redis. True if all of them have come.
    fn record_results(&mut self, groups: &[CallGroup]) -> bool {
        let breaker = &self.link.shared.breaker;
        let (mut last, mut is_asked) = (None, true);
        let is_answered = groups.iter().any(|group| matches!(group.reply, Some(Ok(_))));
        for failure in groups.iter().filter_map(|group| group.reply.as_ref()?.as_ref().err()) {
            // It says nothing of Redis, but the replies of other hash slots may.
            if failure.reason == Reason::NotAsked {
                is_asked = false;
                continue;
            }
            last = Some(failure);
            breaker.count(failure);
            match failure.reason {
                Reason::Timeout | Reason::Expired | Reason::Reply => {}
                // A connection may break for many reasons: whether Redis is gone shows when the
                // next one is made, which happens at once.
                Reason::Connection => self.link.lose(),
                _ => breaker.trip(failure),
            }
        }
        match last {
            Some(failure) => self.record_failure(failure),
            None if is_answered => {
                self.strikes = 0;
                breaker.record_in_time();
            }
            None => {}
        }
        is_asked && last.is_none()
    }

    fn record_failure(&mut self, failure: &Failure) {
        let breaker = &self.link.shared.breaker;
        self.strikes += 1;
        let too_often = breaker.record_late();
        if too_often || self.strikes >= STRIKES {
            self.strikes = 0;
            breaker.trip(failure);
        }
    }
}

fn fill(groups: &mut [CallGroup], failure: &Failure) {
    groups.iter_mut().for_each(|group| group.reply = Some(Err(failure.clone())));
}

/// Receives a reply that is too late for its requests. If it never comes, the fence tells; a cluster has
/// none.
async fn receive_late(
    link: Rc<WorkerLink>,
    reply: impl Future<Output = Result<Value, Failure>>,
    number: u64,
    batch: Rc<Batch>,
) {
    let outcome = match timeout(LATE, reply).await {
        Ok(Ok(Value::BulkString(bytes))) => match reply::instant(&bytes) {
            Some((_, true)) => Some(CallOutcome::NotRun),
            Some((at, false)) => reply::verdicts(&bytes, &batch.verdict_positions())
                .map(|verdicts| CallOutcome::Run { at: Some(at), verdicts }),
            None => None,
        },
        // The server says that it did not run it.
        Ok(Err(failure)) if !failure.is_silence() => Some(CallOutcome::NotRun),
        _ => None,
    };
    let lost = link.shared.is_cluster().then_some(CallOutcome::Lost);
    if let Some(outcome) = outcome.or(lost) {
        link.record_outcome(number, outcome);
    }
}
