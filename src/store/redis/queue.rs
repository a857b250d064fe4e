//! Calls in the making: the checks of requests that go to Redis together.
//!
//! While one call is out, the requests that come join the next one, and it leaves as soon as the
//! one before is back: nobody waits for a timer, and the busier a worker is the more requests
//! share a call. A call to one server is one script; on a cluster it is one for each slot.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::batch::{Batch, Charge};
use super::failure::Failure;
use super::reply::Reply;
use super::slot::slot;
use crate::clock;
use crate::limit::{OnError, Policy};
use crate::store::{BucketId, Check, Names};

/// Redis does nothing else while it decides a call, so none is to take it long.
const MOST_REQUESTS: usize = 128;
const MOST_CHECKS: usize = 512;
/// Emptied batches kept for their memory.
const SPARE: usize = 4;

#[derive(Debug)]
pub(super) struct Queue {
    timeout: Duration,
    cluster: bool,
    waiting: RefCell<VecDeque<Rc<Call>>>,
    spare: RefCell<Vec<Rc<Batch>>>,
    arrived: Notify,
}

/// Requests that are decided together.
#[derive(Debug)]
pub(super) struct Call {
    /// When the first of its requests has waited for long enough.
    pub(super) deadline: Instant,
    state: RefCell<State>,
}

#[derive(Debug, Default)]
struct State {
    groups: Vec<Group>,
    wakers: Vec<Option<Waker>>,
    checks: usize,
    done: Option<Done>,
    /// Places that requests asked for which have left since.
    abandoned: Vec<Abandoned>,
}

/// A place that nobody waits for any more, and that Redis may give all the same.
#[derive(Debug)]
pub(super) struct Abandoned {
    pub(super) bucket: BucketId,
    pub(super) name: Vec<u8>,
    pub(super) policy: Policy,
}

/// What of a call goes to one slot, and what came back.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) slot: u16,
    /// Shared with whoever still waits for a reply that missed its deadline.
    pub(super) batch: Rc<Batch>,
    pub(super) reply: Option<Result<Reply, Failure>>,
    pub(super) fate: Fate,
    /// Whether nobody passes without an answer. Then the call is not to be run after its deadline;
    /// else it had better be, for what passes meanwhile is to be charged before others are.
    pub(super) expires: bool,
}

/// When a call was sent, and when its answers were there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Done {
    pub(super) sent: Instant,
    pub(super) received: Instant,
}

/// Whether Redis has run a call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    NotRun,
    /// It was sent under this number: the link's verdicts tell, now or later.
    Unknown(u64),
}

/// One request's place in a call.
#[derive(Debug)]
pub(super) struct Ticket {
    call: Rc<Call>,
    seat: usize,
    /// The groups it is part of, and its place in each.
    places: SmallVec<[Place; 4]>,
    /// The slot of each check; none where there are no slots.
    slots: SmallVec<[u16; 8]>,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    slot: u16,
    group: usize,
    request: usize,
}

/// How a request joins a call.
#[derive(Debug, Clone, Copy)]
struct Manner {
    /// It has checks in other slots, too.
    tentative: bool,
    /// It does not pass without an answer.
    denied: bool,
}

/// What came of a request in one slot.
#[derive(Debug)]
pub(super) struct Part<'a> {
    pub(super) slot: u16,
    slots: &'a [u16],
    /// The request's place in the slot's call.
    pub(super) request: usize,
    /// The reply, if there is one.
    pub(super) reply: Option<&'a Reply>,
    pub(super) fate: Fate,
}

impl Part<'_> {
    /// Whether it is about the request's check of that number.
    pub(super) fn has(&self, check: usize) -> bool {
        self.slots.is_empty() || self.slots[check] == self.slot
    }
}

impl Queue {
    pub(super) fn new(timeout: Duration, cluster: bool) -> Self {
        Queue {
            timeout,
            cluster,
            waiting: RefCell::default(),
            spare: RefCell::default(),
            arrived: Notify::new(),
        }
    }

