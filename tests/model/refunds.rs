//! A charge that is refunded, however late, never leaves more than no charge at all.

use proptest::prelude::*;
use weir::clock::Micros;
use weir::limit::{Policy, Report, State};

use crate::decider::{Ask, CheckMode, Decider, Engine, on_every_engine};
use crate::lua::Redis;
use crate::map_store::MapStore;
use crate::strategies::{cases, gap, policy, refill_bucket, share, span, start, steady, timed};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    /// A share of the limit's span in 2^-16.
    pub(crate) gap: u64,
    /// A share of the quota in 2^-16.
    pub(crate) cost: u64,
    /// After how many further steps the charge is given back, if ever.
    pub(crate) given_back: Option<usize>,
}

impl Step {
    pub(crate) fn after(&self, policy: &Policy, last: Micros) -> Micros {
        Micros(last.0 + share(self.gap, span(policy)))
    }
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let gap = gap(2, [(3, 12), (3, 15), (1, 17)]);
    let cost = prop_oneof![3 => 0..1_u64 << 14, 1 => 0..=1_u64 << 16];
    let given_back = prop::option::of(0..6_usize);
    let step =
        (gap, cost, given_back).prop_map(|(gap, cost, given_back)| Step { gap, cost, given_back });
    prop::collection::vec(step, 1..30)
}

/// Whether the first has no more to give than the second, now or later.
fn no_more(one: &Report, other: &Report) -> bool {
    one.remaining <= other.remaining && one.full_at >= other.full_at
}

/// In one bucket some charges are given back, in the other they were never made. What else is
/// charged in the first is charged in the second too.
fn a_charge_and_its_return_never_leave_more_than_no_charge<E: Engine>(engine: &E) {
    proptest!(cases(E::CASES), |(
        policy in steady(), start in start(), steps in steps(),
    )| {
        let mut decider = engine.fresh();
        let with = |cost| Ask { policy: &policy, key: 0, cost };
        let without = |cost| Ask { policy: &policy, key: 1, cost };
        let mut due: Vec<(usize, u64, Micros)> = Vec::new();
        let steps = timed(steps, start, |it, now| it.after(&policy, now));
        for (number, (now, step)) in steps.enumerate() {
            let cost = share(step.cost, policy.quota()).max(1);
            if decider.decide(now, &[with(cost)]).admitted {
                match step.given_back {
                    Some(later) => due.push((number + later, cost, now)),
                    None => {
                        let passes = decider.decide(now, &[without(cost)]).admitted;
                        prop_assert!(passes, "what passes with less passes with more");
                    }
                }
            }
            for (_, cost, charged_at) in due.extract_if(.., |(at, ..)| *at == number) {
                decider.refund(now, &with(cost), charged_at);
            }
            let seen = decider.decide_as(now, &[with(0), without(0)].map(peek));
            prop_assert!(no_more(&seen.answers[0].report, &seen.answers[1].report));
        }
    });
}

fn peek(ask: Ask<'_>) -> (Ask<'_>, CheckMode) {
    (ask, CheckMode { spends: false, ..CheckMode::default() })
}

fn a_charge_that_is_given_back_at_once_was_never_made<E: Engine>(engine: &E) {
    proptest!(cases(E::CASES), |(
        policy in policy(), start in start(), before in 0..=1_u64 << 16, cost in 0..=1_u64 << 16,
    )| {
        let mut decider = engine.fresh();
        let ask = |cost| Ask { policy: &policy, key: 0, cost };
        decider.charge_after(start, &ask(share(before, policy.quota())));
        let before = decider.ask(start, &policy, 0);
        let cost = share(cost, policy.quota()).max(1);
        if decider.decide(start, &[ask(cost)]).admitted {
            decider.refund(start, &ask(cost), start);
            let after = decider.ask(start, &policy, 0);
            prop_assert_eq!(after, before);
        }
    });
}

