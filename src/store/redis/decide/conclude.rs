//! From the replies of Redis to the decision on a request.

mod refused;

use std::rc::Rc;
use std::sync::atomic::Ordering;

use super::call_outcomes;
use super::call_queue::{CallStatus, CallTimes, GroupResult, Ticket};
use super::refunds::{Charged, Claim, Refund};
use super::worker_link::WorkerLink;
use crate::clock::Micros;
use crate::limit::lease::LeaseReply;
use crate::limit::{Policy, State};
use crate::store::redis::RedisShared;
use crate::store::redis::supervise::fallback::{self, ChargeNote};
use crate::store::redis::supervise::ledger::{UncertainCharge, UncertainPair};
use crate::store::redis::wire::pair_choices::{PairChoice, PairChoices, PairCounter};
use crate::store::redis::wire::reply::RequestVerdict;
use crate::store::{BucketId, Check, CheckOutcome, CheckSet, Choice, Decision, StoreError};
use refused::{pair_refusal, told_refusal};

/// What became of a request in one hash slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GroupOutcome {
    /// Charged at that instant, if it is known, and of pairs to these.
    Admitted {
        at: Option<Micros>,
        pairs: PairChoices,
    },
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
    /// The instant of the first hash slot that answered.
    now: Option<Micros>,
    refused: bool,
    admitted: bool,
}

impl WorkerLink {
    /// Writes the outcomes. One refusal is enough, whatever became of the other hash slots; if none
    /// refuses and not all admit, each limit's `on_error` decides. What a request
    /// was charged with that is not admitted is refunded.
    pub(crate) fn conclude(
        self: &Rc<Self>,
        ticket: &Ticket,
        times: CallTimes,
        asked: CheckSet<'_>,
        outcomes: &mut [CheckOutcome],
    ) -> Result<Decision, StoreError> {
        let summary = self.read(ticket, asked.checks, outcomes);
        let now = summary.now.unwrap_or_else(|| self.shared.clock.now());
        if summary.refused {
            self.refuse(ticket, times, now, asked.checks, outcomes);
            self.refund_charges(ticket, asked);
            return Ok(Decision { now, admitted: false, alone: false });
        }
        if summary.admitted {
            self.admit_without_reply(ticket, now, asked, outcomes);
            self.note(asked.checks, outcomes);
            return Ok(Decision { now, admitted: true, alone: false });
        }
        self.mark_dirty(asked);
        let notes = self.notes(ticket, asked.checks);
        let decided = fallback::decide_after_all(&self.shared, asked, outcomes, &notes);
        if !decided.as_ref().is_ok_and(|it| it.admitted) {
            self.refund_charges(ticket, asked);
        }
        decided
    }

    /// The same for a request whose client has left. It stays charged if it was admitted: leaving early
    /// must not be free. True if it was.
    pub(crate) fn conclude_abandoned(
        self: &Rc<Self>,
        ticket: &Ticket,
        times: CallTimes,
        asked: CheckSet<'_>,
        outcomes: &mut [CheckOutcome],
    ) -> bool {
        let summary = self.read(ticket, asked.checks, outcomes);
        if summary.refused {
            let now = summary.now.unwrap_or_else(|| self.shared.clock.now());
            self.refuse(ticket, times, now, asked.checks, outcomes);
        }
        let admitted = summary.admitted && !summary.refused;
        if !admitted {
            self.refund_charges(ticket, asked);
        }
        admitted
    }

