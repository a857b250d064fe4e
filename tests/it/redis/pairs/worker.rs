//! The store of one gateway with one worker, in the process of the test: so a test asks for pairs
//! whatever the configuration can say. Everything beyond the store is real.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;
use weir::limit::{OnError, Policy};
use weir::store::{
    self, AnyStore, BucketHasher, BucketKeys, Check, CheckOutcome, CheckSet, Choice, Decision,
    DeferredCheck, OpenedStore, Store, StoreContext, StoreControl, StoreError,
};
use weir::telemetry::{AuditLog, Metrics};

use crate::support::{Config, POLL_INTERVAL, RECOVERY};

pub(super) struct Worker {
    store: AnyStore,
    control: Arc<dyn StoreControl>,
    hasher: BucketHasher,
    on_error: OnError,
    local: LocalSet,
    runtime: Runtime,
}

/// A bucket by its key in Redis, and what is asked of it.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) key: String,
    pub(super) policy: Policy,
    pub(super) cost: u64,
    pub(super) choice: Choice,
    pub(super) spends: bool,
    pub(super) enforced: bool,
}

/// What came of a request.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) decision: Result<Decision, StoreError>,
    pub(super) outcomes: Vec<CheckOutcome>,
}

impl Asked {
    pub(super) fn alone(key: &str, policy: Policy, cost: u64) -> Asked {
        let (key, choice) = (key.to_owned(), Choice::Alone);
        Asked { key, policy, cost, choice, spends: true, enforced: true }
    }

    pub(super) fn pair(keys: [&str; 2], policies: [Policy; 2], cost: u64) -> Vec<Asked> {
        let [first, second] = [0, 1].map(|at| Asked::alone(keys[at], policies[at], cost));
        let second = Asked { choice: Choice::Second, ..second };
        vec![Asked { choice: Choice::First, ..first }, second]
    }
}

impl Answered {
    pub(super) fn admitted(&self) -> bool {
        self.decision.as_ref().is_ok_and(|it| it.admitted)
    }

    /// A letter for each check: `c`harged, `r`efuses, `s`kipped.
    pub(super) fn told(&self) -> String {
        let of = |it: &CheckOutcome| match (it.refused, it.skipped) {
            (None, false) => 'c',
            (None, true) => 's',
            (Some(_), false) => 'r',
            (Some(_), true) => panic!("refused, and not asked"),
        };
        self.outcomes.iter().map(of).collect()
    }
}

impl Worker {
    /// `lines` are those of `[store]`.
    pub(super) fn start(lines: &str, on_error: OnError) -> Worker {
        let config = Config::echo().store(lines);
        let loaded = weir::config::parse("test", &config.text()).unwrap();
        let metrics = Metrics::new();
        let (node, audit) = (format!("pairs-{:08x}", rand()), AuditLog::nowhere(&metrics));
        let context = StoreContext { workers: 1, node: &node, metrics: &metrics, audit: &audit };
        let opened = store::open(&loaded.settings.store, context).unwrap();
        let OpenedStore { control, hasher, .. } = opened;
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let local = LocalSet::new();
        let store = local.block_on(&runtime, async {
            let store = control.clone().worker_store();
            control.clone().start().await;
            store
        });
        let worker = Worker { store, control, hasher, on_error, local, runtime };
        worker.wait("the store is in use", || !worker.is_degraded());
        worker
    }

    pub(super) fn is_degraded(&self) -> bool {
        self.control.is_degraded()
    }

    /// Has the worker run for a while.
    pub(super) fn run_for(&self, time: Duration) {
        self.local.block_on(&self.runtime, async { tokio::time::sleep(time).await });
    }

    /// Has the worker run until something holds.
    #[track_caller]
    pub(super) fn wait(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < RECOVERY * 2, "never: {what}");
            self.run_for(POLL_INTERVAL);
        }
    }

    pub(super) fn ask(&self, asked: &[Asked]) -> Answered {
        // A gateway has looked at the clock when it asks.
        let _ = weir::clock::now();
        let mut keys = BucketKeys::default();
        let checks = self.checks(asked, &mut keys);
        let mut outcomes = vec![CheckOutcome::default(); checks.len()];
        let decide =
            self.store.decide(CheckSet { checks: &checks, keys: keys.view() }, &mut outcomes);
        let decision = self.local.block_on(&self.runtime, decide);
        for pair in checks.windows(2).zip(outcomes.windows(2)) {
            let ([_, check], [first, second]) = pair else { panic!("two of each") };
            if check.choice == Choice::Second {
                assert_eq!(second.skipped, first.refused.is_none(), "{first:?} {second:?}");
            }
        }
        Answered { decision, outcomes }
    }

    /// Charges a cost afterwards to whichever check was chosen.
    pub(super) fn charge_after(&self, asked: &[Asked], answered: &Answered, cost: u64) {
        let mut keys = BucketKeys::default();
        let checks = self.checks(asked, &mut keys);
        let chosen = checks.iter().zip(&answered.outcomes).filter(|(_, it)| it.is_chosen());
        let charges: Vec<DeferredCheck> = chosen
            .map(|(check, outcome)| {
                DeferredCheck::new(&Check { cost, ..*check }, outcome, keys.view())
            })
            .collect();
        self.local.block_on(&self.runtime, self.store.charge_after(&charges));
    }

    fn checks<'a>(&self, asked: &'a [Asked], keys: &mut BucketKeys<'_>) -> Vec<Check<'a>> {
        let prefix = self.hasher.limit_prefix("tenants", "test");
        let check = |it: &'a Asked| {
            let mut bucket = self.hasher.start(prefix);
            bucket.part(0, it.key.as_bytes());
            let key = keys.add_copy(it.key.as_bytes());
            let Asked { ref policy, cost, choice, spends, enforced, .. } = *it;
            let on_error = self.on_error;
            let check = Check::new(policy, prefix, bucket.finish(), cost);
            Check { key, choice, spends, enforced, on_error, ..check }
        };
        asked.iter().map(check).collect()
    }
}

/// A number that no other worker has.
fn rand() -> u32 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0) as u32
}