/// Between two refills of a bucket that is in use: charges that are refunded, in whatever order,
/// among others that are not, were never made, and the refills come when they would have come.
fn refunds_between_two_refills_leave_what_no_charges_would<E: Engine>(engine: &E) {
    let step = (0..1_u64 << 16, 0..=1_u64 << 14, prop::option::of(0..6_usize));
    proptest!(cases(E::CASES), |(
        policy in refill_bucket(), start in start(), first in 0..1_u64 << 14,
        steps in prop::collection::vec(step, 1..12),
    )| {
        let Policy::RefillBucket(it) = policy else { panic!("no refills") };
        let mut decider = engine.fresh();
        let ask = |key, cost| Ask { policy: &policy, key, cost };
        let first = share(first, policy.quota()).max(1);
        [0, 1].into_iter().for_each(|key| decider.charge_after(start, &ask(key, first)));
        let mut instants: Vec<u64> = steps.iter().map(|(part, ..)| *part).collect();
        instants.sort_unstable();
        let (mut due, mut now) = (Vec::new(), start);
        for (number, (part, (_, cost, given_back))) in instants.iter().zip(&steps).enumerate() {
            now = Micros(start.0 + share(*part, it.every_us()));
            let cost = share(*cost, policy.quota()).max(1);
            if decider.decide(now, &[ask(0, cost)]).admitted {
                match given_back {
                    Some(later) => due.push((number + later, cost, now)),
                    None => decider.charge_after(now, &ask(1, cost)),
                }
            }
            for (_, cost, charged_at) in due.extract_if(.., |(at, ..)| *at == number) {
                decider.refund(now, &ask(0, cost), charged_at);
            }
        }
        for (_, cost, charged_at) in due {
            decider.refund(now, &ask(0, cost), charged_at);
        }
        let seen = decider.decide_as(now, &[ask(0, 0), ask(1, 0)].map(peek));
        prop_assert_eq!(seen.answers[0].state, seen.answers[1].state);
    });
}

/// However late, a refund withholds no more than what may have been refilled since the charge, and
/// it puts off no refill.
fn a_refund_withholds_only_what_was_refilled_since<E: Engine>(engine: &E) {
    proptest!(cases(E::CASES), |(
        policy in refill_bucket(), start in start(), steps in steps(),
    )| {
        let Policy::RefillBucket(it) = policy else { panic!("no refills") };
        let mut decider = engine.fresh();
        let ask = |cost| Ask { policy: &policy, key: 0, cost };
        let mut due: Vec<(usize, u64, Micros)> = Vec::new();
        let steps = timed(steps, start, |it, now| it.after(&policy, now));
        for (number, (now, step)) in steps.enumerate() {
            let cost = share(step.cost, policy.quota()).max(1);
            if decider.decide(now, &[ask(cost)]).admitted {
                due.extend(step.given_back.map(|later| (number + later, cost, now)));
            }
            for (_, cost, charged_at) in due.extract_if(.., |(at, ..)| *at == number) {
                let before = decider.ask(now, &policy, 0).report;
                decider.refund(now, &ask(cost), charged_at);
                let after = decider.ask(now, &policy, 0).report;
                let refills = (now.0 - charged_at.0).div_ceil(it.every_us());
                let least = cost.saturating_sub(refills.saturating_mul(it.amount()));
                let least = (before.remaining + least).min(policy.quota());
                prop_assert!(after.remaining >= least, "{after:?} {least}");
                prop_assert!(after.full_at <= before.full_at);
                prop_assert!(after.remaining > before.remaining || after == before);
                let full = after.remaining == policy.quota();
                prop_assert!(full || after.grows_at == before.grows_at, "{after:?} {before:?}");
            }
        }
    });
}

