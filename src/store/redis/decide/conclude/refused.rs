//! Which checks of a request that Redis has refused have done so, and until when.

use super::GroupOutcome::Known;
use super::Passed;
use crate::clock::Micros;
use crate::limit::{Retry, Verdict};
use crate::store::redis::decide::call_outcomes::RequestOutcome;
use crate::store::redis::decide::call_queue::{CallTimes, Ticket};
use crate::store::redis::decide::known_refusals::{Promise, Refusal};
use crate::store::redis::decide::worker_link::WorkerLink;
use crate::store::redis::wire::check_args::CheckReply;
use crate::store::{Check, CheckOutcome, Choice};

/// The wait in a refusal if none is known.
const DEFAULT_RETRY_US: u64 = 1_000_000;

impl WorkerLink {
    /// Finishes the checks of a request that a hash slot has refused, and remembers all of them.
    pub(super) fn refuse(
        &self,
        ticket: &Ticket,
        times: CallTimes,
        now: Micros,
        checks: &[Check<'_>],
        outcomes: &mut [CheckOutcome],
    ) {
        let mut found = self.mark_refusing(ticket, times, checks, outcomes);
        ticket.each(|result| {
            let group_outcome = self.group_outcome(&result);
            let here = result.of(checks, outcomes);
            match (result.reply, group_outcome) {
                // What is left once the charge has been refunded.
                (Some(reply), Known(RequestOutcome::Admitted { .. })) => {
                    for ((check, outcome), check_reply) in
                        here.zip(reply.check_replies(result.request))
                    {
                        let charged = check.spends && check_reply.is_chosen();
                        if charged && !check.policy.is_held() {
                            let (Check { policy, cost, .. }, now) = (check, outcome.now);
                            outcome.state = policy.refund(check_reply.state, now, *cost, now);
                        }
                    }
                }
                (Some(_), _) => {}
                // There is no reply: by the last known state.
                (None, group_outcome) => {
                    let mut previous = None;
                    let is_cluster = self.shared.is_cluster();
                    let now = if is_cluster { self.shared.now_in(result.slot) } else { now };
                    for (check, outcome) in here {
                        let known = self.shared.local.state(check.bucket).unwrap_or_default();
                        (outcome.state, outcome.now) = (check.policy.clamp(known, now), now);
                        (outcome.refused, outcome.withheld) = (None, false);
                        outcome.skipped = check.choice.is_skipped(previous);
                        let verdict = check.policy.evaluate(outcome.state, now, check.cost);
                        if let (Known(RequestOutcome::Refused), Verdict::Refuse(retry), false) =
                            (group_outcome, verdict, outcome.skipped)
                        {
                            outcome.refused = Some(check.choice.earlier(previous, retry));
                            found |= check.refuses(outcome);
                        }
                        previous = outcome.refused;
                    }
                }
            }
        });
        if !found {
            self.mark_any_refusing(ticket, now, checks, outcomes);
        }
        self.note(ticket, times, checks, outcomes, Passed::No);
    }

    /// Redis has refused, and by the states known here no limit does: one has to be named.
    fn mark_any_refusing(
        &self,
        ticket: &Ticket,
        now: Micros,
        checks: &[Check<'_>],
        outcomes: &mut [CheckOutcome],
    ) {
        let mut found = false;
        ticket.each(|result| {
            let refused = self.group_outcome(&result) == Known(RequestOutcome::Refused);
            let refusing = |(index, check): &(usize, &Check<'_>)| {
                result.has(*index) && check.enforced && check.choice != Choice::First
            };
            let Some((index, check)) = checks.iter().enumerate().find(refusing) else { return };
            if !refused || std::mem::replace(&mut found, true) {
                return;
            }
            let retry = Retry::At(Micros(now.0 + DEFAULT_RETRY_US));
            if check.choice == Choice::Second {
                outcomes[index - 1].refused.get_or_insert(retry);
            }
            outcomes[index].refused = Some(retry);
            outcomes[index].skipped = false;
        });
    }

    /// Marks the checks that have refused, and remembers their buckets. Redis sends states and no
    /// verdicts: these follow from the states by the same functions.
    fn mark_refusing(
        &self,
        ticket: &Ticket,
        times: CallTimes,
        checks: &[Check<'_>],
        outcomes: &mut [CheckOutcome],
    ) -> bool {
        let mut refusals = self.refusals.borrow_mut();
        let mut found = false;
        ticket.each(|result| {
            let Some(reply) = result.reply.filter(|it| !it.admitted(result.request)) else {
                return;
            };
            let mut replies = reply.check_replies(result.request);
            let all = checks.iter().zip(&mut *outcomes).enumerate();
            for (index, (check, outcome)) in all.filter(|(index, _)| result.has(*index)) {
                let Some(check_reply) = replies.next() else { continue };
                if !check.enforced {
                    continue;
                }
                // Checks on one bucket count as their sum.
                let same = checks[..index].iter().filter(|other| other.bucket == check.bucket);
                let more = same.fold(0, |sum: u64, other| sum.saturating_add(other.cost));
                // Of pairs the reply tells who has refused, and it has been read.
                let may = check.choice == Choice::Alone || check_reply.would_refuse;
                let retry = may.then(|| refusal(check, outcome, more, check_reply)).flatten();
                let Some(retry) = retry else { continue };
                if check.choice == Choice::Alone {
                    outcome.refused = Some(retry);
                }
                found |= check.choice != Choice::First;
                if let Retry::At(at) = retry
                    && !check.policy.is_held()
                {
                    let CallTimes { sent, received } = times;
                    let (state, now) = (outcome.state, outcome.now);
                    let cost = check.cost.saturating_add(more);
                    let promise = Promise { at, cost, policy: *check.policy };
                    let promise = (!check.policy.is_predictable()).then_some(promise);
                    let refusal = Refusal { state, now, sent, received, promise };
                    refusals.insert(check.bucket, refusal);
                }
            }
        });
        found
    }
}

/// Until when a check refuses that the reply says refuses, after what the one before it has said.
pub(super) fn told_refusal(
    check: &Check<'_>,
    outcome: &CheckOutcome,
    previous: Option<Retry>,
    check_reply: CheckReply,
) -> Option<Retry> {
    let retry = refusal(check, outcome, 0, check_reply);
    match check.choice {
        Choice::Alone => retry,
        // That a pair was refused decides which of it was charged.
        _ => Some(check.choice.earlier(previous, retry.unwrap_or(Retry::At(outcome.now)))),
    }
}

/// The same of one of a pair, by what is known here.
pub(super) fn pair_refusal(
    check: &Check<'_>,
    outcome: &CheckOutcome,
    previous: Option<Retry>,
) -> Retry {
    let retry = match check.policy.evaluate(outcome.state, outcome.now, check.cost) {
        Verdict::Admit(_) => Retry::At(outcome.now),
        Verdict::Refuse(retry) => retry,
    };
    check.choice.earlier(previous, retry)
}

/// Whether and until when a check refuses its cost and `more`, by what Redis replied.
fn refusal(
    check: &Check<'_>,
    outcome: &CheckOutcome,
    more: u64,
    check_reply: CheckReply,
) -> Option<Retry> {
    if let Some(at) = check_reply.passes_at {
        return Some(Retry::At(at));
    }
    let cost = check.cost.saturating_add(more);
    match check.policy.evaluate(outcome.state, outcome.now, cost) {
        Verdict::Admit(_) => None,
        Verdict::Refuse(retry) => Some(retry),
    }
}
