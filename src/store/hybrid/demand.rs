//! How much of a key is asked for here, and how much of it to lease for that.

use smallvec::SmallVec;

use super::timing::{LeaseTiming, TICKS};
use crate::limit::Policy;
use crate::limit::lease::LeaseStep;

/// A call to the store is to serve at least so many requests, where the key is near its limit.
const REQUESTS_PER_CALL: f32 = 100.0;
/// No key is asked for more often, in microseconds.
const SHORTEST_WAIT: u64 = 2_000;
/// What is leased in advance: so many intervals' worth, if so many times as much is there. The
/// emptier the bucket, the less is taken from the other gateways.
const COMFORTABLE: [(u64, u64); 3] = [(6, 16), (3, 6), (1, 2)];
/// The same where what lies idle at one gateway comes back slowly for the others.
const CAUTIOUS: [(u64, u64); 3] = [(6, 64), (3, 32), (1, 16)];
/// A limit that brings so much in an interval, and holds so much, is worth a lease: of less than that,
/// hardly anything is admitted anyway, and that is decided by Redis, to the unit.
const SUSTAINED: u64 = 4;
const HELD: u64 = 16;
/// A quota of this size is worth one however slowly it comes back.
const LARGE: u64 = 4_096;

/// Whether keys of a limit get leases.
pub(super) fn is_worth_leasing(policy: &Policy, timing: LeaseTiming) -> bool {
    let quota = policy.quota();
    quota >= LARGE || quota >= HELD && policy.sustained(timing.sync) >= SUSTAINED
}

/// Halving goes no further.
const MOST_STEPS: usize = 14;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Demand {
    /// Since the last tick.
    units: u64,
    requests: u32,
    /// The largest cost since the last tick, and before that.
    cost: u64,
    last_cost: u64,
    units_per_tick: f32,
    requests_per_tick: f32,
    idle_ticks: u64,
}

impl Demand {
    /// A key that has just become hot, by so many requests within a tick.
    pub(super) fn of_new(requests: u32, cost: u64) -> Self {
        let units = u64::from(requests).saturating_mul(cost);
        Demand {
            cost,
            units_per_tick: units as f32,
            requests_per_tick: requests as f32,
            ..Demand::default()
        }
    }

    /// Nobody will ask any more.
    pub(super) fn over() -> Self {
        Demand { idle_ticks: TICKS, ..Demand::default() }
    }

    /// A request asks for so much, whatever comes of it.
    #[inline]
    pub(super) fn add(&mut self, cost: u64) {
        self.units = self.units.saturating_add(cost);
        self.requests += 1;
        self.idle_ticks = 0;
        self.cost = self.cost.max(cost);
    }

    /// A request that was counted is decided once more, and counted then.
    pub(super) fn remove(&mut self, cost: u64) {
        self.units = self.units.saturating_sub(cost);
        self.requests = self.requests.saturating_sub(1);
    }

    /// Rises at once and falls slowly: too much is returned, too little costs a call.
    pub(super) fn tick(&mut self) {
        let follow = |average: f32, latest: f32| match latest > average {
            true => latest,
            false => average * 0.75 + latest * 0.25,
        };
        self.units_per_tick = follow(self.units_per_tick, self.units as f32);
        self.requests_per_tick = follow(self.requests_per_tick, self.requests as f32);
        match self.requests {
            0 => self.idle_ticks += 1,
            _ => self.idle_ticks = 0,
        }
        (self.last_cost, self.cost) = (self.cost, 0);
        (self.units, self.requests) = (0, 0);
    }

    /// Nobody has asked for a whole interval.
    pub(super) fn is_idle(&self) -> bool {
        self.idle_ticks >= TICKS
    }

    /// What is asked for in one interval.
    pub(super) fn per_interval(&self) -> u64 {
        (self.units_per_tick * TICKS as f32).ceil() as u64
    }

    /// How long a key that is near its limit is not asked for again, in microseconds: long enough for a
    /// call to serve many requests, and not so long that its bucket runs full meanwhile.
    pub(super) fn wait_near_limit(&self, policy: &Policy, timing: LeaseTiming) -> u64 {
        let per_tick = self.requests_per_tick.max(0.1);
        let wait = (REQUESTS_PER_CALL / per_tick * timing.tick as f32) as u64;
        let fill = match policy.refills() {
            true => policy.span(policy.quota()).as_micros() as u64 / 4,
            false => timing.sync,
        };
        wait.min(2 * timing.sync).min(fill).max(SHORTEST_WAIT.min(timing.sync))
    }

