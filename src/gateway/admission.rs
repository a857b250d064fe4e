//! The decision on a request, and the waiting that a limit may ask for: until it passes (the strategy
//! `queue`), or until its turn has come (`leaky_bucket`).

use std::rc::Rc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::checks::{Awaited, Checks};
use super::queues::{Counted, NoPlace, Place, Turn, Wish};
use super::{Gateway, Visit};
use crate::clock::{self, Micros};
use crate::limit::Mode;
use crate::respond::Fault;
use crate::store::{AnyStore, Decision, Store, StoreError};
use crate::telemetry::Outcome;

/// How often the first in a line looks for places of a `concurrency` limit. Those that this process
/// gives back are heard of at once, and others may be given back by other gateways.
const LOOK: Duration = Duration::from_millis(20);
/// Beyond this, what refills while a waiting request is late is lost to it. Only a machine that
/// stands still is so late.
const MOST_LATE: Duration = Duration::from_secs(1);

/// Why a request gets no further.
#[derive(Debug)]
pub(super) enum Stop {
    Fault(Fault),
    /// Another configuration is served by now: the request, which has only waited, is asked anew.
    Outdated,
}

impl<F: Into<Fault>> From<F> for Stop {
    fn from(fault: F) -> Self {
        Stop::Fault(fault.into())
    }
}

impl Gateway {
    /// Decides a request where neither the store nor a limit has it wait; `None` elsewhere.
    pub(super) fn admit_at_once(
        &self,
        visit: &Visit<'_>,
        checks: &mut Checks<'_>,
    ) -> Option<(Decision, Instant)> {
        let AnyStore::Memory(store) = &*self.store else { return None };
        if checks.queues || checks.checks.is_empty() || !checks.unkeyed.is_empty() {
            return None;
        }
        let decision = store.decide_now(&mut checks.checks);
        // The store has looked at the clock to decide.
        let decided = clock::recent();
        observe(visit, decision, decided);
        count(visit, checks, decision.admitted);
        Some((decision, decided))
    }

    /// Decides a request, and has it wait if that is how it may pass. Each limit counts what came
    /// of it, and the instant is when the decision was there.
    pub(super) async fn admit(
        &self,
        visit: &Visit<'_>,
        checks: &mut Checks<'_>,
    ) -> Result<(Decision, Instant), Stop> {
        for rule in &checks.unkeyed {
            let shadow = rule.limit.mode == Mode::Shadow;
            let outcome = if shadow { Outcome::ShadowRefused } else { Outcome::Refused };
            visit.live.limit_meters[rule.index].count(outcome);
        }
        if checks.checks.is_empty() {
            let nothing = Decision { now: Micros::default(), admitted: true, alone: false };
            return Ok((nothing, visit.started));
        }
        let decided = self.decide_or_wait(visit, checks).await;
        if !matches!(decided, Err(Stop::Outdated)) {
            count(visit, checks, decided.as_ref().is_ok_and(|(decision, _)| decision.admitted));
        }
        decided
    }

    async fn decide_or_wait(
        &self,
        visit: &Visit<'_>,
        checks: &mut Checks<'_>,
    ) -> Result<(Decision, Instant), Stop> {
        // Whoever waits already came first.
        if self.queues.is_used()
            && let Some(awaited) = checks.behind(|bucket| self.queues.has(bucket))
        {
            return self.wait(visit, checks, awaited, None).await;
        }
        let freed = self.queues.freed_so_far();
        let (decision, decided) = self.decide(checks).await?;
        // What comes after this is waiting for a limit, not for its store.
        observe(visit, decision, decided);
        if decision.admitted {
            return Ok((decision, decided));
        }
        match checks.awaited(decision.now) {
            None => Ok((decision, decided)),
            Some((awaited, at)) => {
                let next = decided + wait_for(checks, awaited, at.since(decision.now));
                let refusal = Refusal { decision, decided, next, freed };
                self.wait(visit, checks, awaited, Some(refusal)).await
            }
        }
    }

    /// Waits behind those who came before, for the instant at which the request would pass.
    async fn wait(
        &self,
        visit: &Visit<'_>,
        checks: &mut Checks<'_>,
        awaited: Awaited,
        known: Option<Refusal>,
    ) -> Result<(Decision, Instant), Stop> {
        let deadline = visit.started + awaited.max_wait;
        let (rule, check) = (checks.rules[awaited.check], &checks.checks[awaited.check]);
        let wish = Wish {
            bucket: check.bucket,
            policy: check.policy,
            cost: check.cost,
            promise: known.map(|refusal| refusal.next),
            deadline,
            max_queue: awaited.max_queue,
            gauge: &rule.waiting,
        };
        let place = match self.queues.join(&wish) {
            Ok(place) => place,
            Err(no_place) => {
                let Some(refusal) = known else {
                    return Ok(self.turn_away(checks, awaited, no_place).await?);
                };
                checks.put_behind(awaited, no_place.wait(refusal.decided));
                return Ok(refusal.told());
            }
        };
        visit.live.limit_meters[rule.index].count(Outcome::Queued);
        let _waits = visit.peer.wait();
        let in_line = self.move_up(visit, checks, awaited, &place, known);
        match in_line.await? {
            Some(decided) => Ok(decided),
            None => Ok(self.turn_away(checks, awaited, NoPlace::Late).await?),
        }
    }

