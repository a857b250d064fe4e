//! A limit as requests need it: its numbers and those of its plans and overrides, each with the
//! names of the buckets that they count in.
//!
//! Numbers that hold for a plan have buckets of their own, so callers of two plans who share a key
//! do not see each other's. An override changes the numbers of one key in whichever plan it comes,
//! on the same bucket. All of it is resolved here, when the configuration is compiled: a request
//! looks up its plan, and its bucket among the overrides if there are any.

use hashbrown::HashMap;
use http::HeaderValue;
use prometheus::IntGauge;
use smallvec::SmallVec;

use super::compiled::RouteLimit;
use crate::caller::Addresses;
use crate::config::settings::Route;
use crate::limit::spelling::Spelled;
use crate::limit::{Limit, Mode, Policy, Strategy};
use crate::respond::rate_headers::PolicyText;
use crate::respond::refusal::RefusalText;
use crate::rulings::{self, Rulings};
use crate::store::redis::name;
use crate::store::{BucketHasher, BucketId};
use crate::telemetry::{LimitCounters, Metrics};

#[derive(Debug)]
pub struct Rule {
    /// Its place in the configuration.
    pub index: usize,
    pub limit: Limit,
    /// Whether a request passes depends on it.
    pub enforced: bool,
    pub refusal_text: RefusalText,
    /// For callers of no plan, or of one that it has no other numbers for.
    pub own: Variant,
    /// For callers of a plan, by its name.
    pub plans: Vec<(Vec<u8>, Variant)>,
    /// What it says of requests is counted here.
    pub counters: LimitCounters,
    /// Requests that wait because of it.
    pub waiting: IntGauge,
    /// Its name as a header's value.
    pub mark: HeaderValue,
}

/// Numbers with buckets of their own.
#[derive(Debug)]
pub struct Variant {
    /// What the names of its buckets start from.
    pub prefix: u64,
    /// The same in a store that is shared with other gateways.
    pub shared_prefix: Option<Vec<u8>>,
    pub numbers: Numbers,
    /// For single keys, as operators have decided: by the bucket that the key has here, and by the
    /// one that the override counts in if that is another.
    overrides: HashMap<BucketId, Override>,
}

/// What a limit allows, and how answers tell it.
#[derive(Debug, Clone)]
pub struct Numbers {
    pub policy: Policy,
    pub text: PolicyText,
}

/// Other numbers for one key.
#[derive(Debug, Clone)]
struct Override {
    numbers: Numbers,
    /// Where it counts, if not in the bucket that the key has anyway.
    apart: Option<Apart>,
}

/// A bucket that one key has besides its usual one. Counts of windows of another length say nothing
/// of each other, and one bucket cannot hold both: whichever numbers look at it would forget what
/// the others still count.
#[derive(Debug, Clone)]
struct Apart {
    prefix: u64,
    bucket: BucketId,
    name: Vec<u8>,
}

/// The numbers that hold for a caller.
#[derive(Debug, Clone, Copy)]
pub struct Holding<'a> {
    pub numbers: &'a Numbers,
    /// What the bucket's name starts from.
    pub prefix: u64,
    pub bucket: BucketId,
    /// What the bucket is called in a shared store, if not as its key says.
    pub name: Option<&'a [u8]>,
}

/// Where names of buckets come from.
#[derive(Debug, Clone, Copy)]
pub struct Naming<'a> {
    pub hasher: &'a BucketHasher,
    /// What all names in a shared store start with.
    pub shared: Option<&'a str>,
    pub addresses: &'a Addresses,
}

/// What names of buckets start from, here and in a shared store.
#[derive(Debug)]
struct Start {
    prefix: u64,
    shared: Option<Vec<u8>>,
}

