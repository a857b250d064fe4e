//! The shared store: buckets in Redis or Valkey, decided by Lua scripts.
//!
//! A request's checks are decided by one call of `lua/decide.lua`, which it shares with the other
//! requests of its worker ([`queue`], [`link`]). Whoever is known to be refused is refused here
//! ([`refusals`]). When Redis fails, the breaker opens ([`health`]) and each limit is served by
//! its `on_error`, until the [`keeper`] has brought Redis back.
//!
//! **How often a request is charged.** Once, if it passes. Calls are numbered. When a reply is late
//! or lost, its requests are decided without Redis; what passes then is charged later only if the
//! late reply, or the fence (`lua/fence.lua`) after a reconnect, shows that the call did not charge
//! it and never will. A cluster has no fence, since a call has to keep to one slot: there, what was
//! in flight when a reply did not come counts as charged.

pub mod adjustment;
mod backoff;
pub mod batch;
pub mod census;
mod dialer;
pub mod failure;
pub mod health;
pub mod keeper;
mod lane;
mod ledger;
mod link;
pub mod msgpack;
pub mod name;
mod nodes;
mod queue;
mod refusals;
pub mod reply;
pub mod script;
mod session;
mod shared;
mod slot;
mod stand_in;
pub mod terms;
mod verdicts;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use self::adjustment::{Adjustment, Op};
use self::lane::Lane;
use self::ledger::Doubt;
use self::link::Link;
use self::queue::{Done, Fate, Ticket};
use self::refusals::{Refusal, Refusals};
pub use self::shared::Shared;
use self::stand_in::Note;
use super::{Check, Decision, Names, Store, StoreError};
use crate::clock::{self, Micros};
use crate::limit::{Retry, Verdict};

/// One worker's hold on the store.
#[derive(Debug)]
pub struct RedisStore {
    shared: Arc<Shared>,
    link: Rc<Link>,
    refusals: RefCell<Refusals>,
}

impl RedisStore {
    /// Has to be called on the worker's runtime, where it stays.
    #[must_use]
    pub fn start(shared: Arc<Shared>) -> Self {
        let worker = shared.next_worker.fetch_add(1, Ordering::Relaxed);
        let link = Link::start(shared.clone(), worker);
        Lane::start(link.clone());
        RedisStore { shared, link, refusals: RefCell::default() }
    }

