//! The decision on a request, and the waiting that a limit may ask for: until it passes (the strategy
//! `queue`), or until its turn has come (`leaky_bucket`).

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::checks::{Awaited, Checks};
use super::queues::{Counted, LATENESS, NoPlace, Place, Turn, Wish};
use super::turns::{AllPaced, Paced, Room};
use super::{Gateway, Visit};
use crate::clock::{self, Micros};
use crate::limit::{Mode, Policy};
use crate::respond::Fault;
use crate::store::{AnyStore, Decision, Store, StoreError};
use crate::telemetry::Outcome;

/// How often the first in a line looks for places of a `concurrency` limit. Those that this process
/// gives back are heard of at once, and others may be given back by other gateways.
const LOOK: Duration = Duration::from_millis(20);

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
        if checks.paces && self.queues.turns.is_used() {
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
        let asked = clock::recent();
        let (decision, decided) = self.decide(checks).await?;
        // What comes after this is waiting for a limit, not for its store.
        observe(visit, decision, decided);
        if decision.admitted {
            return Ok((decision, decided));
        }
        match checks.awaited(decision.now) {
            None => Ok((decision, decided)),
            Some((awaited, at)) => {
                let refusal = Refusal { decision, asked, decided, at, freed };
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
            promise: known.map(|refusal| refusal.earliest(check.policy)),
            deadline,
            max_queue: awaited.max_queue,
            gauge: &rule.waiting,
        };
        let place = match self.queues.join(&wish) {
            Ok(place) => place,
            Err(no_place) => {
                let Some(refusal) = known else {
                    return Ok(self.turn_away(checks, awaited.check, no_place).await?);
                };
                checks.put_behind(awaited.check, no_place.wait(refusal.decided));
                return Ok(refusal.told());
            }
        };
        visit.live.limit_meters[rule.index].count(Outcome::Queued);
        let _waits = visit.peer.wait();
        let in_line = self.move_up(visit, checks, awaited, &place, known);
        match in_line.await? {
            Ok(decided) => {
                let check = &checks.checks[awaited.check];
                if decided.0.admitted && check.decided {
                    place.pass((check.state, check.now), decided.1);
                }
                Ok(decided)
            }
            Err(no_place) => Ok(self.turn_away(checks, awaited.check, no_place).await?),
        }
    }

    /// From the end of a line to its front.
    async fn come_first(
        &self,
        visit: &Visit<'_>,
        policy: &Policy,
        place: &Place<'_>,
        deadline: Instant,
    ) -> Result<Result<(), NoPlace>, Stop> {
        let mut until = deadline;
        loop {
            tokio::select! {
                turn = timeout_at(until, place.first()) => match turn {
                    Ok(Turn::First) => return Ok(Ok(())),
                    Ok(Turn::TooLong(passes)) => return Ok(Err(NoPlace::TooLong(passes))),
                    Ok(Turn::Draining) => return Ok(Err(NoPlace::Draining)),
                    Err(_) => {}
                },
                () = self.outdated(visit) => return Err(Stop::Outdated),
            }
            // Those before it may only have woken up late, and what it costs is there by then.
            let passes = place.passes();
            if policy.is_held() || passes > deadline + LATENESS {
                return Ok(Err(NoPlace::TooLong(passes)));
            }
            until = Instant::now() + LATENESS;
        }
    }

    /// From the end of a line to its front, and through.
    async fn move_up(
        &self,
        visit: &Visit<'_>,
        checks: &mut Checks<'_>,
        awaited: Awaited,
        place: &Place<'_>,
        known: Option<Refusal>,
    ) -> Result<Result<(Decision, Instant), NoPlace>, Stop> {
        let deadline = visit.started + awaited.max_wait;
        let mut policy = checks.checks[awaited.check].policy;
        if let Err(no_place) = self.come_first(visit, policy, place, deadline).await? {
            return Ok(Err(no_place));
        }
        let (mut last, mut since) = (known, Some(Instant::now()));
        if let Some(at) = place.asks() {
            tokio::select! {
                () = sleep_until(at) => {}
                turn = place.freed(at, self.queues.freed_so_far()) => if turn == Turn::Draining {
                    return Ok(Err(NoPlace::Draining));
                },
                () = self.outdated(visit) => return Err(Stop::Outdated),
            }
        }
        loop {
            if let Some(refusal) = last {
                if refusal.is_final(policy, deadline) {
                    return Ok(Ok(refusal.told()));
                }
                tokio::select! {
                    () = sleep_until(refusal.next(policy, deadline)) => {}
                    turn = place.freed(refusal.earliest(policy), refusal.freed) => {
                        if turn == Turn::Draining {
                            return Ok(Ok(refusal.told()));
                        }
                    },
                    () = self.outdated(visit) => return Err(Stop::Outdated),
                }
            }
            // Since it is the first it has been there for whatever became free in this bucket: what
            // refilled while it woke up is its own. Of its other limits it knows nothing of the kind.
            let late = since.map_or(Duration::ZERO, |since| since.elapsed());
            checks.checks[awaited.check].late = late.as_micros() as u64;
            // A store that foretells refusals goes by the last look, which was before the wait.
            let (freed, asked) = (self.queues.freed_so_far(), clock::look());
            let (decision, decided) = self.decide(checks).await?;
            if decision.admitted {
                return Ok(Ok((decision, decided)));
            }
            // While it waits for another limit, what refills here is everybody's.
            since = checks.checks[awaited.check].refused.and(since.or(Some(decided)));
            let Some((awaited, at)) = checks.awaited(decision.now) else {
                return Ok(Ok((decision, decided)));
            };
            policy = checks.checks[awaited.check].policy;
            last = Some(Refusal { decision, asked, decided, at, freed });
        }
    }

    /// Resolves when another file is served than the one that a request came by. Overrides are no
    /// reason to lose a place in line: whoever waits goes by the numbers that held when it came.
    async fn outdated(&self, visit: &Visit<'_>) {
        loop {
            let changed = self.changed.notified();
            let served = self.live.borrow().shared.settings.clone();
            if !Arc::ptr_eq(&visit.live.shared.settings, &served) {
                return;
            }
            changed.await;
        }
    }

    /// Refuses a request that has not been decided, and tells what its limits say of it.
    async fn turn_away(
        &self,
        checks: &mut Checks<'_>,
        check: usize,
        why: NoPlace,
    ) -> Result<(Decision, Instant), StoreError> {
        let spends: Vec<bool> = checks.checks.iter().map(|check| check.spends).collect();
        let decision = self.store.peek(&mut checks.checks, &checks.names).await?;
        let decided = clock::look();
        for (check, spends) in checks.checks.iter_mut().zip(spends) {
            check.spends = spends;
        }
        // What is left, if anything is, is for those who wait.
        checks.put_behind(check, why.wait(decided));
        Ok((Decision { admitted: false, ..decision }, decided))
    }

    /// One decision for all checks, and when it was there.
    async fn decide(&self, checks: &mut Checks<'_>) -> Result<(Decision, Instant), StoreError> {
        let _rooms = match self.reserve(checks) {
            Ok(rooms) => rooms,
            Err((check, why)) => return self.turn_away(checks, check, why).await,
        };
        let decision = self.store.decide(&mut checks.checks, &checks.names).await?;
        // The store has looked at the clock to decide.
        Ok((decision, clock::recent()))
    }

    /// Keeps room where requests wait for their turn. `Err` names a limit that has none, whatever the
    /// store says: the turns of those who wait have passed while the process stood still.
    fn reserve(&self, checks: &Checks<'_>) -> Result<SmallVec<[Room<'_>; 1]>, (usize, NoPlace)> {
        let mut rooms = SmallVec::new();
        if !checks.paces || !self.queues.turns.is_used() {
            return Ok(rooms);
        }
        let now = clock::recent();
        for (index, check) in checks.checks.iter().enumerate() {
            let Policy::LeakyBucket(policy) = *check.policy else { continue };
            if !check.enforced || !check.spends || check.cost > policy.burst() {
                continue;
            }
            let paced = Paced { bucket: check.bucket, policy, cost: check.cost };
            let room = self.queues.turns.reserve(&paced, now);
            rooms.extend(room.map_err(|wait| (index, NoPlace::TooLong(now + wait)))?);
        }
        Ok(rooms)
    }

    /// Has an admitted request wait its turn, if one of its limits lets them go one by one. When
    /// that was, or `None` if there was nothing to wait for.
    pub(super) async fn take_turn(
        &self,
        visit: &Visit<'_>,
        checks: &Checks<'_>,
        decided: Instant,
    ) -> Option<Instant> {
        let turns = &self.queues.turns;
        let (rule, turn) = match checks.turn() {
            Some(turn) => turn,
            // Whoever finds nobody before it by the bucket's word may still find some who are late.
            None => {
                let (rule, _) = checks.paced().next().filter(|_| turns.is_used())?;
                let buckets = checks.paced().map(|(_, paced)| paced.bucket);
                turns.has(buckets, clock::look()).then_some((rule, Duration::ZERO))?
            }
        };
        let _waits = visit.peer.wait();
        let _counted = Counted::new(&rule.waiting);
        let paced: AllPaced = checks.paced().map(|(_, paced)| paced).collect();
        turns.join(decided + turn, paced).leave().await;
        Some(clock::look())
    }
}