impl Rule {
    pub(super) fn new(
        index: usize,
        limit: &Limit,
        naming: Naming<'_>,
        rulings: &Rulings,
        metrics: &Metrics,
    ) -> Self {
        let plans = limit.plans.iter().map(|(plan, policy)| {
            let variant = Variant::new(limit, Some(plan), policy, naming, rulings);
            (plan.clone().into_bytes(), variant)
        });
        Rule {
            index,
            enforced: limit.mode == Mode::Enforce && limit.strategy != Strategy::Degrade,
            refusal_text: RefusalText::new(limit),
            own: Variant::new(limit, None, &limit.policy, naming, rulings),
            plans: plans.collect(),
            counters: LimitCounters::new(limit, metrics),
            waiting: waiting(limit, metrics),
            mark: HeaderValue::from_str(&limit.name)
                .unwrap_or_else(|_| HeaderValue::from_static("yes")),
            limit: limit.clone(),
        }
    }

    /// What callers of a plan are held to. Who is of which plan is for their identity to say.
    #[must_use]
    #[inline]
    pub fn variant(&self, plan: Option<&[u8]>) -> &Variant {
        let of_plan = plan.and_then(|name| self.plans.iter().find(|(plan, _)| plan == name));
        of_plan.map_or(&self.own, |(_, variant)| variant)
    }

    /// The numbers that hold by now for a bucket that a check was made on. `None` if no caller has
    /// such a bucket any more.
    #[must_use]
    pub fn policy_of(&self, prefix: u64, bucket: BucketId) -> Option<&Policy> {
        let plans = self.plans.iter().map(|(_, variant)| variant);
        std::iter::once(&self.own).chain(plans).find_map(|variant| {
            let decided = variant.overrides.get(&bucket);
            let decided = decided.filter(|it| it.prefix(variant) == prefix);
            match decided {
                Some(decided) => Some(&decided.numbers.policy),
                None => (variant.prefix == prefix).then_some(&variant.numbers.policy),
            }
        })
    }

    /// Takes into account what other workers or gateways hold callers to at the same time: what
    /// their numbers still count is not clamped here.
    pub(super) fn know(&mut self, other: &Rule) {
        self.own.know(&other.own);
        for (plan, variant) in &mut self.plans {
            if let Some((_, other)) = other.plans.iter().find(|(name, _)| name == plan) {
                variant.know(other);
            }
        }
    }

    /// Whether requests that it does not admit are forwarded all the same.
    #[must_use]
    pub fn degrades(&self) -> bool {
        self.limit.mode == Mode::Enforce && self.limit.strategy == Strategy::Degrade
    }

    /// The limit as it applies to a route.
    pub(super) fn on(&self, route: &Route) -> RouteLimit {
        let cost = route.cost.as_ref().unwrap_or(&self.limit.cost).clone();
        RouteLimit { rule: self.index, later: self.limit.charges_later(&cost), cost }
    }
}

impl Variant {
    fn new(
        limit: &Limit,
        plan: Option<&String>,
        policy: &Policy,
        naming: Naming<'_>,
        rulings: &Rulings,
    ) -> Self {
        let start = naming.start(limit, plan, None);
        let mut overrides = HashMap::new();
        for (key, written) in rulings.overrides(&limit.name) {
            // What a reload has made impossible does not hold any more.
            let Ok(decided) = written.policy(policy) else { continue };
            let Some(spelled) = rulings::spelled(limit, key, naming.addresses) else { continue };
            let (bucket, _) = naming.bucket(&spelled, &start);
            let apart = decided.other_window(policy).map(|window| {
                let start = naming.start(limit, plan, Some(window));
                let (bucket, name) = naming.bucket(&spelled, &start);
                Apart { prefix: start.prefix, bucket, name }
            });
            // The limit's numbers hold for the bucket again when the override has ended.
            let decided = if apart.is_none() { decided.beside(policy) } else { decided };
            let decided = Override { numbers: Numbers::new(limit, decided), apart };
            let buckets =
                decided.apart.as_ref().map(|apart| apart.bucket).into_iter().chain([bucket]);
            for bucket in buckets {
                // One that was stored in another spelling yields to one in the spelling that counts.
                if spelled.text == key {
                    overrides.insert(bucket, decided.clone());
                } else {
                    overrides.entry(bucket).or_insert_with(|| decided.clone());
                }
            }
        }
        let Start { prefix, shared } = start;
        let numbers = Numbers::new(limit, *policy);
        Variant { prefix, shared_prefix: shared, numbers, overrides }
    }

