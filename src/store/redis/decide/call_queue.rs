//! Calls in the making: the checks of requests that go to Redis together.
//!
//! While one call is out, the requests that come join the next one, and it leaves as soon as the
//! one before is back: no request waits for a timer, and the busier a worker is the more requests
//! share a call. A call to one server is one script; on a cluster it is one for each slot.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::signal::Signal;
use crate::clock;
use crate::limit::{OnError, Policy};
use crate::store::redis::connect::failure::Failure;
use crate::store::redis::connect::hash_slot::{HashSlotGroup, group_by_hash_slot, hash_slot};
use crate::store::redis::wire::batch::{Batch, Charge};
use crate::store::redis::wire::reply::Reply;
use crate::store::{BucketId, Check, CheckOutcome, CheckSet};

/// Redis does nothing else while it decides a call, so none is to take it long.
const MOST_REQUESTS: usize = 128;
const MOST_CHECKS: usize = 512;
/// Emptied batches and calls kept for their memory.
const SPARE: usize = 4;

#[derive(Debug)]
pub(crate) struct CallQueue {
    timeout: Duration,
    cluster: bool,
    waiting: RefCell<VecDeque<Rc<Call>>>,
    spare: RefCell<Vec<Rc<Batch>>>,
    /// Room for the groups and the wakers of calls.
    spare_states: RefCell<Vec<CallState>>,
    arrived: Signal,
}

/// Requests that are decided together.
#[derive(Debug)]
pub(crate) struct Call {
    /// When the first of its requests has waited for long enough.
    pub(crate) deadline: Instant,
    state: RefCell<CallState>,
}

#[derive(Debug, Default)]
struct CallState {
    groups: Vec<CallGroup>,
    wakers: Vec<Option<Waker>>,
    checks: usize,
    times: Option<CallTimes>,
    /// Slots that requests asked for which have left since.
    abandoned: Vec<AbandonedSlots>,
}

/// Slots for a request that has left, which Redis may give all the same.
#[derive(Debug)]
pub(crate) struct AbandonedSlots {
    pub(crate) bucket: BucketId,
    pub(crate) name: Vec<u8>,
    pub(crate) policy: Policy,
}

/// What of a call goes to one slot, and what came back.
#[derive(Debug)]
pub(crate) struct CallGroup {
    pub(crate) slot: u16,
    /// Shared with the task that still waits for a reply that missed its deadline.
    pub(crate) batch: Rc<Batch>,
    pub(crate) reply: Option<Result<Reply, Failure>>,
    pub(crate) status: CallStatus,
    /// Whether no request of it passes without an answer. Then the call must not be run after its
    /// deadline; else it should be, since what passes meanwhile is to be charged before others are.
    pub(crate) expires: bool,
}

/// When a call was sent, and when its answers were there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallTimes {
    pub(crate) sent: Instant,
    pub(crate) received: Instant,
}

/// Whether Redis has run a call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallStatus {
    NotRun,
    /// It was sent under this number. `WorkerLink::call_outcomes` tells what became of it, now or
    /// later.
    Unknown(u64),
}

/// One request's part in a call.
#[derive(Debug)]
#[must_use]
pub(crate) struct Ticket {
    call: Rc<Call>,
    seat: usize,
    /// The groups it is part of, and its position in each.
    positions: SmallVec<[GroupPosition; 4]>,
    /// The slot of each check; none where there are no slots.
    slots: SmallVec<[u16; 8]>,
}

/// Small, since each ticket has room for several and is moved a few times. A call has no more groups
/// than checks, and no more requests than [`MOST_REQUESTS`].
#[derive(Debug, Clone, Copy)]
struct GroupPosition {
    slot: u16,
    group: u16,
    request: u16,
}

/// How a request joins a call.
#[derive(Debug, Clone, Copy)]
struct JoinFlags {
    /// It has checks in other slots, too.
    tentative: bool,
    /// It does not pass without an answer.
    denied: bool,
}

