//! From the replies of Redis to the decision on a request.

mod refused;

use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

use super::call_outcomes::RequestOutcome;
use super::call_queue::{CallStatus, CallTimes, GroupResult, Ticket};
use super::known_states::ToldState;
use super::refunds::{Charged, Claim, Refund};
use super::worker_link::WorkerLink;
use crate::clock::Micros;
use crate::limit::Policy;
use crate::limit::lease::LeaseReply;
use crate::store::redis::supervise::fallback::{self, ChargeNote};
use crate::store::redis::supervise::ledger::{UncertainCharge, UncertainPair};
use crate::store::redis::supervise::settled_charges::ReplyTimes;
use crate::store::redis::wire::pair_choices::{PairChoice, PairCounter};
use crate::store::redis::wire::reply::RequestVerdict;
use crate::store::{BucketId, Check, CheckOutcome, CheckSet, Choice, Decided, Decision};
use GroupOutcome::{Known, Unknown};
use refused::{pair_refusal, told_refusal};

/// What became of a request in one hash slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GroupOutcome {
    Known(RequestOutcome),
    /// It will become known, or not.
    Unknown(Claim),
}

/// Whether a request passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Passed {
    Yes,
    No,
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
    ) -> Decided {
        let summary = self.read(ticket, asked.checks, outcomes);
        let now = summary.now.unwrap_or_else(|| self.shared.clock.now());
        if summary.refused {
            self.refuse(ticket, times, now, asked.checks, outcomes);
            self.refund_charges(ticket, asked);
            return Ok(Decision { now, admitted: false, alone: false });
        }
        if summary.admitted {
            self.admit_without_reply(ticket, now, asked, outcomes);
            self.note(ticket, times, asked.checks, outcomes, Passed::Yes);
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
            summary.refused |= group_outcome == Known(RequestOutcome::Refused);
            summary.admitted &= matches!(group_outcome, Known(RequestOutcome::Admitted { .. }));
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
            return Known(if admitted {
                RequestOutcome::Admitted { at: Some(reply.now()), pairs }
            } else {
                RequestOutcome::Refused
            });
        }
        let CallStatus::Unknown(call) = result.status else { return Known(RequestOutcome::NotRun) };
        match self.call_outcomes.borrow().of(call, result.request) {
            Some(outcome) => Known(outcome),
            None => Unknown(Claim { call, request: result.request }),
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
            let Known(RequestOutcome::Admitted { at, pairs }) = self.group_outcome(&result) else {
                return;
            };
            let mut ledger = self.shared.ledger.lock();
            self.shared.quiet_since.disturb();
            let (mut counter, mut previous) = (PairCounter::default(), None);
            let now = if self.shared.is_cluster() { self.shared.now_in(result.slot) } else { now };
            for (check, outcome) in result.of(asked.checks, outcomes) {
                let known = self.shared.local.state(check.bucket).unwrap_or_default();
                let came = counter.next(check.choice).map(|pair| pairs.of(pair));
                let chosen = came.is_none_or(|it| it.is(check.choice));
                (outcome.now, outcome.refused, outcome.withheld) = (now, None, false);
                outcome.skipped = check.choice == Choice::Second && came == Some(PairChoice::First);
                outcome.state = check.policy.clamp(known, now);
                if chosen && check.spends && !check.policy.is_held() {
                    outcome.state = self.shared.charge_known(check, result.slot).state;
                    ledger.note_settled(check.bucket, check.cost, at);
                } else if chosen {
                    outcome.state = check.policy.charge_after(known, now, check.cost);
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
                    Known(RequestOutcome::Admitted { at, pairs }) => {
                        match pair.map(|it| pairs.of(it)) {
                            None | Some(PairChoice::Neither) => ChargeNote::Charged(at),
                            Some(came) if came.is(check.choice) => ChargeNote::Charged(at),
                            Some(_) => ChargeNote::NotChosen,
                        }
                    }
                    Known(RequestOutcome::Lost) => ChargeNote::Charged(None),
                    Known(RequestOutcome::NotRun | RequestOutcome::Refused) => ChargeNote::Owed,
                    Unknown(Claim { call, request }) => {
                        let now = self.shared.now_in(result.slot);
                        let pair = pair.map(|it| self.uncertain_pair(checks, index, it, now));
                        let worker = self.worker;
                        ChargeNote::Uncertain(UncertainCharge { worker, call, request, pair })
                    }
                };
            }
        });
        notes
    }

    /// What may be charged in the place of a check that is one of a pair.
    fn uncertain_pair(
        &self,
        checks: &[Check<'_>],
        index: usize,
        number: usize,
        now: Micros,
    ) -> UncertainPair {
        let choice = checks[index].choice;
        let other = match choice {
            Choice::Second => &checks[index - 1],
            _ => &checks[index + 1],
        };
        let (share, cost) = other.policy.share(self.shared.nodes(), other.cost);
        let known = self.shared.local.state(other.bucket).unwrap_or_default();
        let charged = share.charge_after(known, now, cost);
        UncertainPair { number, choice, other: other.bucket, other_until: charged.ends_at }
    }

    /// Remembers what the replies tell, in case Redis fails.
    fn note(
        &self,
        ticket: &Ticket,
        times: CallTimes,
        checks: &[Check<'_>],
        outcomes: &mut [CheckOutcome],
        passed: Passed,
    ) {
        ticket.each(|result| {
            if result.reply.is_none() {
                return;
            }
            for (check, outcome) in result.of(checks, outcomes) {
                // Of slots, the local buckets count those of this process.
                if check.policy.is_held() {
                    continue;
                }
                let charged = passed == Passed::Yes && check.is_charged(outcome);
                self.shared.note_state(&ToldState {
                    bucket: check.bucket,
                    policy: check.policy,
                    state: outcome.state,
                    cost: if charged { check.cost } else { 0 },
                    times: ReplyTimes { sent: times.sent, at: outcome.now },
                });
            }
        });
    }

    /// Remembers the state of a bucket of which units were taken in advance, by a call that was sent
    /// then, and that it may go unheard for `max_unheard`.
    pub(crate) fn note_leased(
        &self,
        bucket: BucketId,
        policy: &Policy,
        reply: &LeaseReply,
        sent: Instant,
        max_unheard: Duration,
    ) {
        let LeaseReply { state, granted: cost, now: at, .. } = *reply;
        let times = ReplyTimes { sent, at };
        self.shared.note_state(&ToldState { bucket, policy, state, cost, times });
        self.shared.lease_notes.note_lease(bucket, at, max_unheard);
    }

    /// Refunds what was charged for a request that is not admitted, at once or when it becomes known.
    fn refund_charges(self: &Rc<Self>, ticket: &Ticket, asked: CheckSet<'_>) {
        ticket.each(|result| {
            let group_outcome = self.group_outcome(&result);
            if !matches!(
                group_outcome,
                Known(RequestOutcome::Admitted { at: Some(_), .. }) | Unknown(_)
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
                Known(RequestOutcome::Admitted { at: Some(at), pairs }) => {
                    self.refund(at, refund.chosen(pairs));
                }
                Unknown(claim) => self.refund_if_charged(claim, refund),
                _ => {}
            }
        });
    }
}