    fn know(&mut self, other: &Variant) {
        if self.prefix != other.prefix {
            return;
        }
        self.numbers.know(&other.numbers);
        for ours in self.overrides.values_mut().filter(|it| it.apart.is_none()) {
            ours.numbers.know(&other.numbers);
        }
        for (bucket, theirs) in other.overrides.iter().filter(|(_, it)| it.apart.is_none()) {
            let ours = self
                .overrides
                .entry(*bucket)
                .or_insert_with(|| Override { numbers: self.numbers.clone(), apart: None });
            if ours.apart.is_none() {
                ours.numbers.know(&theirs.numbers);
            }
        }
    }

    /// What holds for the caller who has this bucket.
    #[must_use]
    #[inline]
    pub fn holding(&self, bucket: BucketId) -> Holding<'_> {
        if !self.overrides.is_empty()
            && let Some(decided) = self.overrides.get(&bucket)
        {
            let numbers = &decided.numbers;
            return match &decided.apart {
                None => Holding { numbers, prefix: self.prefix, bucket, name: None },
                Some(Apart { prefix, bucket, name }) => {
                    Holding { numbers, prefix: *prefix, bucket: *bucket, name: Some(name) }
                }
            };
        }
        Holding { numbers: &self.numbers, prefix: self.prefix, bucket, name: None }
    }
}

impl Override {
    fn prefix(&self, variant: &Variant) -> u64 {
        self.apart.as_ref().map_or(variant.prefix, |apart| apart.prefix)
    }
}

impl Numbers {
    fn new(limit: &Limit, policy: Policy) -> Self {
        let limit = Limit { policy, ..limit.clone() };
        Numbers { policy, text: PolicyText::new(&limit) }
    }

    fn know(&mut self, other: &Numbers) {
        self.policy = self.policy.beside(&other.policy);
    }
}

impl Naming<'_> {
    fn start(&self, limit: &Limit, plan: Option<&String>, window_us: Option<u64>) -> Start {
        // A limit that counts by something else, or in another way, starts afresh.
        let mut kind = format!("{} {}", limit.policy.kind(), limit.key);
        if let Some(window_us) = window_us {
            kind = format!("{kind} every {window_us}us");
        }
        let prefix = self.hasher.limit_prefix(&limit.name, &kind);
        let plan_prefix = |plan: &String| self.hasher.plan_prefix(prefix, plan);
        let shared = |start| name::prefix(start, &limit.name, &kind, plan.map(String::as_str));
        Start { prefix: plan.map_or(prefix, plan_prefix), shared: self.shared.map(shared) }
    }

    /// The bucket of a key that somebody has written down, and its name in a shared store.
    fn bucket(&self, key: &Spelled, start: &Start) -> (BucketId, Vec<u8>) {
        let mut bucket = self.hasher.start(start.prefix);
        let mut name: SmallVec<[u8; 256]> = SmallVec::new();
        name.extend_from_slice(start.shared.as_deref().unwrap_or_default());
        for (kind, bytes) in &key.parts {
            bucket.part(*kind as u8, bytes);
            if start.shared.is_some() {
                name::part(&mut name, *kind, bytes);
            }
        }
        (bucket.finish(), name.into_vec())
    }
}

/// Only limits that have requests wait are a series.
fn waiting(limit: &Limit, metrics: &Metrics) -> IntGauge {
    let queue = matches!(limit.strategy, Strategy::Queue { .. });
    if limit.mode == Mode::Enforce && (queue || matches!(limit.policy, Policy::LeakyBucket(_))) {
        metrics.queue_depth.with_label_values(&[&limit.name])
    } else {
        metrics.no_queue.clone()
    }
}
