//! What Redis has said of a request's checks, and what follows from that.

use std::sync::atomic::Ordering;

use super::adjustment::{Adjustment, Op};
use super::ledger::Doubt;
use super::queue::{Done, Fate, Ticket};
use super::refusals::Refusal;
use super::stand_in::Note;
use super::terms::Told;
use super::{RedisStore, Shared, doubt};
use crate::clock::Micros;
use crate::limit::{Retry, Verdict};
use crate::store::{Check, Decision, Names};

impl RedisStore {
    /// Writes the outcome into the checks. If Redis has not decided all of them, says what is to
    /// be noted of each if the request passes all the same.
    pub(super) fn read(
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
                let here = checks.iter_mut().enumerate().filter(|(index, _)| part.has(*index));
                for ((_, check), told) in here.zip(reply.told(request)) {
                    check.state = told.state;
                    check.now = reply.now();
                    check.refused = if told.would_refuse { refusal(check, 0, told) } else { None };
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
    pub(super) fn admit_unheard(&self, checks: &mut [Check<'_>]) -> Decision {
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
    pub(super) fn notes(&self, ticket: &Ticket, done: Done, checks: usize) -> Vec<Note> {
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
    pub(super) fn note(&self, checks: &[Check<'_>]) {
        let Shared { local, ledger, owes, .. } = &*self.shared;
        // Of places, this store holds what its own requests have.
        let checks = checks.iter().filter(|check| !check.policy.is_held());
        if !owes.load(Ordering::Relaxed) {
            return checks.for_each(|it| local.note(it.bucket, it.policy, it.state, it.now));
        }
        let ledger = ledger.lock();
        for check in checks {
            let owed = ledger.owed(check.bucket, check.now);
            let state = check.policy.owe(check.state, check.now, owed);
            local.note(check.bucket, check.policy, state, check.now);
        }
        owes.store(!ledger.is_empty(), Ordering::Relaxed);
    }

    /// Undoes what slots of a cluster have charged for a request that does not pass.
    pub(super) fn give_back(&self, ticket: &Ticket, checks: &mut [Check<'_>], names: &Names) {
        ticket.each(|part| {
            let Ok((reply, request)) = part.reply else { return };
            if !reply.admitted(request) {
                return;
            }
            let now = reply.now();
            // Places are told as they are held, and never as a difference.
            doubt(&self.link, checks, names);
            let charged = |check: &Check<'_>| {
                check.spends && check.refused.is_none() && !check.policy.is_held()
            };
            let here = checks.iter().enumerate().filter(|(index, _)| part.has(*index));
            let taken = here.filter(|(_, check)| charged(check)).map(|(_, check)| Adjustment {
                op: Op::GiveBack { charged_at: now },
                name: names.get(check.name),
                policy: check.policy,
                cost: check.cost,
            });
            self.link.adjust(part.slot, taken);
            let states = checks.iter_mut().enumerate().filter(|(index, _)| part.has(*index));
            for ((_, check), told) in states.zip(reply.told(request)) {
                if check.now == now && charged(check) {
                    check.state = check.policy.give_back(told.state, now, check.cost, now);
                }
            }
        });
    }

    /// Finds out which checks have refused, and remembers their buckets. Redis sends the states
    /// and not the verdicts: they follow from each other by the same functions. False if they do
    /// not, and the reply makes no sense.
    pub(super) fn blame(&self, ticket: &Ticket, done: Done, checks: &mut [Check<'_>]) -> bool {
        let mut refusals = self.refusals.borrow_mut();
        let mut found = false;
        ticket.each(|part| {
            let Ok((reply, request)) = part.reply else { return };
            if reply.admitted(request) {
                return;
            }
            let mut told = reply.told(request);
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
                if check.policy.is_foretold() && matches!(retry, Retry::At(_)) {
                    let Done { sent, received, .. } = done;
                    let (state, now) = (check.state, check.now);
                    refusals.insert(check.bucket, Refusal { state, now, sent, received });
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
