//! Deciding without Redis, as each limit's `on_error` says.
//!
//! `local` holds this node's callers to its share of the limit, on the states that Redis last reported:
//! the buckets are not full again because Redis is gone. What passes is written down in the
//! [`Ledger`].

use smallvec::SmallVec;

use super::ledger::{Debt, LateCharge, Ledger, UncertainCharge};
use crate::clock::{self, Micros};
use crate::limit::{OnError, Policy, Retry};
use crate::store::redis::RedisShared;
use crate::store::{
    BucketKey, Check, CheckOutcome, CheckSet, Choice, Decided, Decision, DeferredCheck, StoreError,
};

/// What is written down of a check if its request passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChargeNote {
    Owed,
    Uncertain(UncertainCharge),
    /// It is not owed: Redis has charged it at that instant, if it is known, or has to be taken to
    /// have done so.
    Charged(Option<Micros>),
    /// It is one of a pair, and Redis has charged the other.
    NotChosen,
}

/// Decides as long as the breaker is open; `None` if it has been closed in the meantime.
pub(crate) fn decide_while_open(
    shared: &RedisShared,
    asked: CheckSet<'_>,
    outcomes: &mut [CheckOutcome],
) -> Option<Decided> {
    let mut ledger = shared.ledger.lock();
    // The supervisor takes this lock to pay debts after it has half closed the breaker: what is
    // admitted under the lock before that is paid.
    shared.breaker.is_open().then(|| decide(shared, &mut ledger, asked, outcomes, &[]))
}

/// Decides after a call that has failed. What is not said to be noted otherwise is owed.
pub(crate) fn decide_after_all(
    shared: &RedisShared,
    asked: CheckSet<'_>,
    outcomes: &mut [CheckOutcome],
    notes: &[ChargeNote],
) -> Decided {
    let decided = decide(shared, &mut shared.ledger.lock(), asked, outcomes, notes);
    if !shared.breaker.is_open() {
        shared.debts_noted.notify_one();
    }
    decided
}

