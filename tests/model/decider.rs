//! Something that decides, and the embedded store as such.

use weir::clock::{Clock, Micros};
use weir::limit::{Policy, Report, Retry, State};
use weir::store::{BucketHasher, Check, CheckOutcome, Choice, MemoryStore};

/// One check: the key stands for a bucket of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) key: u64,
    pub(crate) cost: u64,
}

/// How an ask is meant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CheckMode {
    /// How many microseconds ago it could have passed.
    pub(crate) waited: u64,
    pub(crate) spends: bool,
    pub(crate) enforced: bool,
    /// Whether it is one of several of a limit: see `Check::together`.
    pub(crate) together: bool,
    pub(crate) choice: Choice,
}

impl Default for CheckMode {
    fn default() -> Self {
        let choice = Choice::Alone;
        Self { waited: 0, spends: true, enforced: true, together: false, choice }
    }
}

/// What came of each ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) refused: Option<Retry>,
    /// It was not asked, for the first of its pair admits.
    pub(crate) skipped: bool,
    /// It is not charged because one of its limit refuses.
    pub(crate) withheld: bool,
    pub(crate) report: Report,
    /// The bucket after the decision. One that is full again is as good as none.
    pub(crate) state: State,
}

impl Answer {
    pub(crate) fn new(policy: &Policy, at: Micros, state: State, refused: Option<Retry>) -> Self {
        let report = policy.report(state, at);
        let state = if state.ends_at > at { state } else { State::default() };
        Self { refused, skipped: false, withheld: false, report, state }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) admitted: bool,
    pub(crate) answers: Vec<Answer>,
}

/// A store with a clock that the test owns.
pub(crate) trait Decider {
    /// Decides all asks together, at this instant, each as it is meant.
    fn decide_as(&mut self, at: Micros, asks: &[(Ask<'_>, CheckMode)]) -> Outcome;

    /// Charges a cost, whether it passes or not.
    fn charge_after(&mut self, at: Micros, ask: &Ask<'_>);

    /// Takes a charge out again.
    fn refund(&mut self, at: Micros, ask: &Ask<'_>, charged_at: Micros);

    /// Decides asks that all count.
    fn decide(&mut self, at: Micros, asks: &[Ask<'_>]) -> Outcome {
        let asks: Vec<_> = asks.iter().map(|ask| (*ask, CheckMode::default())).collect();
        self.decide_as(at, &asks)
    }

    /// Decides one ask.
    fn ask(&mut self, at: Micros, policy: &Policy, cost: u64) -> Answer {
        self.decide(at, &[Ask { policy, key: 0, cost }]).answers[0]
    }
}

/// Where deciders come from.
pub(crate) trait Engine {
    type Decider<'a>: Decider
    where
        Self: 'a;

    /// How many random histories are worth their time.
    const CASES: u32;

    /// A decider that knows no bucket.
    fn fresh(&self) -> Self::Decider<'_>;
}

/// Makes a test of each claim for each engine.
macro_rules! on_every_engine {
    ($($claim:ident)*) => {
        mod embedded {
            $(#[test] fn $claim() { super::$claim(&crate::decider::Memory); })*
        }
        mod redis {
            $(#[test] fn $claim() { super::$claim(&crate::lua::Redis::start()); })*
        }
    };
}
pub(crate) use on_every_engine;

/// The embedded store, with room for every key.
pub(crate) struct Memory;

impl Engine for Memory {
    type Decider<'a> = Embedded;
    const CASES: u32 = 256;

    fn fresh(&self) -> Embedded {
        Embedded::new(100)
    }
}

pub(crate) struct Embedded {
    pub(crate) store: MemoryStore,
    pub(crate) clock: Clock,
    pub(crate) names: Names,
}

impl Embedded {
    pub(crate) fn new(max_keys: usize) -> Self {
        let clock = Clock::manual(Micros(0));
        Self { store: MemoryStore::new(max_keys, clock.clone()), clock, names: Names::new() }
    }
}

impl Decider for Embedded {
    fn decide_as(&mut self, at: Micros, asks: &[(Ask<'_>, CheckMode)]) -> Outcome {
        self.clock.set(at);
        let mut checks: Vec<Check<'_>> = Vec::new();
        for (ask, mode) in asks {
            let CheckMode { waited, spends, enforced, together, choice } = *mode;
            let check = self.names.check(ask);
            checks.push(Check { waited, spends, enforced, together, choice, ..check });
        }
        let mut outcomes = vec![CheckOutcome::default(); checks.len()];
        let decision = self.store.decide_now(&checks, &mut outcomes);
        assert_eq!(decision.now, at);
        let answers = checks.iter().zip(&outcomes);
        let answers = answers.map(|(it, of)| {
            let (skipped, withheld) = (of.skipped, of.withheld);
            Answer { skipped, withheld, ..Answer::new(it.policy, at, of.state, of.refused) }
        });
        Outcome { admitted: decision.admitted, answers: answers.collect() }
    }

    fn charge_after(&mut self, at: Micros, ask: &Ask<'_>) {
        self.clock.set(at);
        self.store.charge_one_after(&self.names.check(ask));
    }

    fn refund(&mut self, at: Micros, ask: &Ask<'_>, charged_at: Micros) {
        self.clock.set(at);
        let charged = CheckOutcome { now: charged_at, ..CheckOutcome::default() };
        self.store.refund(&self.names.check(ask), &charged);
    }
}

/// Names buckets by number.
pub(crate) struct Names(BucketHasher);

impl Names {
    pub(crate) fn new() -> Self {
        Self(BucketHasher::random().expect("randomness"))
    }

    /// Every algorithm is a limit of its own.
    pub(crate) fn check<'a>(&self, ask: &Ask<'a>) -> Check<'a> {
        let limit = self.0.limit_prefix("limit", ask.policy.kind());
        let mut name = self.0.start(limit);
        name.part(0, &ask.key.to_be_bytes());
        Check::new(ask.policy, limit, name.finish(), ask.cost)
    }
}