    /// From the end of a line to its front, and through. `None`: the time is up before that, or
    /// nobody may wait any more.
    async fn move_up(
        &self,
        visit: &Visit<'_>,
        checks: &mut Checks<'_>,
        awaited: Awaited,
        place: &Place<'_>,
        known: Option<Refusal>,
    ) -> Result<Option<(Decision, Instant)>, Stop> {
        let deadline = visit.started + awaited.max_wait;
        tokio::select! {
            turn = timeout_at(deadline, place.first()) => match turn {
                Ok(Turn::First) => {}
                Ok(Turn::Draining) | Err(_) => return Ok(None),
            },
            () = self.outdated(visit) => return Err(Stop::Outdated),
        }
        let (mut last, mut since) = (known, Some(place.joined()));
        loop {
            if let Some(refusal) = last {
                if refusal.next > deadline {
                    return Ok(Some(refusal.told()));
                }
                tokio::select! {
                    () = sleep_until(refusal.next) => {}
                    turn = place.freed(refusal.next, refusal.freed) => if turn == Turn::Draining {
                        return Ok(Some(refusal.told()));
                    },
                    () = self.outdated(visit) => return Err(Stop::Outdated),
                }
            }
            // Since it came it has been there for whatever became free in this bucket: what refilled
            // while it woke up is its own. Of its other limits it knows nothing of the kind.
            let late = since.map_or(Duration::ZERO, |since| since.elapsed().min(MOST_LATE));
            checks.checks[awaited.check].late = late.as_micros() as u64;
            // A store that foretells refusals goes by the last look, which was before the wait.
            let freed = self.queues.freed_so_far();
            if clock::look() >= deadline
                && let Some(refusal) = last
            {
                return Ok(Some(refusal.told()));
            }
            let (decision, decided) = self.decide(checks).await?;
            if decision.admitted {
                return Ok(Some((decision, decided)));
            }
            // While it waits for another limit, what refills here is everybody's.
            since = checks.checks[awaited.check].refused.and(since.or(Some(decided)));
            let Some((awaited, at)) = checks.awaited(decision.now) else {
                return Ok(Some((decision, decided)));
            };
            let next = decided + wait_for(checks, awaited, at.since(decision.now));
            last = Some(Refusal { decision, decided, next, freed });
        }
    }

    /// Resolves when another configuration is served than the one that a request came by.
    async fn outdated(&self, visit: &Visit<'_>) {
        let changed = self.changed.notified();
        if Rc::ptr_eq(visit.live, &self.live.borrow()) {
            changed.await;
        }
    }

    /// Refuses a request that has not been decided, and tells what its limits say of it.
    async fn turn_away(
        &self,
        checks: &mut Checks<'_>,
        awaited: Awaited,
        why: NoPlace,
    ) -> Result<(Decision, Instant), StoreError> {
        let spends: Vec<bool> = checks.checks.iter().map(|check| check.spends).collect();
        let decision = self.store.peek(&mut checks.checks, &checks.names).await?;
        let decided = clock::look();
        for (check, spends) in checks.checks.iter_mut().zip(spends) {
            check.spends = spends;
        }
        // What is left, if anything is, is for those who wait.
        checks.put_behind(awaited, why.wait(decided));
        Ok((Decision { admitted: false, ..decision }, decided))
    }

    /// One decision for all checks, and when it was there.
    async fn decide(&self, checks: &mut Checks<'_>) -> Result<(Decision, Instant), StoreError> {
        let decision = self.store.decide(&mut checks.checks, &checks.names).await?;
        // The store has looked at the clock to decide.
        Ok((decision, clock::recent()))
    }

    /// Has an admitted request wait its turn, if one of its limits lets them go one by one. When
    /// that was, or `None` if there was nothing to wait for.
    pub(super) async fn take_turn(
        &self,
        visit: &Visit<'_>,
        checks: &Checks<'_>,
    ) -> Option<Instant> {
        let (rule, turn) = checks.turn()?;
        let _waits = visit.peer.wait();
        let _counted = Counted::new(&rule.waiting);
        sleep(turn).await;
        Some(clock::look())
    }
}

/// How long to wait before a limit is asked again that would pass after `promised`. Nobody knows when
/// places become free, so they are looked for.
fn wait_for(checks: &Checks<'_>, awaited: Awaited, promised: Duration) -> Duration {
    if checks.checks[awaited.check].policy.is_held() { LOOK } else { promised }
}

/// The last word on a request that waits.
#[derive(Debug, Clone, Copy)]
struct Refusal {
    decision: Decision,
    decided: Instant,
    /// When it is to be asked again.
    next: Instant,
    /// How often places had become free before it was asked.
    freed: u64,
}

impl Refusal {
    fn told(self) -> (Decision, Instant) {
        (self.decision, self.decided)
    }
}

/// How long it took to decide.
fn observe(visit: &Visit<'_>, decision: Decision, decided: Instant) {
    let live = visit.live;
    let seconds = if decision.alone { &live.alone_seconds } else { &live.decision_seconds };
    seconds.observe((decided - visit.started).as_secs_f64());
}

/// Counts for each limit what it said.
fn count(visit: &Visit<'_>, checks: &Checks<'_>, admitted: bool) {
    for (rule, check) in checks.rules.iter().zip(&checks.checks) {
        let outcome = match (check.refused, rule.limit.mode) {
            _ if !check.decided => Outcome::Unchecked,
            (None, Mode::Shadow) => Outcome::ShadowAllowed,
            (Some(_), Mode::Shadow) => Outcome::ShadowRefused,
            (None, Mode::Enforce) => Outcome::Allowed,
            (Some(_), Mode::Enforce) if admitted && rule.degrades() => Outcome::Degraded,
            (Some(_), Mode::Enforce) => Outcome::Refused,
        };
        visit.live.limit_meters[rule.index].count(outcome);
    }
}
