//! Deciding without Redis, as each limit's `on_error` says.
//!
//! `local` holds this node's callers to its share of the limit, on the states that were last heard
//! of: the buckets are not full again because Redis is gone. What passes is written down in the
//! [`Ledger`](super::ledger::Ledger).

use std::sync::atomic::Ordering;
use std::time::Duration;

use smallvec::SmallVec;

use super::Shared;
use super::ledger::{Debt, Doubt, Ledger};
use super::queue::{Done, Fate};
use crate::clock;
use crate::limit::{OnError, Policy};
use crate::store::{Check, Decision, Names, StoreError};

/// Decides as long as the breaker is open; `None` if it has been closed in the meantime.
pub(super) fn decide_while_open(
    shared: &Shared,
    checks: &mut [Check<'_>],
    names: &Names,
) -> Option<Result<Decision, StoreError>> {
    let mut ledger = shared.ledger.lock();
    // The keeper takes this lock to pay what is owed after it has closed the breaker: what is
    // admitted under it before that is paid.
    shared
        .health
        .is_open()
        .then(|| decide(shared, &mut ledger, checks, names, Note::Owed, Duration::ZERO))
}

/// Decides after a call that has failed.
pub(super) fn decide_after_all(
    shared: &Shared,
    checks: &mut [Check<'_>],
    names: &Names,
    (worker, done): (usize, Done),
) -> Result<Decision, StoreError> {
    // Redis may have refused it some time ago, and what has refilled here since does not change
    // that: it is not to pass uncharged.
    let since_sent = clock::look().saturating_duration_since(done.sent);
    let (note, ago) = match done.fate {
        Fate::NotRun => (Note::Owed, Duration::ZERO),
        Fate::Unknown(call) => (Note::Doubted(Doubt { worker, call }), since_sent),
        Fate::Run => (Note::Charged, since_sent),
    };
    let decided = decide(shared, &mut shared.ledger.lock(), checks, names, note, ago);
    if note == Note::Owed && !shared.health.is_open() {
        shared.owing.notify_one();
    }
    decided
}

/// What is written down of a request that passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Note {
    Owed,
    Doubted(Doubt),
    /// Nothing: Redis has charged it.
    Charged,
}

fn decide(
    shared: &Shared,
    ledger: &mut Ledger,
    checks: &mut [Check<'_>],
    names: &Names,
    note: Note,
    ago: Duration,
) -> Result<Decision, StoreError> {
    for check in checks.iter_mut() {
        check.refused = None;
        check.decided = check.on_error == OnError::Local;
    }
    if checks.iter().any(|check| check.on_error == OnError::Deny) {
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
    let decision = shared.local.decide_ago(&mut shared_out, ago);
    let decided = checks.iter_mut().filter(|check| local(check)).zip(&shared_out);
    for (check, outcome) in decided {
        (check.state, check.now, check.refused) = (outcome.state, outcome.now, outcome.refused);
    }
    let doubt = match note {
        Note::Owed => None,
        Note::Doubted(doubt) => Some(doubt),
        Note::Charged => return Ok(Decision { alone: true, ..decision }),
    };
    if decision.admitted {
        for check in checks.iter().filter(|check| local(check)) {
            let debt = Debt {
                name: names.get(check.name).to_vec(),
                policy: *check.policy,
                cost: check.cost,
                until: check.state.until,
            };
            ledger.add(check.bucket, debt, doubt, decision.now);
        }
        shared.owes.store(true, Ordering::Relaxed);
    }
    Ok(Decision { alone: true, ..decision })
}