    /// Adds a request to the call that leaves next.
    pub(super) fn join(&self, checks: &[Check<'_>], names: &Names) -> Ticket {
        let call = self.open_call();
        let mut state = call.state.borrow_mut();
        let mut places: SmallVec<[Place; 4]> = SmallVec::new();
        let mut slots: SmallVec<[u16; 8]> = SmallVec::new();
        let denied = checks.iter().any(|it| it.enforced && it.on_error == OnError::Deny);
        if self.cluster {
            slots.extend(checks.iter().map(|check| slot(names.get(check.name))));
            let several = slots.iter().any(|slot| *slot != slots[0]);
            let manner = Manner { tentative: several, denied };
            for (index, slot) in slots.iter().enumerate() {
                if slots[..index].contains(slot) {
                    continue;
                }
                let here = checks.iter().zip(&slots).filter(|(_, other)| *other == slot);
                let charges = here.map(|(check, _)| charge(check, names));
                places.push(self.add(&mut state, *slot, charges, manner));
            }
        } else {
            let charges = checks.iter().map(|check| charge(check, names));
            places.push(self.add(&mut state, 0, charges, Manner { tentative: false, denied }));
        }
        let seat = state.wakers.len();
        state.wakers.push(None);
        state.checks += checks.len();
        drop(state);
        Ticket { call, seat, places, slots }
    }

    fn add<'a>(
        &self,
        state: &mut State,
        slot: u16,
        charges: impl Iterator<Item = Charge<'a>>,
        manner: Manner,
    ) -> Place {
        let found = state.groups.iter().position(|group| group.slot == slot);
        let group = found.unwrap_or_else(|| {
            let batch = self.spare.borrow_mut().pop().unwrap_or_default();
            let fate = Fate::NotRun;
            state.groups.push(Group { slot, batch, reply: None, fate, expires: true });
            state.groups.len() - 1
        });
        state.groups[group].expires &= manner.denied;
        // Nobody else has it before it is sent.
        let batch = Rc::make_mut(&mut state.groups[group].batch);
        let request = batch.push(charges);
        if manner.tentative {
            batch.mark_tentative(request);
        }
        Place { slot, group, request }
    }

    fn open_call(&self) -> Rc<Call> {
        let mut waiting = self.waiting.borrow_mut();
        if let Some(call) = waiting.back() {
            let state = call.state.borrow();
            if state.wakers.len() < MOST_REQUESTS && state.checks < MOST_CHECKS {
                drop(state);
                return call.clone();
            }
        }
        let call =
            Rc::new(Call { deadline: clock::recent() + self.timeout, state: RefCell::default() });
        waiting.push_back(call.clone());
        self.arrived.notify_one();
        call
    }

    /// The next call to be sent, as soon as there is one.
    pub(super) async fn next(&self) -> Rc<Call> {
        loop {
            if let Some(call) = self.waiting.borrow_mut().pop_front() {
                return call;
            }
            self.arrived.notified().await;
        }
    }

    /// Keeps the memory of a call that nobody needs any more.
    pub(super) fn recycle(&self, ticket: Ticket) {
        let Some(call) = Rc::into_inner(ticket.call) else { return };
        let mut spare = self.spare.borrow_mut();
        for mut group in call.state.into_inner().groups {
            if spare.len() < SPARE
                && let Some(batch) = Rc::get_mut(&mut group.batch)
            {
                batch.clear();
                spare.push(group.batch);
            }
        }
    }
}

impl Call {
    /// What is to be sent. From here on the lane has it, until it is [`Call::finish`]ed.
    pub(super) fn take(&self) -> Vec<Group> {
        std::mem::take(&mut self.state.borrow_mut().groups)
    }

    /// Wakes everybody who waits.
    pub(super) fn finish(&self, groups: Vec<Group>, done: Done) {
        let mut state = self.state.borrow_mut();
        state.groups = groups;
        state.done = Some(done);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

impl Call {
    /// The places to be told again, now that the call is done.
    pub(super) fn abandoned(&self) -> Vec<Abandoned> {
        std::mem::take(&mut self.state.borrow_mut().abandoned)
    }
}

impl Ticket {
    /// Notes places that nobody waits for any more. `Err` if the call is done: then it is too late
    /// for the lane to see to it.
    pub(super) fn abandon(&self, places: Vec<Abandoned>) -> Result<(), Vec<Abandoned>> {
        let mut state = self.call.state.borrow_mut();
        if state.done.is_some() {
            return Err(places);
        }
        state.abandoned.extend(places);
        Ok(())
    }

    /// Waits until the call is back, or has failed.
    pub(super) async fn wait(&self) -> Done {
        std::future::poll_fn(|context| {
            let mut state = self.call.state.borrow_mut();
            if let Some(done) = state.done {
                return Poll::Ready(done);
            }
            if let Some(seat) = state.wakers.get_mut(self.seat) {
                match seat {
                    Some(waker) => waker.clone_from(context.waker()),
                    None => *seat = Some(context.waker().clone()),
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Hands out what came of the request in each of its slots.
    pub(super) fn each(&self, mut see: impl FnMut(Part<'_>)) {
        let state = self.call.state.borrow();
        for Place { slot, group, request } in &self.places {
            let group = state.groups.get(*group);
            let reply = group.and_then(|it| it.reply.as_ref()?.as_ref().ok());
            let fate = group.map_or(Fate::NotRun, |it| it.fate);
            see(Part { slot: *slot, slots: &self.slots, request: *request, reply, fate });
        }
    }
}

fn charge<'a>(check: &Check<'a>, names: &'a Names) -> Charge<'a> {
    let Check { bucket, policy, cost, late, spends, enforced, .. } = *check;
    Charge { bucket, name: names.get(check.name), policy, cost, late, spends, enforced }
}

#[cfg(test)]
mod tests;