/// The last word on a request that waits.
#[derive(Debug, Clone, Copy)]
struct Refusal {
    decision: Decision,
    /// When the store was asked, and when its answer was there: it was given in between.
    asked: Instant,
    decided: Instant,
    /// When it would pass, on the store's clock.
    at: Micros,
    /// How often places had become free before it was asked.
    freed: u64,
}

impl Refusal {
    /// When it passes at the earliest. Nobody knows when places become free.
    fn earliest(self, policy: &Policy) -> Instant {
        let wait = self.at.since(self.decision.now);
        self.asked + if policy.is_held() { Duration::ZERO } else { wait }
    }

    /// When it is to be asked again. Places are looked for.
    fn next(self, policy: &Policy, deadline: Instant) -> Instant {
        if policy.is_held() {
            return (self.decided + LOOK).min(deadline);
        }
        self.decided + self.at.since(self.decision.now)
    }

    /// Whether it cannot pass in time.
    fn is_final(self, policy: &Policy, deadline: Instant) -> bool {
        if policy.is_held() {
            return self.decided >= deadline;
        }
        self.earliest(policy) > deadline + LATENESS
    }

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

/// Counts for each limit what it said. A limit allows what passes: of a request that another has
/// refused, one that has not is not even sure to have been asked.
fn count(visit: &Visit<'_>, checks: &Checks<'_>, admitted: bool) {
    for (rule, check) in checks.rules.iter().zip(&checks.checks) {
        let outcome = match (check.refused, rule.limit.mode) {
            _ if !check.decided => Outcome::Unchecked,
            (None, Mode::Shadow) => Outcome::ShadowAllowed,
            (Some(_), Mode::Shadow) => Outcome::ShadowRefused,
            (None, Mode::Enforce) if admitted => Outcome::Allowed,
            (None, Mode::Enforce) => continue,
            (Some(_), Mode::Enforce) if admitted && rule.degrades() => Outcome::Degraded,
            (Some(_), Mode::Enforce) => Outcome::Refused,
        };
        visit.live.limit_meters[rule.index].count(outcome);
    }
}
