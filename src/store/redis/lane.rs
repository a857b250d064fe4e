//! The lane on which a worker's calls go out, one after another, and between two of them what it
//! has to tell of slots.

use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;
use redis::aio::MultiplexedConnection;
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
use super::terms::Asker;
use super::verdicts::Heard;
use crate::clock;

/// So many failures in a row, none of which says that Redis is gone, open the breaker all the
/// same.
const STRIKES: u32 = 3;

/// How long a reply that missed its deadline is still waited for. Nobody waits with it.
pub(super) const LATE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Lane {
    link: Rc<Link>,
    strikes: u32,
    /// The call before it. Whoever has heard what it got has let go of it.
    last: Weak<Call>,
}

impl Lane {
    /// Starts to send what is queued, on the runtime of the current thread.
    pub(super) fn start(link: Rc<Link>) {
        tokio::task::spawn_local(Lane { link, strikes: 0, last: Weak::new() }.drive());
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
            self.send(&call, &mut groups).await;
            self.judge(&groups);
            let done = Done { sent, received: clock::look() };
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
        // Whoever is queued meanwhile does not wait for a connection that has just gone.
        if self.last.strong_count() == 0
            && let Some(session) = self.link.session()
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
            let asked = clock::look();
            if asked >= call.deadline {
                return fill(groups, &Failure::not_asked());
            }
            if let Err(failure) = self.resync_before(&session, groups, call.deadline).await {
                return fill(groups, &failure);
            }
            if let [Group { fate: Fate::Unknown(number), .. }] = groups
                && link.verdicts.borrow().was_run(*number)
            {
                return fill(groups, &Failure::new(Reason::Reply, "the reply was lost"));
            }
            link.shared.calls.inc_by(groups.len() as u64);
            let connection = match session {
                Session::Single(connection) => connection,
                Session::Cluster(nodes) => {
                    return self.send_to_cluster(&nodes, call.deadline, groups).await;
                }
            };
            let [group] = groups else { return };
            let number = link.next_call();
            group.fate = Fate::Unknown(number);
            let reply = self.ask(&connection, number, (asked, call.deadline), group).await;
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
                        group.fate = Fate::NotRun;
                    }
                    group.reply = Some(Err(failure));
                }
                Ok(reply) => {
                    // Looked at when the reply came.
                    link.shared.clock.steer(reply.now(), asked, clock::recent());
                    group.reply = Some(Ok(reply));
                }
            }
            return;
        }
    }

    /// One call by its number. Its reply is heard even if that comes too late: it tells what was
    /// charged.
    async fn ask(
        &self,
        connection: &MultiplexedConnection,
        number: u64,
        (mut began, deadline): (Instant, Instant),
        group: &Group,
    ) -> Result<Reply, Failure> {
        let batch = &group.batch;
        let mut form = Form::Hash;
        loop {
            let link = &self.link;
            let fence = Fence { name: &link.fence, call: number };
            let mut clock = link.server_clock.get();
            let expires = clock.at(deadline).filter(|_| group.expires);
            let asker = Asker { deadline: expires, ..link.asker() };
            let command = batch.call(&script::DECIDE, form, Some(fence), asker);
            let mut connection = connection.clone();
            let mut sent = Box::pin(async move { send(&mut connection, &command).await });
            let Ok(answer) = timeout_at(deadline, &mut sent).await else {
                let late = async { Ok(sent.await?) };
                tokio::task::spawn_local(hear(link.clone(), late, number, batch.clone()));
                return Err(Failure::timeout());
            };
            match answer {
                Ok(Value::BulkString(bytes)) => {
                    let received = clock::look();
                    let instant = reply::instant(&bytes);
                    if let Some((now, _)) = instant {
                        clock.hear(now, began, received);
                        link.server_clock.set(clock);
                    }
                    match instant {
                        // If there is time left, its clock was set: now that is known.
                        Some((_, true)) if received < deadline => began = received,
                        Some((_, true)) => return Err(Failure::expired()),
                        _ => return Ok(Reply::parse(&bytes, batch)?),
                    }
                }
                Ok(other) => return Err(Failure::unexpected(&other)),
                Err(error) if form == Form::Hash && is_unknown_script(&error) => {
                    (form, began) = (Form::Text, clock::look());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// One call for each slot. There is no fence: if a connection breaks, what was in flight on it
    /// counts as charged, and is sent no second time.
    async fn send_to_cluster(&self, nodes: &Arc<Nodes>, deadline: Instant, groups: &mut [Group]) {
        let ask = async |group: &mut Group| {
            let number = self.link.next_call();
            group.fate = Fate::Unknown(number);
            let (nodes, link) = (nodes.clone(), self.link.clone());
            let (slot, batch, expires) = (group.slot, group.batch.clone(), group.expires);
            let mut run = Box::pin(async move {
                let command = |form, deadline| {
                    let asker =
                        Asker { deadline: Option::filter(deadline, |_| expires), ..link.asker() };
                    batch.call(&script::DECIDE, form, None, asker)
                };
                nodes.decide(slot, deadline, command).await
            });
            let reply = match timeout_at(deadline, &mut run).await {
                Ok(Ok(Value::BulkString(bytes))) => {
                    Reply::parse(&bytes, &group.batch).map_err(Failure::from)
                }
                Ok(Ok(other)) => Err(Failure::unexpected(&other)),
                Ok(Err(failure)) => Err(failure),
                Err(_) => {
                    let late = hear(self.link.clone(), run, number, group.batch.clone());
                    tokio::task::spawn_local(late);
                    group.reply = Some(Err(Failure::timeout()));
                    return;
                }
            };
            match &reply {
                Err(failure) if failure.is_silence() => {
                    self.link.hear(number, Heard::Lost);
                }
                Err(_) => group.fate = Fate::NotRun,
                Ok(_) => {}
            }
            group.reply = Some(reply);
        };
        let asked = Instant::now();
        join_all(groups.iter_mut().map(ask)).await;
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
                Reason::Timeout | Reason::Expired | Reason::Reply => {}
                // A connection may break for many reasons: whether Redis is gone shows when the
                // next one is made, which happens at once.
                Reason::Connection => self.link.lose(),
                _ => health.trip(failure),
            }
        }
        match last {
            Some(failure) => self.blame(failure),
            None => {
                self.strikes = 0;
                health.in_time();
            }
        }
    }

    fn blame(&mut self, failure: &Failure) {
        let health = &self.link.shared.health;
        self.strikes += 1;
        let too_often = health.late();
        if too_often || self.strikes >= STRIKES {
            self.strikes = 0;
            health.trip(failure);
        }
    }
}

fn fill(groups: &mut [Group], failure: &Failure) {
    groups.iter_mut().for_each(|group| group.reply = Some(Err(failure.clone())));
}

/// Hears a reply that comes too late for those who asked. If it never comes, the fence tells; a
/// cluster has none.
async fn hear(
    link: Rc<Link>,
    reply: impl Future<Output = Result<Value, Failure>>,
    number: u64,
    batch: Rc<Batch>,
) {
    let heard = match timeout(LATE, reply).await {
        Ok(Ok(Value::BulkString(bytes))) => match reply::instant(&bytes) {
            Some((_, true)) => Some(Heard::NotRun),
            Some((at, false)) => reply::flags(&bytes, &batch.flags())
                .map(|admitted| Heard::Run { at: Some(at), admitted }),
            None => None,
        },
        // The server says that it did not run it.
        Ok(Err(failure)) if !failure.is_silence() => Some(Heard::NotRun),
        _ => None,
    };
    let lost = link.shared.is_cluster().then_some(Heard::Lost);
    if let Some(heard) = heard.or(lost) {
        link.hear(number, heard);
    }
}
