//! Random steps of the histories that Rust and Lua go through together.

use std::time::Duration;

use proptest::prelude::*;
use weir::clock::Micros;
use weir::limit::fixed_window::FixedWindow;
use weir::limit::leaky_bucket::LeakyBucket;
use weir::limit::rate::MAX_COUNT;
use weir::limit::refill_bucket::RefillBucket;
use weir::limit::sliding_log::SlidingLog;
use weir::limit::sliding_window::SlidingWindow;
use weir::limit::token_bucket::TokenBucket;
use weir::limit::{Policy, Rate};
use weir::store::Choice;

use crate::decider::{Ask, CheckMode};
use crate::limit_changes::change;
use crate::reference_model::{calendar_of, pace_of};
use crate::strategies::{gap, magnitude, once_a_log, policy, share, span};

/// Far before any start, and no step back leads further.
const EARLIEST: u64 = 1_000_000_000_000_000;

/// Some time goes by, limits change, and requests are made.
#[derive(Debug, Clone)]
pub(crate) struct TwinStep {
    /// By which limit's span, and by how much of it in 2^-16.
    pace: usize,
    gap: u64,
    back: bool,
    /// A bit for each limit: which of its two policies holds.
    policies: usize,
    requests: Vec<Request>,
}

#[derive(Debug, Clone)]
struct Request {
    picks: Vec<Pick>,
    /// Two bits for each limit: whether it only watches, and whether it spends nothing.
    modes: usize,
    /// A share of each limit's span in 2^-16.
    waited: u64,
    /// A bit for each ask: whether it and the next become a pair, if they may.
    pairs: usize,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Pick {
    which: usize,
    cost: Cost,
}

#[derive(Debug, Clone, Copy)]
enum Cost {
    /// Of the quota, in 2^-16.
    Share(u64),
    Exactly(u64),
}

pub(crate) type Limit = (Policy, Policy);

/// Some have room for debts, and some hold for one bucket by steps.
pub(crate) fn limits() -> impl Strategy<Value = Vec<Limit>> {
    let debt = || prop_oneof![2 => Just(0), 1 => 0..1_u64 << 18];
    let limit = (prop_oneof![change(), changed_quota()], debt(), debt(), any::<bool>());
    let limit = limit.prop_map(|((old, new), first, second, alternate)| {
        let with = |policy: Policy, part| policy.with_debt(share(part, policy.quota()));
        let (old, new) = (with(old, first), with(new, second));
        // Windows of another length are never beside each other.
        let may = new.other_window(&old).is_none();
        if alternate && may { (old.beside(&new), new.beside(&old)) } else { (old, new) }
    });
    prop::collection::vec(limit, 1..6)
}

/// A limit of the same period whose burst or count is another.
fn changed_quota() -> impl Strategy<Value = Limit> {
    (policy(), magnitude(MAX_COUNT)).prop_filter_map("out of range", |(old, quota)| {
        let (amount, period) = pace_of(&old);
        let period = Duration::from_micros(period);
        let rate = Rate::new(quota, period);
        let new = match &old {
            Policy::TokenBucket(it) => {
                Policy::TokenBucket(TokenBucket::new(it.rate(), quota).ok()?)
            }
            Policy::LeakyBucket(it) => {
                Policy::LeakyBucket(LeakyBucket::new(it.rate(), quota).ok()?)
            }
            Policy::RefillBucket(_) => {
                Policy::RefillBucket(RefillBucket::new(period, amount, quota).ok()?)
            }
            Policy::SlidingWindow(_) => Policy::SlidingWindow(SlidingWindow::new(rate.ok()?)),
            Policy::SlidingLog(_) => Policy::SlidingLog(SlidingLog::new(rate.ok()?).ok()?),
            Policy::FixedWindow(_) => Policy::FixedWindow(match calendar_of(&old) {
                Some(calendar) => FixedWindow::calendar(quota, calendar).ok()?,
                None => FixedWindow::new(rate.ok()?),
            }),
            Policy::Concurrency(_) => return None,
        };
        Some((old, new))
    })
}

pub(crate) fn pick() -> impl Strategy<Value = Pick> {
    let cost = prop_oneof![
        4 => (0..1_u64 << 14).prop_map(Cost::Share),
        3 => (0..=1_u64 << 16).prop_map(Cost::Share),
        1 => (0..1_u64 << 17).prop_map(Cost::Share),
        2 => prop_oneof![Just(0), Just(1), Just(u64::MAX)].prop_map(Cost::Exactly),
    ];
    (any::<usize>(), cost).prop_map(|(which, cost)| Pick { which, cost })
}

fn request() -> impl Strategy<Value = Request> {
    let modes = prop_oneof![1 => Just(0), 1 => any::<usize>()];
    let waited = prop_oneof![2 => Just(0), 1 => 0..1_u64 << 12, 1 => 0..1_u64 << 17];
    let pairs = prop_oneof![1 => Just(0), 1 => any::<usize>()];
    (prop::collection::vec(pick(), 1..6), modes, waited, pairs)
        .prop_map(|(picks, modes, waited, pairs)| Request { picks, modes, waited, pairs })
}

pub(crate) fn step() -> impl Strategy<Value = TwinStep> {
    let gap = gap(3, [(3, 14), (2, 16), (1, 18)]);
    let policies = prop_oneof![3 => Just(0), 1 => any::<usize>()];
    let requests = prop::collection::vec(request(), 1..5);
    (any::<usize>(), gap, prop::bool::weighted(0.2), policies, requests).prop_map(
        |(pace, gap, back, policies, requests)| TwinStep { pace, gap, back, policies, requests },
    )
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<TwinStep>> {
    prop::collection::vec(step(), 1..25)
}

/// Makes pairs of asks that follow each other, where no other ask is on either bucket. They agree in
/// what they cost and in how they are meant.
fn paired(mut asks: Vec<(Ask<'_>, CheckMode)>, pairs: usize) -> Vec<(Ask<'_>, CheckMode)> {
    let keys: Vec<u64> = asks.iter().map(|(ask, _)| ask.key).collect();
    let once = |key: u64| keys.iter().filter(|it| **it == key).count() == 1;
    for second in 1..asks.len() {
        let (ask, mode) = asks[second - 1];
        if pairs >> second & 1 == 1
            && mode.choice == Choice::Alone
            && once(keys[second - 1])
            && once(keys[second])
        {
            asks[second - 1].1.choice = Choice::First;
            asks[second].0.cost = ask.cost;
            let waited = asks[second].1.waited;
            asks[second].1 = CheckMode { waited, choice: Choice::Second, ..mode };
        }
    }
    asks
}

impl TwinStep {
    fn policy<'a>(&self, limits: &'a [Limit], which: usize) -> &'a Policy {
        let (old, new) = &limits[which];
        if self.policies >> which & 1 == 0 { old } else { new }
    }

    fn gap(&self, limits: &[Limit]) -> u64 {
        share(self.gap, span(self.policy(limits, self.pace % limits.len())))
    }

    pub(crate) fn ahead(&self, limits: &[Limit], now: Micros) -> Micros {
        Micros(now.0 + self.gap(limits))
    }

    pub(crate) fn ahead_or_back(&self, limits: &[Limit], now: Micros) -> Micros {
        if self.back {
            Micros(now.0.saturating_sub(self.gap(limits)).max(EARLIEST))
        } else {
            self.ahead(limits, now)
        }
    }

    pub(crate) fn ask<'a>(&self, limits: &'a [Limit], pick: &Pick) -> Ask<'a> {
        let key = pick.which % limits.len();
        let policy = self.policy(limits, key);
        let cost = match pick.cost {
            Cost::Share(part) => share(part, policy.quota()),
            Cost::Exactly(cost) => cost,
        };
        Ask { policy, key: key as u64, cost }
    }

    /// All asks of a request on one limit are meant alike.
    pub(crate) fn requests<'a>(&self, limits: &'a [Limit]) -> Vec<Vec<(Ask<'a>, CheckMode)>> {
        let asks = |request: &Request| {
            let asks = request.picks.iter().map(|pick| self.ask(limits, pick)).collect();
            let meant = |ask: Ask<'a>| {
                let mode = request.modes >> (3 * ask.key) & 7;
                let waited = share(request.waited, span(ask.policy));
                let (spends, enforced, together) = (mode & 1 == 0, mode & 2 == 0, mode & 4 != 0);
                (ask, CheckMode { waited, spends, enforced, together, ..CheckMode::default() })
            };
            paired(once_a_log(asks).into_iter().map(meant).collect(), request.pairs)
        };
        self.requests.iter().map(asks).collect()
    }
}
