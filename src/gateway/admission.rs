//! The decision on a request, and the waiting that a limit may ask for: until it passes (the strategy
//! `queue`), or until its turn has come (`leaky_bucket`).

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::checks::{Awaited, Checks};
use super::queues::{Counted, NoPlace, Place, Turn, Wish};
use super::{Gateway, Visit};
use crate::clock::{self, Micros};
use crate::limit::{Mode, Retry};
use crate::store::{Decision, Store, StoreError};
use crate::telemetry::Outcome;

/// How often the first in a line looks for places of a `concurrency` limit. Those that this process
/// gives back are heard of at once, and others may be given back by other gateways.
const LOOK: Duration = Duration::from_millis(20);
/// Beyond this, what refills while a waiting request is late is lost to it. Only a machine that
/// stands still is so late.
const MOST_LATE: Duration = Duration::from_secs(1);

impl Gateway {
    /// Decides a request, and has it wait if that is how it may pass. Each limit counts what came
    /// of it, and the instant is when the decision was there.
    pub(super) async fn admit(
        &self,
        visit: &Visit<'_>,
        checks: &mut Checks<'_>,
    ) -> Result<(Decision, Instant), StoreError> {
        if checks.checks.is_empty() {
            let nothing = Decision { now: Micros::default(), admitted: true, alone: false };
            return Ok((nothing, visit.started));
        }
        let decided = self.decide_or_wait(visit, checks).await;
        count(visit, checks);
        let (decision, decided) = decided?;
        let live = visit.live;
        let seconds = if decision.alone { &live.alone_seconds } else { &live.decision_seconds };
        seconds.observe((decided - visit.started).as_secs_f64());
        Ok((decision, decided))
    }

    async fn decide_or_wait(
        &self,
        visit: &Visit<'_>,
        checks: &mut Checks<'_>,
    ) -> Result<(Decision, Instant), StoreError> {
        // Whoever waits already came first.
        if self.queues.is_used()
            && let Some(awaited) = checks.behind(|bucket| self.queues.has(bucket))
        {
            return self.wait(visit, checks, awaited, None).await;
        }
        let (decision, decided) = self.decide(checks).await?;
        if decision.admitted {
            return Ok((decision, decided));
        }
        match checks.awaited(decision.now) {
            None => Ok((decision, decided)),
            Some((awaited, at)) => {
                let promise = decided + at.since(decision.now);
                self.wait(visit, checks, awaited, Some((decision, promise))).await
            }
        }
    }

    /// Waits behind those who came before, for the instant at which the request would pass.
    async fn wait(
        &self,
        visit: &Visit<'_>,
        checks: &mut Checks<'_>,
        awaited: Awaited,
        known: Option<(Decision, Instant)>,
    ) -> Result<(Decision, Instant), StoreError> {
        let deadline = visit.started + awaited.max_wait;
        let (rule, check) = (checks.rules[awaited.check], &checks.checks[awaited.check]);
        // Nobody knows when places become free.
        let promise = known.map(|(_, at)| at).filter(|_| !check.policy.is_held());
        let wish = Wish {
            bucket: check.bucket,
            policy: check.policy,
            cost: check.cost,
            promise,
            deadline,
            max_queue: awaited.max_queue,
            gauge: &rule.waiting,
        };
        let place = match self.queues.join(&wish) {
            Ok(place) => place,
            Err(no_place) => {
                return match known {
                    Some((decision, _)) => Ok((decision, clock::recent())),
                    None => self.turn_away(checks, awaited, no_place).await,
                };
            }
        };
        visit.live.limit_meters[rule.index].count(Outcome::Queued);
        let _waits = visit.peer.wait();
        let in_line = self.move_up(checks, &place, known, deadline);
        match in_line.await? {
            Some(decided) => Ok(decided),
            None => self.turn_away(checks, awaited, NoPlace::Draining).await,
        }
    }

    /// From the end of a line to its front, and through. `None`: the time is up before that, or
    /// nobody may wait any more.
    async fn move_up(
        &self,
        checks: &mut Checks<'_>,
        place: &Place<'_>,
        known: Option<(Decision, Instant)>,
        deadline: Instant,
    ) -> Result<Option<(Decision, Instant)>, StoreError> {
        match timeout_at(deadline, place.first()).await {
            Ok(Turn::First) => {}
            Ok(Turn::Draining) | Err(_) => return Ok(None),
        }
        let mut last = known.map(|(decision, promise)| (decision, clock::recent(), promise));
        loop {
            if let Some((decision, decided, promise)) = last {
                if promise > deadline {
                    return Ok(Some((decision, decided)));
                }
                tokio::select! {
                    () = sleep_until(promise) => {}
                    turn = place.freed(promise) => if turn == Turn::Draining {
                        return Ok(Some((decision, decided)));
                    }
                }
            }
            // Since it came it has been there for whatever became free: what refilled while it
            // woke up is its own.
            let late = place.waited().min(MOST_LATE).as_micros() as u64;
            checks.checks.iter_mut().for_each(|check| check.late = late);
            // A store that foretells refusals goes by the last look, which was before the wait.
            clock::look();
            let (decision, decided) = self.decide(checks).await?;
            if decision.admitted {
                return Ok(Some((decision, decided)));
            }
            let Some((awaited, at)) = checks.awaited(decision.now) else {
                return Ok(Some((decision, decided)));
            };
            let wait = match checks.checks[awaited.check].policy.is_held() {
                true => LOOK.min(deadline.saturating_duration_since(decided)),
                false => at.since(decision.now),
            };
            if decided >= deadline {
                return Ok(Some((decision, decided)));
            }
            last = Some((decision, decided, decided + wait));
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
        let check = &mut checks.checks[awaited.check];
        if check.refused.is_none() {
            // What is left is for those who wait.
            let wait = match why {
                NoPlace::TooLong(passes) => passes.saturating_duration_since(decided),
                NoPlace::Full | NoPlace::Draining => Duration::ZERO,
            };
            check.refused = Some(Retry::At(Micros(check.now.0 + wait.as_micros() as u64)));
        }
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

/// Counts for each limit what it said.
fn count(visit: &Visit<'_>, checks: &Checks<'_>) {
    for (rule, check) in checks.rules.iter().zip(&checks.checks) {
        let outcome = match (check.refused, rule.limit.mode) {
            _ if !check.decided => Outcome::Unchecked,
            (None, Mode::Shadow) => Outcome::ShadowAllowed,
            (Some(_), Mode::Shadow) => Outcome::ShadowRefused,
            (None, Mode::Enforce) => Outcome::Allowed,
            (Some(_), Mode::Enforce) if rule.degrades() => Outcome::Degraded,
            (Some(_), Mode::Enforce) => Outcome::Refused,
        };
        visit.live.limit_meters[rule.index].count(outcome);
    }
}