    /// Refuses a request that Redis is sure to refuse. The other limits are told as they were
    /// last heard of.
    fn refuse(&self, checks: &mut [Check<'_>]) -> Option<Decision> {
        let mut refusals = self.refusals.borrow_mut();
        if refusals.is_empty() {
            return None;
        }
        let at = clock::recent();
        let mut now = None;
        for check in checks.iter_mut() {
            check.refused = None;
            if let Some((retry, refusal)) = refusals.refused(check, at) {
                check.refused = Some(retry);
                check.state = refusal.state;
                check.now = refusal.now;
                now.get_or_insert(refusal.now);
            }
        }
        let now = now?;
        for check in checks.iter_mut().filter(|check| check.refused.is_none()) {
            let known = self.shared.local.look(check.bucket).unwrap_or_default();
            check.state = check.policy.settle(known, now);
            check.now = now;
        }
        Some(Decision { now, admitted: false, alone: false })
    }

    /// Writes the outcome into the checks. If Redis has not decided all of them, says what is to
    /// be noted of each if the request passes all the same.
    fn read(
        &self,
        ticket: &Ticket,
        done: Done,
        checks: &mut [Check<'_>],
        names: &Names,
    ) -> Result<Decision, Vec<Note>> {
        let mut now: Option<Micros> = None;
        let (mut complete, mut admitted) = (true, true);
        ticket.each(|part| match part.reply {
            Ok((reply, request)) => {
                now.get_or_insert(reply.now());
                admitted &= reply.admitted(request);
                let mut states = reply.states(request);
                for (index, check) in checks.iter_mut().enumerate() {
                    if part.has(index) {
                        check.state = states.next().unwrap_or_default();
                        check.now = reply.now();
                        check.refused = None;
                    }
                }
            }
            Err(_) => complete = false,
        });
        match now {
            Some(now) if complete && (admitted || self.blame(ticket, done, checks)) => {
                if !admitted {
                    self.give_back(ticket, checks, names);
                }
                self.note(checks);
                Ok(Decision { now, admitted, alone: false })
            }
            _ => Err(self.notes(ticket, done, checks.len())),
        }
    }

    /// Lets a request pass that Redis has admitted, as it turned out without its reply. What is
    /// left is told as far as it is known here.
    fn admit_unheard(&self, checks: &mut [Check<'_>]) -> Decision {
        let now = self.shared.clock.now();
        for check in &mut *checks {
            let known = self.shared.local.look(check.bucket).unwrap_or_default();
            check.state = check.policy.owe(known, now, check.cost);
            (check.now, check.refused) = (now, None);
        }
        self.note(checks);
        Decision { now, admitted: true, alone: false }
    }

    /// Whether Redis has charged a request whose call has failed, for each of its checks.
    fn notes(&self, ticket: &Ticket, done: Done, checks: usize) -> Vec<Note> {
        let (worker, request) = (self.link.worker, ticket.request());
        let verdicts = self.link.verdicts.borrow();
        let note = match done.fate {
            Fate::Unknown(call) => match verdicts.charged(call, request) {
                Some(true) => Note::Charged,
                Some(false) => Note::Owed,
                None => Note::Doubted(Doubt { worker, call, request }),
            },
            Fate::NotRun | Fate::Sent => Note::Owed,
        };
        let mut notes = vec![note; checks];
        if done.fate == Fate::Sent {
            ticket.each(|part| {
                let charged = match part.reply {
                    Ok((reply, request)) => reply.admitted(request),
                    Err(failure) => failure.is_silence(),
                };
                for index in (0..checks).filter(|index| charged && part.has(*index)) {
                    notes[index] = Note::Charged;
                }
            });
        }
        notes
    }

    /// Remembers the states in case Redis fails. What it does not know of yet comes on top.
    fn note(&self, checks: &[Check<'_>]) {
        let Shared { local, ledger, owes, .. } = &*self.shared;
        if !owes.load(Ordering::Relaxed) {
            return checks.iter().for_each(|it| local.note(it.bucket, it.state, it.now));
        }
        let ledger = ledger.lock();
        for check in checks {
            let owed = ledger.owed(check.bucket, check.now);
            let state = check.policy.owe(check.state, check.now, owed);
            local.note(check.bucket, state, check.now);
        }
        owes.store(!ledger.is_empty(), Ordering::Relaxed);
    }

    /// Undoes what slots of a cluster have charged for a request that does not pass.
    fn give_back(&self, ticket: &Ticket, checks: &mut [Check<'_>], names: &Names) {
        ticket.each(|part| {
            let Ok((reply, request)) = part.reply else { return };
            if !reply.admitted(request) {
                return;
            }
            let now = reply.now();
            let here = checks.iter().enumerate().filter(|(index, _)| part.has(*index));
            let taken = here.map(|(_, check)| Adjustment {
                op: Op::GiveBack { charged_at: now },
                name: names.get(check.name),
                policy: check.policy,
                cost: check.cost,
            });
            self.link.adjust(part.slot, taken);
            let states = checks.iter_mut().enumerate().filter(|(index, _)| part.has(*index));
            for ((_, check), charged) in states.zip(reply.states(request)) {
                if check.now == now {
                    check.state = check.policy.give_back(charged, now, check.cost, now);
                }
            }
        });
    }

    /// Finds out which checks have refused, and remembers their buckets. Redis sends the states
    /// and not the verdicts: they follow from each other by the same functions. False if they do
    /// not, and the reply makes no sense.
    fn blame(&self, ticket: &Ticket, done: Done, checks: &mut [Check<'_>]) -> bool {
        let mut refusals = self.refusals.borrow_mut();
        let mut found = false;
        ticket.each(|part| {
            let Ok((reply, request)) = part.reply else { return };
            if reply.admitted(request) {
                return;
            }
            for index in (0..checks.len()).filter(|index| part.has(*index)) {
                let (before, after) = checks.split_at_mut(index);
                let Some(check) = after.first_mut() else { continue };
                // Checks on one bucket count as their sum.
                let same = before.iter().filter(|other| other.bucket == check.bucket);
                let cost = same.fold(check.cost, |sum, other| sum.saturating_add(other.cost));
                let verdict = check.policy.evaluate(check.state, check.now, cost);
                let Verdict::Refuse(retry) = verdict else { continue };
                check.refused = Some(retry);
                found = true;
                if matches!(retry, Retry::At(_)) {
                    let Done { sent, received, .. } = done;
                    let (state, now) = (check.state, check.now);
                    refusals.insert(check.bucket, Refusal { state, now, sent, received });
                }
            }
        });
        found
    }
}

impl Store for RedisStore {
    async fn decide(
        &self,
        checks: &mut [Check<'_>],
        names: &Names,
    ) -> Result<Decision, StoreError> {
        if self.shared.health.is_open() {
            self.refusals.borrow_mut().clear();
            if let Some(decided) = stand_in::decide_while_open(&self.shared, checks, names) {
                return decided;
            }
        }
        if let Some(decision) = self.refuse(checks) {
            return Ok(decision);
        }
        let ticket = self.link.queue.join(checks, names);
        let done = ticket.wait().await;
        let decided = match self.read(&ticket, done, checks, names) {
            Ok(decision) => Ok(decision),
            Err(notes) if done.fate != Fate::Sent && notes.contains(&Note::Charged) => {
                Ok(self.admit_unheard(checks))
            }
            Err(notes) => {
                let decided = stand_in::decide_after_all(&self.shared, checks, names, &notes);
                if done.fate == Fate::Sent && !decided.as_ref().is_ok_and(|it| it.admitted) {
                    self.give_back(&ticket, checks, names);
                }
                decided
            }
        };
        self.link.queue.recycle(ticket);
        decided
    }
}