    /// Writes what the replies say into the outcomes.
    fn read(
        &self,
        ticket: &Ticket,
        checks: &[Check<'_>],
        outcomes: &mut [CheckOutcome],
    ) -> Summary {
        let mut summary = Summary { now: None, refused: false, admitted: true };
        ticket.each(|result| {
            let group_outcome = self.group_outcome(&result);
            summary.refused |= group_outcome == GroupOutcome::Refused;
            summary.admitted &= matches!(group_outcome, GroupOutcome::Admitted { .. });
            let Some(reply) = result.reply else { return };
            summary.now.get_or_insert(reply.now());
            let here = result.of(checks, outcomes);
            let mut previous = None;
            for ((check, outcome), check_reply) in here.zip(reply.check_replies(result.request)) {
                outcome.state = check_reply.state;
                outcome.now = reply.now();
                outcome.skipped = check_reply.skipped;
                outcome.withheld = check_reply.withheld;
                outcome.refused = if check_reply.would_refuse {
                    told_refusal(check, outcome, previous, check_reply)
                } else {
                    None
                };
                previous = outcome.refused;
            }
        });
        summary
    }

    fn group_outcome(&self, result: &GroupResult<'_>) -> GroupOutcome {
        if let Some(reply) = result.reply {
            let RequestVerdict { admitted, pairs } = reply.verdict(result.request);
            return if admitted {
                GroupOutcome::Admitted { at: Some(reply.now()), pairs }
            } else {
                GroupOutcome::Refused
            };
        }
        let CallStatus::Unknown(call) = result.status else { return GroupOutcome::NotRun };
        match self.call_outcomes.borrow().of(call, result.request) {
            Some(call_outcomes::RequestOutcome::Admitted { at, pairs }) => {
                GroupOutcome::Admitted { at, pairs }
            }
            Some(call_outcomes::RequestOutcome::Refused) => GroupOutcome::Refused,
            Some(call_outcomes::RequestOutcome::NotRun) => GroupOutcome::NotRun,
            Some(call_outcomes::RequestOutcome::Lost) => GroupOutcome::Lost,
            None => GroupOutcome::Unknown(Claim { call, request: result.request }),
        }
    }

    /// The states of a request that Redis has admitted, from what is known here where the reply did
    /// not come.
    fn admit_without_reply(
        &self,
        ticket: &Ticket,
        now: Micros,
        asked: CheckSet<'_>,
        outcomes: &mut [CheckOutcome],
    ) {
        ticket.each(|result| {
            if result.reply.is_some() {
                return;
            }
            // Reports of slots that Redis got meanwhile did not count this request.
            self.mark_dirty(asked);
            let GroupOutcome::Admitted { pairs, .. } = self.group_outcome(&result) else { return };
            let (mut counter, mut previous) = (PairCounter::default(), None);
            for (check, outcome) in result.of(asked.checks, outcomes) {
                let known = self.shared.local.state(check.bucket).unwrap_or_default();
                let came = counter.next(check.choice).map(|pair| pairs.of(pair));
                let chosen = came.is_none_or(|it| it.is(check.choice));
                (outcome.now, outcome.refused, outcome.withheld) = (now, None, false);
                outcome.skipped = check.choice == Choice::Second && came == Some(PairChoice::First);
                if chosen {
                    outcome.state = check.policy.charge_after(known, now, check.cost);
                } else {
                    outcome.state = check.policy.clamp(known, now);
                }
                if !chosen && !outcome.skipped {
                    outcome.refused = Some(pair_refusal(check, outcome, previous));
                }
                previous = outcome.refused;
            }
        });
    }

    /// What is to be noted of each check if the request passes without Redis.
    fn notes(&self, ticket: &Ticket, checks: &[Check<'_>]) -> Vec<ChargeNote> {
        let mut notes = vec![ChargeNote::Owed; checks.len()];
        ticket.each(|result| {
            let group_outcome = self.group_outcome(&result);
            let mut counter = PairCounter::default();
            let here = checks.iter().enumerate().filter(|(index, _)| result.has(*index));
            for (index, check) in here {
                let pair = counter.next(check.choice);
                notes[index] = match group_outcome {
                    GroupOutcome::Admitted { at, pairs } => match pair.map(|it| pairs.of(it)) {
                        None | Some(PairChoice::Neither) => ChargeNote::Charged(at),
                        Some(came) if came.is(check.choice) => ChargeNote::Charged(at),
                        Some(_) => ChargeNote::NotChosen,
                    },
                    GroupOutcome::Lost => ChargeNote::Charged(None),
                    GroupOutcome::NotRun | GroupOutcome::Refused => ChargeNote::Owed,
                    GroupOutcome::Unknown(Claim { call, request }) => {
                        let pair = pair.map(|number| self.uncertain_pair(checks, index, number));
                        let worker = self.worker;
                        ChargeNote::Uncertain(UncertainCharge { worker, call, request, pair })
                    }
                };
            }
        });
        notes
    }

    /// What may be charged in the place of a check that is one of a pair.
    fn uncertain_pair(&self, checks: &[Check<'_>], index: usize, number: usize) -> UncertainPair {
        let choice = checks[index].choice;
        let other = match choice {
            Choice::Second => &checks[index - 1],
            _ => &checks[index + 1],
        };
        let (share, cost) = other.policy.share(self.shared.nodes(), other.cost);
        let known = self.shared.local.state(other.bucket).unwrap_or_default();
        let charged = share.charge_after(known, self.shared.clock.now(), cost);
        UncertainPair { number, choice, other: other.bucket, other_until: charged.ends_at }
    }

    /// Remembers the states in case Redis fails. What it does not know of yet comes on top.
    fn note(&self, checks: &[Check<'_>], outcomes: &[CheckOutcome]) {
        let RedisShared { ledger, has_debts, .. } = &*self.shared;
        let note = |it: &Check<'_>, state, now| self.note_state(it.bucket, it.policy, state, now);
        // Of slots, the local buckets count those of this process.
        let noted = checks.iter().zip(outcomes).filter(|(check, _)| !check.policy.is_held());
        if !has_debts.load(Ordering::Relaxed) {
            return noted.for_each(|(check, outcome)| note(check, outcome.state, outcome.now));
        }
        let ledger = ledger.lock();
        for (check, outcome) in noted {
            let owed = ledger.owed(check.bucket, outcome.now);
            let state = check.policy.charge_after(outcome.state, outcome.now, owed);
            note(check, state, outcome.now);
        }
        has_debts.store(!ledger.is_empty(), Ordering::Relaxed);
    }

    fn note_state(&self, bucket: BucketId, policy: &Policy, state: State, now: Micros) {
        let RedisShared { local, order, .. } = &*self.shared;
        if order.is_newest(bucket, now) {
            local.note(bucket, policy, state, now);
        } else {
            local.note_older(bucket, policy, state, now);
        }
    }

    /// Remembers the state of a bucket of which units were taken in advance.
    pub(crate) fn note_leased(&self, bucket: BucketId, policy: &Policy, reply: &LeaseReply) {
        let LeaseReply { state, now, .. } = *reply;
        let mut owed = 0;
        if self.shared.has_debts.load(Ordering::Relaxed) {
            owed = self.shared.ledger.lock().owed(bucket, now);
        }
        self.note_state(bucket, policy, policy.charge_after(state, now, owed), now);
    }

    /// Refunds what was charged for a request that is not admitted, at once or when it becomes known.
    fn refund_charges(self: &Rc<Self>, ticket: &Ticket, asked: CheckSet<'_>) {
        ticket.each(|result| {
            let group_outcome = self.group_outcome(&result);
            if !matches!(
                group_outcome,
                GroupOutcome::Admitted { at: Some(_), .. } | GroupOutcome::Unknown(_)
            ) {
                return;
            }
            // Slots are reported as a total, never as a difference.
            self.mark_dirty(asked);
            let mut replies = result.reply.map(|reply| reply.check_replies(result.request));
            let mut counter = PairCounter::default();
            let checks = asked.checks.iter().enumerate();
            let here = checks.filter(|(index, _)| result.has(*index));
            let charges = here.filter_map(|(_, check)| {
                let check_reply = replies.as_mut().and_then(Iterator::next);
                let pair = counter.next(check.choice).map(|number| (number, check.choice));
                // One that only watches is charged if it would have admitted, which only a reply
                // tells. Of pairs everything tells that, if they are charged by themselves.
                let charged = match check_reply {
                    Some(check_reply) if check_reply.withheld => false,
                    None if check.is_bound() => false,
                    _ if pair.is_some() => true,
                    Some(check_reply) => !check_reply.would_refuse,
                    None => check.enforced,
                };
                (charged && check.spends && !check.policy.is_held()).then(|| Charged {
                    name: asked.key(check).to_vec(),
                    policy: *check.policy,
                    cost: check.cost,
                    pair,
                })
            });
            let refund = Refund { slot: result.slot, charges: charges.collect() };
            match group_outcome {
                GroupOutcome::Admitted { at: Some(at), pairs } => {
                    self.refund(at, refund.chosen(pairs));
                }
                GroupOutcome::Unknown(claim) => self.refund_if_charged(claim, refund),
                _ => {}
            }
        });
    }
}
