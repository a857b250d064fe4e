//! Deciding without Redis, as each limit's `on_error` says.
//!
//! `local` holds this node's callers to its share of the limit, on the states that were last heard
//! of: the buckets are not full again because Redis is gone. What passes is written down in the
//! [`Ledger`](super::ledger::Ledger).

use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::Shared;
use super::ledger::{Debt, Doubt, Ledger};
use crate::clock::Micros;
use crate::limit::{OnError, Policy};
use crate::store::{Check, Decision, Lasting, Names, StoreError};

/// What is written down of a check if its request passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Note {
    Owed,
    Doubted(Doubt),
    /// Nothing: Redis has charged it, or has to be taken to have done so.
    Charged,
}

/// Decides as long as the breaker is open; `None` if it has been closed in the meantime.
pub(super) fn decide_while_open(
    shared: &Shared,
    checks: &mut [Check<'_>],
    names: &Names,
) -> Option<Result<Decision, StoreError>> {
    let mut ledger = shared.ledger.lock();
    // The keeper takes this lock to pay what is owed after it has half closed the breaker: what is
    // admitted under it before that is paid.
    shared.health.is_open().then(|| decide(shared, &mut ledger, checks, names, &[]))
}

/// Decides after a call that has failed. What is not said to be noted otherwise is owed.
pub(super) fn decide_after_all(
    shared: &Shared,
    checks: &mut [Check<'_>],
    names: &Names,
    notes: &[Note],
) -> Result<Decision, StoreError> {
    let decided = decide(shared, &mut shared.ledger.lock(), checks, names, notes);
    if !shared.health.is_open() {
        shared.owing.notify_one();
    }
    decided
}

fn decide(
    shared: &Shared,
    ledger: &mut Ledger,
    checks: &mut [Check<'_>],
    names: &Names,
    notes: &[Note],
) -> Result<Decision, StoreError> {
    for check in checks.iter_mut() {
        check.refused = None;
        check.decided = check.on_error == OnError::Local;
    }
    if checks.iter().any(|check| check.enforced && check.on_error == OnError::Deny) {
        checks.iter_mut().for_each(|check| check.decided = false);
        return Err(StoreError::Unavailable);
    }
    let nodes = shared.nodes();
    let shares: SmallVec<[(Policy, u64); 8]> =
        checks.iter().map(|check| check.policy.share(nodes, check.cost)).collect();
    let local = |check: &Check<'_>| check.decided;
    let mut shared_out: SmallVec<[Check<'_>; 8]> = checks
        .iter()
        .zip(&shares)
        .filter(|(check, _)| local(check))
        .map(|(check, (policy, cost))| Check { policy, cost: *cost, ..*check })
        .collect();
    if shared_out.is_empty() {
        return Ok(Decision { now: shared.clock.now(), admitted: true, alone: true });
    }
    // From when on each bucket would be full if nobody spent here: see `Debt::since`.
    let full = |check: &Check<'_>| shared.local.look(check.bucket).unwrap_or_default().until;
    let before: SmallVec<[Micros; 8]> = checks.iter().map(full).collect();
    let decision = shared.local.decide_now(&mut shared_out);
    let decided = checks.iter_mut().filter(|check| local(check)).zip(&shared_out);
    for (check, outcome) in decided {
        (check.state, check.now, check.refused) = (outcome.state, outcome.now, outcome.refused);
        check.shared = outcome.shared;
    }
    if !decision.admitted {
        return Ok(Decision { alone: true, ..decision });
    }
    // Places are not owed: Redis is told of all that are held.
    let owes = |check: &Check<'_>| {
        local(check) && check.spends && check.refused.is_none() && !check.policy.is_held()
    };
    for (index, check) in checks.iter().enumerate().filter(|(_, check)| owes(check)) {
        let doubt = match notes.get(index).unwrap_or(&Note::Owed) {
            Note::Owed => None,
            Note::Doubted(doubt) => Some(*doubt),
            Note::Charged => continue,
        };
        let debt = Debt {
            name: names.get(check.name).to_vec(),
            policy: *check.policy,
            cost: check.cost,
            until: check.state.until,
            since: before[index].max(decision.now),
        };
        ledger.add(check.bucket, debt, doubt, decision.now);
        shared.owes.store(true, Ordering::Relaxed);
    }
    Ok(Decision { alone: true, ..decision })
}

/// Charges a cost after the fact without Redis. It is owed there, unless Redis may have charged it.
pub(super) fn owe(shared: &Shared, charge: &Lasting, owed: bool) {
    let check = charge.check();
    if check.on_error != OnError::Local && shared.health.is_open() {
        return;
    }
    let before = shared.local.look(check.bucket).unwrap_or_default().until;
    // A share may be deeper in debt than the whole ever is.
    let (share, _) = check.policy.share(shared.nodes(), check.cost);
    let policy = check.policy.beside(&share);
    let charged = shared.local.owe_one(Check { policy: &policy, ..check });
    if !owed {
        return;
    }
    let debt = Debt {
        name: charge.name().to_vec(),
        policy: *check.policy,
        cost: check.cost,
        until: charged.state.until,
        since: before.max(charged.now),
    };
    shared.ledger.lock().add(check.bucket, debt, None, charged.now);
    shared.owes.store(true, Ordering::Relaxed);
    if !shared.health.is_open() {
        shared.owing.notify_one();
    }
}
