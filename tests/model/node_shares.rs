//! Nodes that cannot agree decide alone, each by its share: together they admit nothing that the
//! whole limit would not have admitted to them as one.
//!
//! That holds while every node's share has room for the cost: `nodes × cost ≤ quota`. A limit that
//! is smaller is still one cost for each node, so that is what all of them can take at once: if
//! all requests cost the same, they are held to a burst of `nodes × cost` in its place, at the same
//! rate, and in a window to one request a node. Of requests that cost more than a share and less,
//! mixed on one such limit, nothing is claimed.

use std::time::Duration;

use proptest::prelude::*;
use weir::clock::Micros;
use weir::limit::adjust::Numbers;
use weir::limit::token_bucket::TokenBucket;
use weir::limit::{Policy, Rate, Retry, State, Verdict};

use crate::reference_model::{Model, rate_of, window_of};
use crate::strategies::{bucket, gap, policy, share, span, start, steady, timed, window};

/// One request at one of the nodes.
#[derive(Debug, Clone, Copy)]
struct Step {
    /// A share of the limit's span in 2^-16.
    gap: u64,
    node: usize,
    /// A share of the largest cost in 2^-16.
    cost: u64,
}

impl Step {
    fn after(&self, policy: &Policy, last: Micros) -> Micros {
        Micros(last.0 + share(self.gap, span(policy)))
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let gap = gap(5, [(3, 12), (2, 15), (1, 17)]);
    let cost = prop_oneof![3 => 0..1_u64 << 14, 2 => 0..=1_u64 << 16, 2 => Just(1 << 16)];
    let step = (gap, any::<usize>(), cost);
    prop::collection::vec(step.prop_map(|(gap, node, cost)| Step { gap, node, cost }), 1..80)
}

fn nodes() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 1..6_u64, 1 => 1..=1_000_u64]
}

/// Charges what passes.
fn take(policy: &Policy, state: &mut State, now: Micros, cost: u64) -> bool {
    *state = policy.clamp(*state, now);
    match policy.evaluate(*state, now, cost) {
        Verdict::Admit(after) => {
            *state = after;
            true
        }
        Verdict::Refuse(_) => false,
    }
}

/// As many nodes as there are, all of which know the same.
struct Alone {
    states: Vec<State>,
}

impl Alone {
    fn new(nodes: u64, known: State) -> Self {
        Self { states: vec![known; nodes as usize] }
    }

    fn admits(&mut self, policy: &Policy, node: usize, now: Micros, cost: u64) -> bool {
        let nodes = self.states.len();
        let (policy, cost) = policy.share(nodes as u64, cost);
        take(&policy, &mut self.states[node % nodes], now, cost)
    }

    /// Passes while one unit is left, and charges its cost after the fact.
    fn admits_and_charges_after(
        &mut self,
        policy: &Policy,
        node: usize,
        now: Micros,
        cost: u64,
    ) -> bool {
        let nodes = self.states.len();
        let state = &mut self.states[node % nodes];
        let (ours, one) = policy.share(nodes as u64, 1);
        *state = ours.clamp(*state, now);
        if let Verdict::Refuse(_) = ours.evaluate(*state, now, one) {
            return false;
        }
        let (ours, dearer) = policy.share_after(nodes as u64, cost);
        *state = ours.charge_after(*state, now, dearer);
        true
    }
}

/// The same limit with room for more.
fn with_room(policy: &Policy, more: u64) -> Option<Policy> {
    let quota = policy.quota() + more;
    let numbers = match policy {
        Policy::TokenBucket(_) | Policy::LeakyBucket(_) => {
            Numbers { burst: Some(quota), ..Numbers::default() }
        }
        _ => {
            let period = Duration::from_micros(rate_of(policy).period_us());
            Numbers { rate: Some(Rate::new(quota, period).ok()?), ..Numbers::default() }
        }
    };
    policy.adjusted(&numbers).ok().filter(|it| it.quota() == quota)
}