/// What came of a request in one slot.
#[derive(Debug)]
pub(crate) struct GroupResult<'a> {
    pub(crate) slot: u16,
    slots: &'a [u16],
    /// The request's position in the slot's call.
    pub(crate) request: usize,
    /// The reply, if there is one.
    pub(crate) reply: Option<&'a Reply>,
    pub(crate) status: CallStatus,
}

impl GroupResult<'_> {
    /// Whether it is about the request's check of that number.
    pub(crate) fn has(&self, check: usize) -> bool {
        self.slots.is_empty() || self.slots[check] == self.slot
    }

    /// Those of the request's checks that it is about, and their outcomes.
    pub(crate) fn of<'c, 'p>(
        &self,
        checks: &'c [Check<'p>],
        outcomes: &'c mut [CheckOutcome],
    ) -> impl Iterator<Item = (&'c Check<'p>, &'c mut CheckOutcome)> {
        let all = checks.iter().zip(outcomes).enumerate();
        all.filter(|(index, _)| self.has(*index)).map(|(_, both)| both)
    }
}

impl CallQueue {
    pub(crate) fn new(timeout: Duration, cluster: bool) -> Self {
        CallQueue {
            timeout,
            cluster,
            waiting: RefCell::default(),
            spare: RefCell::default(),
            spare_states: RefCell::default(),
            arrived: Signal::default(),
        }
    }

    /// Adds a request to the call that leaves next.
    pub(crate) fn join(&self, asked: CheckSet<'_>) -> Ticket {
        let checks = asked.checks;
        let call = self.open_call();
        let mut state = call.state.borrow_mut();
        let mut positions: SmallVec<[GroupPosition; 4]> = SmallVec::new();
        let mut slots: SmallVec<[u16; 8]> = SmallVec::new();
        let denied = checks.iter().any(|it| it.enforced && it.on_error == OnError::Deny);
        if self.cluster {
            let keys = asked.keys.written();
            let asked = CheckSet { keys: keys.view(), ..asked };
            slots.extend(checks.iter().map(|check| hash_slot(&asked.key(check).text())));
            let groups = group_by_hash_slot(checks.iter().zip(&slots), |(_, slot)| **slot);
            let flags = JoinFlags { tentative: groups.len() > 1, denied };
            for HashSlotGroup { slot, items } in groups {
                let charges = items.into_iter().map(|(check, _)| charge(check, asked));
                positions.push(self.add(&mut state, slot, charges, flags));
            }
        } else {
            let charges = checks.iter().map(|check| charge(check, asked));
            let flags = JoinFlags { tentative: false, denied };
            positions.push(self.add(&mut state, 0, charges, flags));
        }
        let seat = state.wakers.len();
        state.wakers.push(None);
        state.checks += checks.len();
        drop(state);
        Ticket { call, seat, positions, slots }
    }