/// Charges of requests that lie in several slots, some of which are given back, among others that
/// are not: at every step the bucket is what it would be had the former never been made.
#[test]
fn a_tentative_charge_that_is_given_back_was_never_made() {
    let redis = Redis::start();
    proptest!(cases(400), |(
        policy in steady(), start in start(), steps in steps(),
    )| {
        let mut lua = redis.fresh();
        let ask = |cost| Ask { policy: &policy, key: 0, cost };
        let mut charges: Vec<(Micros, u64)> = Vec::new();
        let mut due: Vec<(usize, (Micros, u64))> = Vec::new();
        let steps = timed(steps, start, |it, now| it.after(&policy, now));
        for (number, (now, step)) in steps.enumerate() {
            let cost = share(step.cost, policy.quota()).max(1);
            lua.tentative = step.given_back.is_some();
            if lua.decide(now, &[ask(cost)]).admitted {
                charges.push((now, cost));
                due.extend(step.given_back.map(|later| (number + later, (now, cost))));
            }
            for (_, charge) in due.extract_if(.., |(due, _)| *due == number) {
                lua.refund(now, &ask(charge.1), charge.0);
                let place = charges.iter().position(|it| *it == charge).expect("it was made");
                charges.remove(place);
            }
            let mut without = MapStore::new();
            charges.iter().for_each(|(at, cost)| without.charge_after(*at, &ask(*cost)));
            let (mut seen, mut due) = (lua.ask(now, &policy, 0), without.ask(now, &policy, 0));
            if let Policy::SlidingWindow(_) = policy {
                // What it once counted in a window that shows no more.
                (seen.state, due.state) = (State::default(), State::default());
            }
            prop_assert_eq!(seen, due);
        }
    });
}

/// The same with more charges than a journal holds, with debts, and refunded however late: never
/// more than had the charges not been made.
#[test]
fn a_tentative_charge_that_is_given_back_late_leaves_no_more_than_no_charge() {
    let redis = Redis::start();
    let steps = prop::collection::vec((steps(), prop::option::of(0..1_u64 << 14)), 1..4);
    proptest!(cases(128), |(
        policy in steady(), start in start(), steps in steps,
    )| {
        let mut lua = redis.fresh();
        let ask = |key, cost| Ask { policy: &policy, key, cost };
        let mut due: Vec<(usize, (Micros, u64))> = Vec::new();
        let steps = steps.iter().flat_map(|(steps, owed)| {
            steps.iter().enumerate().map(move |(n, step)| (step, owed.filter(|_| n == 0)))
        });
        let steps = timed(steps, start, |(step, _), now| step.after(&policy, now));
        for (number, (now, (step, owed))) in steps.enumerate() {
            // Of what is charged beyond all that a bucket holds nobody keeps count: a debt that was
            // cut off there comes back with the charge that made it so deep.
            if let Some(owed) = owed.filter(|_| policy.refills()) {
                let left = lua.ask(now, &policy, 0).report.remaining;
                let owed = share(owed, policy.quota()).min(left);
                [0, 1].into_iter().for_each(|key| lua.charge_after(now, &ask(key, owed)));
            }
            let cost = share(step.cost, policy.quota()).max(1);
            lua.tentative = step.given_back.is_some();
            if lua.decide(now, &[ask(0, cost)]).admitted {
                match step.given_back {
                    Some(later) => due.push((number + 5 * later, (now, cost))),
                    None => lua.charge_after(now, &ask(1, cost)),
                }
            }
            for (_, (at, cost)) in due.extract_if(.., |(due, _)| *due == number) {
                lua.refund(now, &ask(0, cost), at);
            }
            let seen = lua.decide_as(now, &[ask(0, 0), ask(1, 0)].map(peek));
            prop_assert!(no_more(&seen.answers[0].report, &seen.answers[1].report));
        }
    });
}

on_every_engine! {
    a_charge_and_its_return_never_leave_more_than_no_charge
    a_charge_that_is_given_back_at_once_was_never_made
    refunds_between_two_refills_leave_what_no_charges_would
    a_refund_withholds_only_what_was_refilled_since
}