proptest! {
    #[test]
    fn what_shares_admit_the_whole_would_have_admitted(
        policy in steady(),
        nodes in nodes(),
        start in start(),
        common in prop::collection::vec((0..1_u64 << 14, 0..=1_u64 << 16), 0..8),
        steps in steps(),
    ) {
        let most = policy.quota() / nodes;
        prop_assume!(most > 0);
        let (mut model, mut known, mut now) = (Model::new(&policy), State::default(), start);
        for (gap, cost) in common {
            now = Micros(now.0 + share(gap, span(&policy)));
            let cost = share(cost, policy.quota());
            if take(&policy, &mut known, now, cost) {
                model.charge(now, cost);
            }
        }
        let mut alone = Alone::new(nodes, known);
        for (now, step) in timed(steps, now, |it, now| it.after(&policy, now)) {
            let cost = share(step.cost, most).max(1);
            if alone.admits(&policy, step.node, now, cost) {
                prop_assert_eq!(model.refusal(now, cost), None);
                model.charge(now, cost);
            }
        }
    }

    /// A node learns the cost of a request that it has admitted, and may have one unit left when it
    /// admits it. Beyond that last cost of each node, all together spend no more than the limit.
    #[test]
    fn shares_charged_after_the_fact_spend_no_more_than_the_whole_and_a_last_cost_a_node(
        policy in steady(),
        nodes in nodes(),
        start in start(),
        spent in 0..=1_u64 << 16,
        most in prop_oneof![2 => Just(1), 1 => 1..=1_u64 << 10, 1 => 1..=1_u64 << 17],
        steps in steps(),
    ) {
        prop_assume!(policy.quota() >= nodes);
        let most = if most == 1 { 1 } else { share(most, policy.quota()).max(1) };
        let policy = policy.with_debt(most);
        // Debts that can be counted, also at a share's price.
        let (ours, _) = policy.share(nodes, 1);
        prop_assume!(policy.deepest() == policy.quota() + most);
        prop_assume!(ours.refills() || ours.deepest() == policy.quota() + nodes * most);
        let whole = with_room(&policy, nodes * (most - 1));
        prop_assume!(whole.is_some());
        let mut model = Model::new(&whole.expect("a limit"));
        let known = share(spent, policy.quota());
        model.charge(start, known);
        let known = policy.charge_after(State::default(), start, known);
        let mut alone = Alone::new(nodes, known);
        for (now, step) in timed(steps, start, |it, now| it.after(&policy, now)) {
            let cost = share(step.cost, most).max(1);
            if alone.admits_and_charges_after(&policy, step.node, now, cost) {
                prop_assert_eq!(model.refusal(now, cost), None);
                model.charge(now, cost);
            }
        }
    }

    /// All of them together are a bucket with room for one cost of each node, at the same rate.
    #[test]
    fn shares_too_small_for_the_cost_are_held_to_one_cost_a_node(
        policy in bucket(),
        nodes in 2..=1_000_u64,
        start in start(),
        cost in 1..=1_u64 << 16,
        spent in 0..=1_u64 << 16,
        steps in steps(),
    ) {
        let cost = share(cost, policy.quota()).max(1);
        let burst = nodes * cost.max(policy.quota() / nodes);
        let whole = TokenBucket::new(rate_of(&policy), burst);
        prop_assume!(whole.is_ok());
        let whole = Policy::TokenBucket(whole.expect("a bucket"));
        let known = policy.charge_after(State::default(), start, share(spent, policy.quota()));
        let (mut alone, mut state, mut now) = (Alone::new(nodes, known), known, start);
        for step in steps {
            now = Micros(now.0 + share(step.gap, span(&policy)));
            if alone.admits(&policy, step.node, now, cost) {
                prop_assert!(take(&whole, &mut state, now, cost));
            }
        }
    }

    #[test]
    fn windows_too_small_for_the_cost_admit_one_request_a_node(
        policy in window(), nodes in 2..=1_000_u64, start in start(), cost in 0..=1_u64 << 16,
        steps in steps(),
    ) {
        let least = policy.quota() / nodes + 1;
        let cost = share(cost, policy.quota()).max(least);
        prop_assume!(cost <= policy.quota());
        let mut alone = Alone::new(nodes, State::default());
        let (mut now, mut admitted) = (start, Vec::new());
        for step in steps {
            now = Micros(now.0 + share(step.gap, span(&policy)));
            if alone.admits(&policy, step.node, now, cost) {
                let node = step.node % nodes as usize;
                let window = window_of(&policy, now);
                prop_assert!(!admitted.contains(&(node, window)), "twice in one window");
                admitted.push((node, window));
            }
        }
    }

    #[test]
    fn what_fits_the_whole_fits_a_share_and_what_does_not_never_passes(
        policy in policy(), nodes in 1..=1_000_u64, now in start(), cost in magnitude_or_more(),
    ) {
        let (ours, dearer) = policy.share(nodes, cost);
        let verdict = ours.evaluate(State::default(), now, dearer);
        if cost <= policy.quota() {
            prop_assert!(matches!(verdict, Verdict::Admit(_)), "{verdict:?}");
        } else {
            prop_assert_eq!(verdict, Verdict::Refuse(Retry::Never));
        }
        // What was refused passes at some time.
        let (empty, cost) = (policy.charge_after(State::default(), now, u64::MAX), cost.min(policy.quota()));
        let (ours, dearer) = policy.share(nodes, cost);
        let empty = ours.clamp(empty, now);
        if let Verdict::Refuse(retry) = ours.evaluate(empty, now, dearer) {
            let Retry::At(at) = retry else { panic!("never") };
            let verdict = ours.evaluate(empty, at, dearer);
            prop_assert!(matches!(verdict, Verdict::Admit(_)), "{verdict:?}");
        }
    }

    #[test]
    fn the_share_of_one_is_the_whole(policy in policy(), cost in magnitude_or_more()) {
        prop_assert_eq!(policy.share(1, cost), (policy, cost));
    }
}

/// Costs that fit and costs that do not.
fn magnitude_or_more() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), crate::strategies::magnitude(1 << 31)]
}