    fn add<'a>(
        &self,
        state: &mut CallState,
        slot: u16,
        charges: impl Iterator<Item = Charge<'a>>,
        flags: JoinFlags,
    ) -> GroupPosition {
        let found = state.groups.iter().position(|group| group.slot == slot);
        let group = found.unwrap_or_else(|| {
            let batch = self.spare.borrow_mut().pop().unwrap_or_default();
            let status = CallStatus::NotRun;
            state.groups.push(CallGroup { slot, batch, reply: None, status, expires: true });
            state.groups.len() - 1
        });
        state.groups[group].expires &= flags.denied;
        // It is not shared before it is sent.
        let batch = Rc::make_mut(&mut state.groups[group].batch);
        let request = batch.push(charges);
        if flags.tentative {
            batch.mark_tentative(request);
        }
        GroupPosition { slot, group: group as u16, request: request as u16 }
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
        let state = self.spare_states.borrow_mut().pop().unwrap_or_default();
        let deadline = clock::cached_now() + self.timeout;
        let call = Rc::new(Call { deadline, state: RefCell::new(state) });
        waiting.push_back(call.clone());
        self.arrived.raise();
        call
    }

    /// The next call to be sent, as soon as there is one.
    pub(crate) async fn next(&self) -> Rc<Call> {
        loop {
            if let Some(call) = self.waiting.borrow_mut().pop_front() {
                return call;
            }
            self.arrived.raised().await;
        }
    }

    /// Keeps the memory of a call whose requests all have their outcomes.
    pub(crate) fn recycle(&self, ticket: Ticket) {
        let Some(call) = Rc::into_inner(ticket.call) else { return };
        let CallState { mut groups, mut wakers, .. } = call.state.into_inner();
        let mut spare = self.spare.borrow_mut();
        for mut group in groups.drain(..) {
            if spare.len() < SPARE
                && let Some(batch) = Rc::get_mut(&mut group.batch)
            {
                batch.clear();
                spare.push(group.batch);
            }
        }
        let mut spare_states = self.spare_states.borrow_mut();
        if spare_states.len() < SPARE {
            wakers.clear();
            spare_states.push(CallState { groups, wakers, ..CallState::default() });
        }
    }
}

impl Call {
    /// What is to be sent. From here on the pipeline has it, until it is [`Call::finish`]ed.
    pub(crate) fn take(&self) -> Vec<CallGroup> {
        std::mem::take(&mut self.state.borrow_mut().groups)
    }

    /// Wakes all requests of the call.
    pub(crate) fn finish(&self, groups: Vec<CallGroup>, times: CallTimes) {
        let mut state = self.state.borrow_mut();
        state.groups = groups;
        state.times = Some(times);
        // To wake a task only queues it: nothing looks at the call before this is over.
        state.wakers.iter_mut().filter_map(Option::take).for_each(Waker::wake);
    }
}

impl Call {
    /// The slots to report again, now that the call is done.
    pub(crate) fn abandoned(&self) -> Vec<AbandonedSlots> {
        std::mem::take(&mut self.state.borrow_mut().abandoned)
    }
}

impl Ticket {
    /// Notes the slots of a request that leaves. `Err` if the call is done: then it is too late for the
    /// pipeline to report them.
    pub(crate) fn abandon(
        &self,
        positions: Vec<AbandonedSlots>,
    ) -> Result<(), Vec<AbandonedSlots>> {
        let mut state = self.call.state.borrow_mut();
        if state.times.is_some() {
            return Err(positions);
        }
        state.abandoned.extend(positions);
        Ok(())
    }

    /// Waits until the call is back, or has failed.
    pub(crate) async fn wait(&self) -> CallTimes {
        std::future::poll_fn(|context| {
            let mut state = self.call.state.borrow_mut();
            if let Some(times) = state.times {
                return Poll::Ready(times);
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

    /// Hands out what came of the request in each of its hash slots.
    pub(crate) fn each(&self, mut see: impl FnMut(GroupResult<'_>)) {
        let state = self.call.state.borrow();
        for GroupPosition { slot, group, request } in &self.positions {
            let group = state.groups.get(usize::from(*group));
            let reply = group.and_then(|it| it.reply.as_ref()?.as_ref().ok());
            let status = group.map_or(CallStatus::NotRun, |it| it.status);
            let (slots, request) = (&self.slots[..], usize::from(*request));
            see(GroupResult { slot: *slot, slots, request, reply, status });
        }
    }
}

fn charge<'a>(check: &Check<'a>, asked: CheckSet<'a>) -> Charge<'a> {
    let Check { bucket, policy, cost, waited, spends, enforced, choice, .. } = *check;
    let (name, bound) = (asked.key(check), check.is_bound());
    Charge { bucket, name, policy, cost, waited, spends, enforced, bound, choice }
}

#[cfg(test)]
mod tests;
