//! The lane on which a worker's calls go out, one after another.

use std::cell::Cell;
use std::rc::Rc;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::batch::Fence;
use super::failure::{Failure, Reason};
use super::link::Link;
use super::queue::{Call, Done, Fate, Group};
use super::reply::Reply;
use super::script;
use super::session::Session;
use crate::clock;

/// So many failures in a row, none of which says that Redis is gone, open the breaker all the
/// same.
const STRIKES: u32 = 3;

#[derive(Debug)]
pub(super) struct Lane {
    link: Rc<Link>,
    strikes: u32,
    /// What is known of the call that is being sent.
    fate: Cell<Fate>,
    /// Whether there were calls of which it is not known whether they were run.
    doubts: Cell<bool>,
}

impl Lane {
    /// Starts to send what is queued, on the runtime of the current thread.
    pub(super) fn start(link: Rc<Link>) {
        let fate = Cell::new(Fate::NotRun);
        let lane = Lane { link, strikes: 0, fate, doubts: Cell::new(false) };
        tokio::task::spawn_local(lane.drive());
    }

    async fn drive(mut self) {
        let link = self.link.clone();
        loop {
            let call = link.queue.next().await;
            self.fate.set(Fate::NotRun);
            let mut groups = call.take();
            let sent = Instant::now();
            self.send(&call, &mut groups).await;
            self.judge(&groups);
            if let Fate::Unknown(_) = self.fate.get() {
                self.doubts.set(true);
            }
            let done = Done { sent, received: clock::look(), fate: self.fate.get() };
            call.finish(groups, done);
        }
    }

    /// Fills in the reply of each group, or why there is none.
    async fn send(&self, call: &Call, groups: &mut [Group]) {
        let link = &*self.link;
        loop {
            let live = match link.live(call.deadline).await {
                Ok(live) => live,
                Err(failure) => return fill(groups, &failure),
            };
            match self.fate.get() {
                // It broke the connection before this one, and has been run all the same.
                Fate::Unknown(number) if number <= live.run => {
                    self.fate.set(Fate::Run);
                    return fill(groups, &Failure::new(Reason::Connection, "the reply was lost"));
                }
                _ => {}
            }
            link.shared.calls.inc_by(groups.len() as u64);
            if live.session.is_cluster() {
                return self.send_to_cluster(&live.session, call.deadline, groups).await;
            }
            let [group] = groups else { return };
            let number = link.calls.get() + 1;
            link.calls.set(number);
            self.fate.set(Fate::Unknown(number));
            let fence = Fence { name: &link.fence, call: number };
            let reply = ask(&live.session, call.deadline, group, Some(fence)).await;
            let failure = match reply {
                Ok(reply) => {
                    self.fate.set(Fate::Run);
                    link.shared.clock.steer(reply.now(), clock::look());
                    group.reply = Some(Ok(reply));
                    // Redis takes calls in the order in which they were sent.
                    if self.doubts.replace(false) {
                        link.settle(number);
                    }
                    return;
                }
                Err(failure) => failure,
            };
            match failure.reason {
                // What became of it is known as soon as there is another connection, and if it
                // was not run it can be sent again.
                Reason::Connection => {
                    link.shared.health.count(&failure);
                    link.lose();
                }
                _ => {
                    if !failure.is_silence() {
                        self.fate.set(Fate::NotRun);
                    }
                    group.reply = Some(Err(failure));
                    return;
                }
            }
        }
    }

    /// One call for each slot. There is no fence: if a connection breaks, what was in flight on it
    /// counts as charged, and is sent no second time. What one slot has charged while another said
    /// that it could not is given back.
    async fn send_to_cluster(&self, session: &Session, deadline: Instant, groups: &mut [Group]) {
        self.fate.set(Fate::Run);
        let asked = groups.iter().map(|group| ask(session, deadline, group, None));
        let replies = join_all(asked).await;
        let lost =
            |reply: &Result<_, Failure>| reply.as_ref().is_err_and(|failure| failure.is_silence());
        if !replies.iter().any(lost) {
            self.fate.set(Fate::NotRun);
        }
        for (group, reply) in groups.iter_mut().zip(replies) {
            group.reply = Some(reply);
        }
        if let Some(Some(Ok(reply))) = groups.first().map(|group| &group.reply) {
            self.link.shared.clock.steer(reply.now(), clock::look());
        }
    }

    /// What the replies say of Redis.
    fn judge(&mut self, groups: &[Group]) {
        let health = &self.link.shared.health;
        let mut last = None;
        for failure in groups.iter().filter_map(|group| group.reply.as_ref()?.as_ref().err()) {
            if failure.reason == Reason::Open {
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
        let Some(failure) = last else {
            self.strikes = 0;
            return;
        };
        self.strikes += 1;
        if self.strikes >= STRIKES {
            self.strikes = 0;
            health.trip(failure);
        }
    }
}

fn fill(groups: &mut [Group], failure: &Failure) {
    groups.iter_mut().for_each(|group| group.reply = Some(Err(failure.clone())));
}

async fn ask(
    session: &Session,
    deadline: Instant,
    group: &Group,
    fence: Option<Fence<'_>>,
) -> Result<Reply, Failure> {
    let decide = &*script::DECIDE;
    let batch = &group.batch;
    let run = session.run(group.slot, deadline, |form| batch.call(decide, form, fence));
    match run.await? {
        redis::Value::BulkString(bytes) => Ok(Reply::parse(&bytes, batch)?),
        other => Err(Failure::new(Reason::Reply, format!("it answered with {other:?}"))),
    }
}
