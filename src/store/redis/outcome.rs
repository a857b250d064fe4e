//! What Redis has said of a request's checks, and what follows from that.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use super::ledger::Doubt;
use super::link::Link;
use super::queue::{Done, Fate, Part, Ticket};
use super::refunds::{Charged, Claim, Refund};
use super::refusals::{Promise, Refusal};
use super::stand_in::{self, Note};
use super::terms::Told;
use super::{Shared, verdicts};
use crate::clock::Micros;
use crate::limit::{Retry, Verdict};
use crate::store::{Check, Decision, Names, StoreError};

/// How long whoever is refused is told to wait if nobody knows.
const AGAIN_US: u64 = 1_000_000;

/// What became of a request in one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Came {
    /// Charged at that instant, if it is known.
    Admitted(Option<Micros>),
    Refused,
    /// Not charged, and it never will be.
    NotRun,
    /// It has to be taken to have been charged.
    Lost,
    /// It will become known, or not.
    Unknown(Claim),
}

/// What became of it in all of them.
#[derive(Debug, Clone, Copy)]
struct Summary {
    /// The instant of the first slot that answered.
    now: Option<Micros>,
    refused: bool,
    admitted: bool,
}

impl Link {
    /// Writes the outcome into the checks. One refusal is enough, whatever became of the other
    /// slots; if none refuses and not all admit, each limit's `on_error` decides. What a request
    /// was charged with that is not admitted is given back.
    pub(super) fn conclude(
        self: &Rc<Self>,
        ticket: &Ticket,
        done: Done,
        checks: &mut [Check<'_>],
        names: &Names,
    ) -> Result<Decision, StoreError> {
        let summary = self.read(ticket, checks);
        let now = summary.now.unwrap_or_else(|| self.shared.clock.now());
        if summary.refused {
            self.refuse(ticket, done, now, checks);
            self.give_back(ticket, checks, names);
            return Ok(Decision { now, admitted: false, alone: false });
        }
        if summary.admitted {
            self.admit_unheard(ticket, now, checks, names);
            self.note(checks);
            return Ok(Decision { now, admitted: true, alone: false });
        }
        self.doubt(checks, names);
        let notes = self.notes(ticket, checks.len());
        let decided = stand_in::decide_after_all(&self.shared, checks, names, &notes);
        if !decided.as_ref().is_ok_and(|it| it.admitted) {
            self.give_back(ticket, checks, names);
        }
        decided
    }

    /// The same for a request that nobody waits for any more. It stays charged if it was admitted:
    /// to leave is no way to have spent nothing.
    pub(super) fn conclude_abandoned(
        self: &Rc<Self>,
        ticket: &Ticket,
        done: Done,
        checks: &mut [Check<'_>],
        names: &Names,
    ) {
        let summary = self.read(ticket, checks);
        if summary.refused {
            let now = summary.now.unwrap_or_else(|| self.shared.clock.now());
            self.refuse(ticket, done, now, checks);
        }
        if !summary.admitted {
            self.give_back(ticket, checks, names);
        }
    }

    /// Writes what was told into the checks.
    fn read(&self, ticket: &Ticket, checks: &mut [Check<'_>]) -> Summary {
        let mut summary = Summary { now: None, refused: false, admitted: true };
        ticket.each(|part| {
            let came = self.came(&part);
            summary.refused |= came == Came::Refused;
            summary.admitted &= matches!(came, Came::Admitted(_));
            let Some(reply) = part.reply else { return };
            summary.now.get_or_insert(reply.now());
            let here = checks.iter_mut().enumerate().filter(|(index, _)| part.has(*index));
            for ((_, check), told) in here.zip(reply.told(part.request)) {
                check.state = told.state;
                check.now = reply.now();
                check.refused = if told.would_refuse { refusal(check, 0, told) } else { None };
            }
        });
        summary
    }

    fn came(&self, part: &Part<'_>) -> Came {
        if let Some(reply) = part.reply {
            let admitted = reply.admitted(part.request);
            return if admitted { Came::Admitted(Some(reply.now())) } else { Came::Refused };
        }
        let Fate::Unknown(call) = part.fate else { return Came::NotRun };
        match self.verdicts.borrow().of(call, part.request) {
            Some(verdicts::Verdict::Admitted(at)) => Came::Admitted(at),
            Some(verdicts::Verdict::Refused) => Came::Refused,
            Some(verdicts::Verdict::NotRun) => Came::NotRun,
            Some(verdicts::Verdict::Lost) => Came::Lost,
            None => Came::Unknown(Claim { call, request: part.request }),
        }
    }

    /// Tells what is left to a request that Redis has admitted, as far as it is known here where
    /// the reply did not come.
    fn admit_unheard(&self, ticket: &Ticket, now: Micros, checks: &mut [Check<'_>], names: &Names) {
        ticket.each(|part| {
            if part.reply.is_some() {
                return;
            }
            // Whatever Redis has been told of its places meanwhile did not have this one in it.
            self.doubt(checks, names);
            let here = checks.iter_mut().enumerate().filter(|(index, _)| part.has(*index));
            for (_, check) in here {
                let known = self.shared.local.look(check.bucket).unwrap_or_default();
                check.state = check.policy.owe(known, now, check.cost);
                (check.now, check.refused) = (now, None);
            }
        });
    }

    /// What is to be noted of each check if the request passes without Redis.
    fn notes(&self, ticket: &Ticket, checks: usize) -> Vec<Note> {
        let mut notes = vec![Note::Owed; checks];
        ticket.each(|part| {
            let note = match self.came(&part) {
                Came::Admitted(_) | Came::Lost => Note::Charged,
                Came::NotRun | Came::Refused => Note::Owed,
                Came::Unknown(Claim { call, request }) => {
                    Note::Doubted(Doubt { worker: self.worker, call, request })
                }
            };
            (0..checks).filter(|it| part.has(*it)).for_each(|it| notes[it] = note);
        });
        notes
    }

    /// Remembers the states in case Redis fails. What it does not know of yet comes on top.
    fn note(&self, checks: &[Check<'_>]) {
        let Shared { local, order, ledger, owes, .. } = &*self.shared;
        let note = |it: &Check<'_>, state| {
            if order.is_newest(it.bucket, it.now) {
                local.note(it.bucket, it.policy, state, it.now);
            } else {
                local.note_older(it.bucket, it.policy, state, it.now);
            }
        };
        // Of places, this store holds what its own requests have.
        let checks = checks.iter().filter(|check| !check.policy.is_held());
        if !owes.load(Ordering::Relaxed) {
            return checks.for_each(|it| note(it, it.state));
        }
        let ledger = ledger.lock();
        for check in checks {
            let owed = ledger.owed(check.bucket, check.now);
            let state = check.policy.owe(check.state, check.now, owed);
            note(check, state);
        }
        owes.store(!ledger.is_empty(), Ordering::Relaxed);
    }

    /// Undoes what was charged for a request that is not admitted, or will turn out to have been.
    fn give_back(self: &Rc<Self>, ticket: &Ticket, checks: &[Check<'_>], names: &Names) {
        ticket.each(|part| {
            let came = self.came(&part);
            if !matches!(came, Came::Admitted(Some(_)) | Came::Unknown(_)) {
                return;
            }
            // Places are told as they are held, and never as a difference.
            self.doubt(checks, names);
            let mut told = part.reply.map(|reply| reply.told(part.request));
            let here = checks.iter().enumerate().filter(|(index, _)| part.has(*index));
            let charged = here.filter(|(_, check)| {
                // One that only watches is charged if it would have admitted, which only a reply
                // tells.
                let charged = match told.as_mut().and_then(Iterator::next) {
                    Some(told) => !told.would_refuse,
                    None => check.enforced,
                };
                charged && check.spends && !check.policy.is_held()
            });
            let charges = charged.map(|(_, check)| Charged {
                name: names.get(check.name).to_vec(),
                policy: *check.policy,
                cost: check.cost,
            });
            let refund = Refund { slot: part.slot, charges: charges.collect() };
            match came {
                Came::Admitted(Some(at)) => self.refund(at, refund),
                Came::Unknown(claim) => self.refund_if_charged(claim, refund),
                _ => {}
            }
        });
    }

    /// Finishes the checks of a request that a slot has refused, and remembers all of them.
    fn refuse(&self, ticket: &Ticket, done: Done, now: Micros, checks: &mut [Check<'_>]) {
        let mut found = self.blame(ticket, done, checks);
        ticket.each(|part| {
            let came = self.came(&part);
            let here = checks.iter_mut().enumerate().filter(|(index, _)| part.has(*index));
            match (part.reply, came) {
                // What is left once the charge has been given back.
                (Some(reply), Came::Admitted(_)) => {
                    for ((_, check), told) in here.zip(reply.told(part.request)) {
                        let charged = check.spends && !told.would_refuse;
                        if charged && !check.policy.is_held() {
                            let Check { policy, cost, now, .. } = *check;
                            check.state = policy.give_back(told.state, now, cost, now);
                        }
                    }
                }
                (Some(_), _) => {}
                // Nobody has told: by what was last heard of.
                (None, came) => {
                    for (_, check) in here {
                        let known = self.shared.local.look(check.bucket).unwrap_or_default();
                        (check.state, check.now) = (check.policy.settle(known, now), now);
                        check.refused = None;
                        let verdict = check.policy.evaluate(check.state, now, check.cost);
                        if let (Came::Refused, Verdict::Refuse(retry)) = (came, verdict) {
                            check.refused = Some(retry);
                            found |= check.enforced;
                        }
                    }
                }
            }
        });
        if !found {
            self.blame_anybody(ticket, now, checks);
        }
        self.note(checks);
    }

    /// Redis has refused, and by what is known here nobody has: somebody is to have.
    fn blame_anybody(&self, ticket: &Ticket, now: Micros, checks: &mut [Check<'_>]) {
        let mut found = false;
        ticket.each(|part| {
            let refused = self.came(&part) == Came::Refused;
            let here = checks.iter_mut().enumerate().filter(|(index, _)| part.has(*index));
            for (_, check) in here.filter(|(_, check)| check.enforced) {
                if refused && !found {
                    check.refused = Some(Retry::At(Micros(now.0 + AGAIN_US)));
                    found = true;
                }
            }
        });
    }

    /// Finds out which checks have refused, and remembers their buckets. Redis sends the states
    /// and not the verdicts: they follow from each other by the same functions.
    fn blame(&self, ticket: &Ticket, done: Done, checks: &mut [Check<'_>]) -> bool {
        let mut refusals = self.refusals.borrow_mut();
        let mut found = false;
        ticket.each(|part| {
            let Some(reply) = part.reply.filter(|it| !it.admitted(part.request)) else { return };
            let mut told = reply.told(part.request);
            for index in (0..checks.len()).filter(|index| part.has(*index)) {
                let Some(told) = told.next() else { continue };
                let (before, after) = checks.split_at_mut(index);
                let Some(check) = after.first_mut().filter(|check| check.enforced) else {
                    continue;
                };
                // Checks on one bucket count as their sum.
                let same = before.iter().filter(|other| other.bucket == check.bucket);
                let more = same.fold(0, |sum: u64, other| sum.saturating_add(other.cost));
                let Some(retry) = refusal(check, more, told) else { continue };
                check.refused = Some(retry);
                found = true;
                if let Retry::At(at) = retry
                    && !check.policy.is_held()
                {
                    let Done { sent, received } = done;
                    let (state, now) = (check.state, check.now);
                    let cost = check.cost.saturating_add(more);
                    let promise = Promise { at, cost, policy: *check.policy };
                    let promise = (!check.policy.is_foretold()).then_some(promise);
                    let refusal = Refusal { state, now, sent, received, promise };
                    refusals.insert(check.bucket, refusal);
                }
            }
        });
        found
    }
}

/// Whether and until when a check refuses its cost and `more`, by what Redis told of it.
fn refusal(check: &Check<'_>, more: u64, told: Told) -> Option<Retry> {
    if let Some(at) = told.passes_at {
        return Some(Retry::At(at));
    }
    match check.policy.evaluate(check.state, check.now, check.cost.saturating_add(more)) {
        Verdict::Admit(_) => None,
        Verdict::Refuse(retry) => Some(retry),
    }
}