    /// What to ask for beside what is kept, the best first.
    pub(super) fn steps(
        &self,
        policy: &Policy,
        kept: u64,
        timing: LeaseTiming,
    ) -> SmallVec<[LeaseStep; 12]> {
        let mut steps = SmallVec::new();
        let (per_interval, least) = (self.per_interval(), self.cost.max(self.last_cost).max(1));
        let near = self.wait_near_limit(policy, timing);
        let sustained = policy.sustained(timing.sync);
        let need = per_interval.saturating_mul(near) / timing.sync;
        let most = policy.quota().min(2 * sustained);
        let need = need.saturating_sub(kept).min(most).max(least);
        // Requests of a leaky bucket leave in the order of its units: what lies idle here holds up others.
        let paces = matches!(policy, Policy::LeakyBucket(_));
        // What of a window is left somewhere when it ends is lost.
        let is_cautious = sustained < SUSTAINED || !policy.refills();
        for (intervals, multiple) in if is_cautious { CAUTIOUS } else { COMFORTABLE } {
            let units = per_interval.saturating_mul(intervals).saturating_sub(kept);
            let tested = units.saturating_mul(multiple);
            if units > need && tested <= policy.quota() && !(paces && intervals > 1) {
                steps.push(LeaseStep { units, tested, is_enough: true });
            }
        }
        if is_cautious || need > policy.quota() {
            return steps;
        }
        // All there is, down to one request, if that is less than what is needed.
        steps.push(LeaseStep { units: need, tested: need, is_enough: true });
        let mut units = need;
        while units > least && steps.len() < MOST_STEPS {
            units = (units / 2).max(least);
            steps.push(LeaseStep { units, tested: units, is_enough: false });
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limit::Rate;
    use crate::limit::token_bucket::TokenBucket;

    fn timing() -> LeaseTiming {
        LeaseTiming::new(Duration::from_millis(100))
    }

    fn policy(a_second: u64, burst: u64) -> Policy {
        let rate = Rate::new(a_second, Duration::from_secs(1)).expect("a rate");
        Policy::TokenBucket(TokenBucket::new(rate, burst).expect("a bucket"))
    }

    #[test]
    fn steps_get_smaller_and_need_less_and_end_with_one_request() {
        let demand = Demand::of_new(50, 1);
        let steps = demand.steps(&policy(10_000, 100_000), 0, timing());
        assert_eq!(steps[0], LeaseStep { units: 1_200, tested: 19_200, is_enough: true });
        assert_eq!(steps[1], LeaseStep { units: 600, tested: 3_600, is_enough: true });
        assert!(steps.windows(2).all(|pair| pair[0].units > pair[1].units), "{steps:?}");
        assert!(steps.windows(2).all(|pair| pair[0].tested > pair[1].tested), "{steps:?}");
        assert_eq!(steps.last(), Some(&LeaseStep { units: 1, tested: 1, is_enough: false }));
    }

    #[test]
    fn what_no_bucket_holds_is_not_asked_for() {
        let demand = Demand::of_new(1_000_000, 7);
        let slow = policy(10, 20);
        assert!(demand.steps(&slow, 0, timing()).is_empty(), "near its limit Redis decides");
        for LeaseStep { units, tested, .. } in demand.steps(&policy(1_000, 20), 0, timing()) {
            assert!(units <= 20 && tested <= 20, "{units} {tested}");
        }
        let tokens = policy(1_000, 20);
        assert_eq!(demand.steps(&tokens, 0, timing()).last().map(|it| it.units), Some(7));
    }

    #[test]
    fn the_wait_near_a_limit_serves_many_requests_and_lets_no_bucket_run_full() {
        let wait = |per_tick, policy: &Policy| {
            Demand::of_new(per_tick, 1).wait_near_limit(policy, timing())
        };
        assert_eq!(wait(1, &policy(1_000, 1_000)), 200_000, "at most two intervals");
        assert_eq!(wait(100, &policy(1_000, 1_000)), 25_000, "a tick for 100 requests");
        assert_eq!(
            wait(1, &policy(1_000, 80)),
            20_000,
            "a quarter of what the bucket takes to fill"
        );
        assert_eq!(wait(60_000, &policy(1_000, 1_000)), SHORTEST_WAIT);
    }

    #[test]
    fn demand_rises_at_once_and_is_idle_after_an_interval_without_any() {
        let mut demand = Demand::of_new(4, 1);
        (0..100).for_each(|_| demand.add(2));
        demand.tick();
        assert_eq!(demand.per_interval(), 800);
        for ticks in 1..=TICKS {
            assert!(!demand.is_idle(), "after {ticks}");
            demand.tick();
        }
        assert!(demand.is_idle());
        assert!(demand.per_interval() < 300);
    }
}