fn decide(
    shared: &RedisShared,
    ledger: &mut Ledger,
    asked: CheckSet<'_>,
    outcomes: &mut [CheckOutcome],
    notes: &[ChargeNote],
) -> Decided {
    let checks = asked.checks;
    clear_outcomes(checks, outcomes)?;
    let nodes = shared.nodes();
    let shares: SmallVec<[(Policy, u64); 8]> =
        checks.iter().map(|check| check.policy.share(nodes, check.cost)).collect();
    let not_chosen = |index: usize| notes.get(index) == Some(&ChargeNote::NotChosen);
    let share_checks: SmallVec<[Check<'_>; 8]> = checks
        .iter()
        .zip(&shares)
        .enumerate()
        .filter(|(index, (check, _))| is_local(check) && !not_chosen(*index))
        .map(|(index, (check, (policy, cost)))| {
            let choice = settled_choice(check.choice, index, not_chosen);
            Check { policy, cost: *cost, choice, ..*check }
        })
        .collect();
    if share_checks.is_empty() {
        return Ok(Decision { now: shared.clock.now(), admitted: true, alone: true });
    }
    // Before any bucket is charged, so that no reply is noted over it: see `known_states`.
    shared.quiet_since.disturb();
    for check in checks.iter().filter(|check| is_local(check)) {
        shared.hold_to_heard(check, || shared.now_for(asked, check));
    }
    // From when on each bucket would be full without these requests: see `Debt::since`.
    let full = |check: &Check<'_>| shared.local.state(check.bucket).unwrap_or_default().ends_at;
    let before: SmallVec<[Micros; 8]> = checks.iter().map(full).collect();
    let (decision, share_outcomes) = decide_shares(shared, asked, &share_checks);
    let mut share_outcomes = share_outcomes.into_iter();
    for (index, (check, outcome)) in checks.iter().zip(&mut *outcomes).enumerate() {
        if !outcome.decided {
            continue;
        }
        if not_chosen(index) {
            let known = shared.local.state(check.bucket).unwrap_or_default();
            let now = shared.now_for(asked, check);
            (outcome.state, outcome.now) = (check.policy.clamp(known, now), now);
            let refused = Retry::At(now);
            outcome.refused = (check.choice == Choice::First).then_some(refused);
        } else if let Some(of_share) = share_outcomes.next() {
            *outcome = of_share;
        }
    }
    if decision.admitted {
        for (index, (check, outcome)) in checks.iter().zip(outcomes).enumerate() {
            // Slots are no debt: Redis gets a report of all that are held.
            if check.is_charged(outcome) && !check.policy.is_held() {
                let note = notes.get(index).unwrap_or(&ChargeNote::Owed);
                let passed =
                    PassedCheck { check, key: asked.key(check), outcome, before: before[index] };
                note_passed(shared, ledger, &passed, note);
            }
        }
    }
    Ok(Decision { alone: true, ..decision })
}

fn is_local(check: &Check<'_>) -> bool {
    check.on_error == OnError::Local
}

/// # Errors
/// If a limit of the request denies.
fn clear_outcomes(checks: &[Check<'_>], outcomes: &mut [CheckOutcome]) -> Result<(), StoreError> {
    let denied = checks.iter().any(|check| check.enforced && check.on_error == OnError::Deny);
    for (check, outcome) in checks.iter().zip(outcomes) {
        (outcome.refused, outcome.withheld) = (None, false);
        outcome.decided = is_local(check) && !denied;
        // If it is not decided, the first stands for the pair.
        outcome.skipped = check.choice == Choice::Second;
    }
    if denied { Err(StoreError::Unavailable) } else { Ok(()) }
}

/// Decides by the shares alone, on a cluster each bucket by the clock of its own master.
fn decide_shares(
    shared: &RedisShared,
    asked: CheckSet<'_>,
    shares: &[Check<'_>],
) -> (Decision, SmallVec<[CheckOutcome; 8]>) {
    let mut outcomes: SmallVec<[CheckOutcome; 8]> =
        shares.iter().map(|_| CheckOutcome::default()).collect();
    if !shared.is_cluster() {
        let decision = shared.local.decide_now(shares, &mut outcomes);
        return (decision, outcomes);
    }
    let times: SmallVec<[Micros; 8]> =
        shares.iter().map(|check| shared.now_for(asked, check)).collect();
    let decision = shared.local.decide_at(shares, &times, &mut outcomes);
    // Waits are told from here on: by the clock of one that refuses, if there is one.
    let refuses = |(check, outcome): &(&Check<'_>, &CheckOutcome)| check.refuses(outcome);
    let refusing = shares.iter().zip(&outcomes).find(refuses);
    let now = refusing.map_or(outcomes[0].now, |(_, outcome)| outcome.now);
    (Decision { now, ..decision }, outcomes)
}

/// A check of a request that has passed here.
struct PassedCheck<'a> {
    check: &'a Check<'a>,
    key: BucketKey<'a>,
    outcome: &'a CheckOutcome,
    /// From when on its bucket would be full without this request.
    before: Micros,
}

/// Writes down what is owed for it, unless Redis has charged it.
fn note_passed(
    shared: &RedisShared,
    ledger: &mut Ledger,
    passed: &PassedCheck<'_>,
    note: &ChargeNote,
) {
    let PassedCheck { check, key, outcome, before } = *passed;
    let (now, until) = charged_instants(shared, outcome, || shared.now_of(&key.text()));
    let uncertain = match note {
        ChargeNote::Owed | ChargeNote::NotChosen => None,
        ChargeNote::Uncertain(charge) => Some(*charge),
        ChargeNote::Charged(at) => {
            let late = LateCharge { cost: check.cost, until, at: *at };
            return ledger.note_late_charge(check.bucket, late, now, clock::now());
        }
    };
    let debt = Debt {
        name: key.to_vec(),
        policy: *check.policy,
        cost: check.cost,
        until,
        since: before.max(now),
    };
    ledger.add(check.bucket, debt, uncertain, now);
}

/// When a bucket was charged here, and from when on it is full again, by the clock of its master,
/// which shows `now`. One that keys of several masters share is judged by another clock.
fn charged_instants(
    shared: &RedisShared,
    outcome: &CheckOutcome,
    now: impl FnOnce() -> Micros,
) -> (Micros, Micros) {
    if !outcome.shared || !shared.is_cluster() {
        return (outcome.now, outcome.state.ends_at);
    }
    let (now, lasts) = (now(), outcome.state.ends_at.since(outcome.now));
    (now, Micros(now.0 + lasts.as_micros() as u64))
}

/// How a check is decided here once Redis may have made its pair's choice: for the request is
/// charged to one bucket, whatever this node would have chosen.
fn settled_choice(choice: Choice, index: usize, not_chosen: impl Fn(usize) -> bool) -> Choice {
    match choice {
        Choice::First if not_chosen(index + 1) => Choice::Alone,
        Choice::Second if not_chosen(index - 1) => Choice::Alone,
        choice => choice,
    }
}

/// Charges a cost after the fact without Redis. It is owed there, unless Redis may have charged it.
pub(crate) fn charge_after(shared: &RedisShared, charge: &DeferredCheck, owed: bool) {
    let check = charge.check();
    if check.on_error != OnError::Local && shared.breaker.is_open() {
        return;
    }
    let mut ledger = shared.ledger.lock();
    shared.quiet_since.disturb();
    let before = shared.local.state(check.bucket).unwrap_or_default().ends_at;
    let (share, dearer) = check.policy.share_after(shared.nodes(), check.cost);
    let share_check = Check { policy: &share, cost: dearer, ..check };
    let charged = shared.charge_known(&share_check, shared.slot_of(charge.key()));
    let (now, until) = charged_instants(shared, &charged, || shared.now_of(charge.key()));
    if !owed {
        return ledger.note_settled(check.bucket, check.cost, None);
    }
    let debt = Debt {
        name: charge.key().to_vec(),
        policy: *check.policy,
        cost: check.cost,
        until,
        since: before.max(now),
    };
    ledger.add(check.bucket, debt, None, now);
    drop(ledger);
    if !shared.breaker.is_open() {
        shared.debts_noted.notify_one();
    }
}
