//! The lane on which a worker's calls go out, one after another, and between two of them what it
//! has to tell of slots.

use std::rc::{Rc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{RedisError, Value};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout, timeout_at};

use super::batch::{Batch, Fence};
use super::failure::{Failure, Reason};
use super::holdings::SWEEP;
use super::link::Link;
use super::nodes::Nodes;
use super::queue::{Call, Done, Fate, Group};
use super::reply::{self, Reply};
use super::script::{self, Form};
use super::session::{Session, is_unknown_script, send};
use crate::clock;

/// So many failures in a row, none of which says that Redis is gone, open the breaker all the
/// same.
const STRIKES: u32 = 3;

/// How long a reply that missed its deadline is still waited for. Nobody waits with it.
const LATE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Lane {
    link: Rc<Link>,
    strikes: u32,
    /// What is known of the call that is being sent.
    fate: Fate,
    /// The call before it. Whoever has heard what it got has let go of it.
    last: Weak<Call>,
}

impl Lane {
    /// Starts to send what is queued, on the runtime of the current thread.
    pub(super) fn start(link: Rc<Link>) {
        tokio::task::spawn_local(
            Lane { link, strikes: 0, fate: Fate::NotRun, last: Weak::new() }.drive(),
        );
    }

    async fn drive(mut self) {
        let link = self.link.clone();
        let mut sweep = interval(SWEEP);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let sweeping = async {
                link.holdings.any().await;
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
                    link.holdings.sweep(clock::look());
                    continue;
                }
            };
            let mut groups = call.take();
            let sent = Instant::now();
            self.fate = Fate::NotRun;
            self.send(&call, &mut groups).await;
            self.judge(&groups);
            let done = Done { sent, received: clock::look(), fate: self.fate };
            call.finish(groups, done);
            // Redis may have given places to those who did not wait for them.
            for it in call.abandoned() {
                link.holdings.doubt(it.bucket, &it.name, &it.policy);
            }
            self.last = Rc::downgrade(&call);
        }
    }

    /// Tells Redis of slots while there is no call to send.
    async fn resync(&self) {
        tokio::task::yield_now().await;
        if self.last.strong_count() == 0
            && let Some(session) = self.link.connected().await
        {
            self.link.resync(&session, std::iter::empty()).await;
        }
    }

    /// Tells Redis of slots before a call, which asks for some of them.
    async fn resync_before(
        &self,
        session: &Session,
        groups: &[Group],
        deadline: Instant,
    ) -> Result<(), Failure> {
        let link = &self.link;
        if link.holdings.is_empty() && link.holdings.is_settled() {
            return Ok(());
        }
        link.holdings.sweep(clock::recent());
        let slots = groups.iter().map(|group| group.slot);
        link.resynced(slots.clone(), deadline).await?;
        // Requests of the call before may not have run yet, and counted what they hold.
        tokio::task::yield_now().await;
        if self.last.strong_count() == 0 {
            link.resync(session, groups.iter().flat_map(|group| group.batch.buckets())).await;
        }
        link.resynced(slots, deadline).await
    }

    /// Fills in the reply of each group, or why there is none.
    async fn send(&mut self, call: &Call, groups: &mut [Group]) {
        let link = self.link.clone();
        loop {
            let session = match link.live(call.deadline).await {
                Ok(session) => session,
                Err(failure) => return fill(groups, &failure),
            };
            // It has waited for the call before it, or for a connection. To number what will not
            // be sent would make it look as if it had been.
            if Instant::now() >= call.deadline {
                return fill(groups, &Failure::not_asked());
            }
            if let Err(failure) = self.resync_before(&session, groups, call.deadline).await {
                return fill(groups, &failure);
            }
            if let Fate::Unknown(number) = self.fate
                && link.verdicts.borrow().was_told(number)
            {
                return fill(groups, &Failure::new(Reason::Reply, "the reply was lost"));
            }
            link.shared.calls.inc_by(groups.len() as u64);
            let connection = match session {
                Session::Single(connection) => connection,
                Session::Cluster(nodes) => {
                    self.fate = Fate::Sent;
                    return self.send_to_cluster(&nodes, call.deadline, groups).await;
                }
            };
            let [group] = groups else { return };
            let number = link.calls.get() + 1;
            link.calls.set(number);
            self.fate = Fate::Unknown(number);
            let asked = Instant::now();
            let reply = self.ask(&connection, number, call.deadline, &group.batch).await;
            match reply {
                // What became of it is known as soon as there is another connection, and if it
                // was not run it can be sent again.
                Err(failure) if failure.reason == Reason::Connection => {
                    link.shared.health.count(&failure);
                    link.lose();
                    continue;
                }
                Err(failure) => {
                    if !failure.is_silence() {
                        self.fate = Fate::NotRun;
                    }
                    group.reply = Some(Err(failure));
                }
                Ok(reply) => {
                    link.shared.clock.steer(reply.now(), asked, clock::look());
                    group.reply = Some(Ok(reply));
                }
            }
            return;
        }
    }

    /// One call by its number. It is sent even if its time is up before that, and its reply is
    /// heard even if that comes too late: it tells what was charged.
    async fn ask(
        &self,
        connection: &MultiplexedConnection,
        number: u64,
        deadline: Instant,
        batch: &Batch,
    ) -> Result<Reply, Failure> {
        let mut form = Form::Hash;
        loop {
            let fence = Fence { name: &self.link.fence, call: number };
            let command = batch.call(&script::DECIDE, form, Some(fence), self.link.asker());
            let mut connection = connection.clone();
            let mut sent = Box::pin(async move { send(&mut connection, &command).await });
            let Ok(answer) = timeout_at(deadline, &mut sent).await else {
                tokio::task::spawn_local(hear(self.link.clone(), sent, number, batch.flags()));
                return Err(Failure::timeout());
            };
            match answer {
                Ok(Value::BulkString(bytes)) => return Ok(Reply::parse(&bytes, batch)?),
                Ok(other) => return Err(Failure::unexpected(&other)),
                Err(error) if form == Form::Hash && is_unknown_script(&error) => form = Form::Text,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// One call for each slot. There is no fence: if a connection breaks, what was in flight on it
    /// counts as charged, and is sent no second time.
    async fn send_to_cluster(&self, nodes: &Nodes, deadline: Instant, groups: &mut [Group]) {
        let ask = async |group: &Group| {
            let command = |form| group.batch.call(&script::DECIDE, form, None, self.link.asker());
            let run = nodes.run(group.slot, deadline, command);
            match timeout_at(deadline, run).await.map_err(|_| Failure::timeout())?? {
                Value::BulkString(bytes) => Ok(Reply::parse(&bytes, &group.batch)?),
                other => Err(Failure::unexpected(&other)),
            }
        };
        let asked = Instant::now();
        let replies: Vec<Result<Reply, Failure>> = join_all(groups.iter().map(ask)).await;
        for (group, reply) in groups.iter_mut().zip(replies) {
            group.reply = Some(reply);
        }
        if let Some(Some(Ok(reply))) = groups.first().map(|group| &group.reply) {
            self.link.shared.clock.steer(reply.now(), asked, clock::look());
        }
    }

    /// What the replies say of Redis.
    fn judge(&mut self, groups: &[Group]) {
        let health = &self.link.shared.health;
        let mut last = None;
        for failure in groups.iter().filter_map(|group| group.reply.as_ref()?.as_ref().err()) {
            if failure.reason == Reason::NotAsked {
                return;
            }
            last = Some(failure);
            health.count(failure);
            match failure.reason {
                Reason::Timeout | Reason::Reply => {}
                // A connection may break for many reasons: whether Redis is gone shows when the
                // next one is made, which happens at once.
                Reason::Connection => self.link.lose(),
                _ => health.trip(failure),
            }
        }
        match last {
            Some(failure) => self.blame(failure),
            None => self.strikes = 0,
        }
    }

    fn blame(&mut self, failure: &Failure) {
        self.strikes += 1;
        if self.strikes >= STRIKES {
            self.strikes = 0;
            self.link.shared.health.trip(failure);
        }
    }
}

fn fill(groups: &mut [Group], failure: &Failure) {
    groups.iter_mut().for_each(|group| group.reply = Some(Err(failure.clone())));
}

/// Hears a reply that comes too late for those who asked. If it never comes, the fence tells.
async fn hear(
    link: Rc<Link>,
    reply: impl Future<Output = Result<Value, RedisError>>,
    number: u64,
    flags: Vec<usize>,
) {
    let admitted = match timeout(LATE, reply).await {
        Ok(Ok(Value::BulkString(bytes))) => reply::flags(&bytes, &flags),
        // The server says that it did not run it.
        Ok(Err(error)) => (!Failure::from(error).is_silence()).then(Vec::new),
        _ => None,
    };
    if let Some(admitted) = admitted {
        link.verdicts.borrow_mut().hear(number, admitted);
        link.settle();
    }
}
