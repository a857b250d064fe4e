//! The numbers of a limit for one plan, those of overrides for single keys, and the names of the
//! buckets that they count in.
//!
//! Numbers that hold for a plan have buckets of their own, so callers of two plans that share a key
//! do not share a budget. An override changes the numbers of one key in every plan, on the same
//! bucket. A limit that is adaptive has numbers for each score of a caller, on the same bucket, too.
//! All of it is resolved when the configuration is compiled: a request looks up its plan,
//! and its bucket among the overrides if there are any.

use hashbrown::HashMap;

use super::scored::{Numbers, Recipe, ScoredNumbers};
use crate::caller::Addresses;
use crate::limit::spelling::NormalizedKey;
use crate::limit::trust::Score;
use crate::limit::{Limit, Policy};
use crate::overrides::{self, KeyNumbers};
use crate::store::key_format;
use crate::store::{BucketHasher, BucketId};

/// Numbers with buckets of their own.
#[derive(Debug, Clone)]
pub struct LimitVariant {
    /// What the ids of its buckets start from.
    pub prefix: u64,
    /// What their names start with in a store that is shared with other gateways.
    pub shared_prefix: Option<Vec<u8>>,
    numbers: ScoredNumbers,
    /// Other numbers for single keys: by the bucket that the key has here, and by the one that the
    /// override counts in if that is another.
    overrides: HashMap<BucketId, KeyOverride>,
}

/// Other numbers for one key.
#[derive(Debug, Clone)]
struct KeyOverride {
    numbers: ScoredNumbers,
    /// Where it counts, if not in the bucket that the key has anyway.
    separate: Option<SeparateBucket>,
}

/// A second bucket of one key, for an override whose window has another length. Counts of windows of
/// different lengths cannot share a bucket: each would drop what the other still counts.
#[derive(Debug, Clone)]
struct SeparateBucket {
    prefix: u64,
    bucket: BucketId,
    name: Vec<u8>,
}

/// The numbers that hold for one bucket, overrides and trust included, and where they are counted.
#[derive(Debug, Clone, Copy)]
pub struct EffectiveNumbers<'a> {
    pub numbers: &'a Numbers,
    /// What the bucket's id starts from.
    pub prefix: u64,
    pub bucket: BucketId,
    /// The bucket's name in a shared store, if not the one that follows from its key.
    pub name: Option<&'a [u8]>,
}

/// How buckets are named.
#[derive(Debug, Clone, Copy)]
pub(super) struct BucketNaming<'a> {
    pub hasher: &'a BucketHasher,
    /// What all names in a shared store start with.
    pub shared: Option<&'a str>,
    pub addresses: &'a Addresses,
}

/// What names of buckets start with, here and in a shared store.
#[derive(Debug)]
struct BucketPrefix {
    prefix: u64,
    shared: Option<Vec<u8>>,
}

impl LimitVariant {
    pub(super) fn new(
        limit: &Limit,
        plan: Option<&String>,
        policy: &Policy,
        naming: BucketNaming<'_>,
        written: &[KeyNumbers<'_>],
    ) -> Self {
        let start = naming.prefix(limit, plan, None);
        let own = ScoredNumbers::of_limit(limit, policy);
        let mut overrides = HashMap::new();
        for &KeyNumbers { key, numbers } in written {
            // An override that does not fit the limit since a reload does not hold any more.
            let Ok(overriding) = numbers.numbers() else { continue };
            let recipe = Recipe { policy: *policy, overriding: Some(overriding) };
            let (Ok(mut numbers), Ok(overriding)) =
                (ScoredNumbers::new(limit, recipe), recipe.policy(Score::ZERO))
            else {
                continue;
            };
            let Some(spelled) = overrides::normalized_key(limit, key, naming.addresses) else {
                continue;
            };
            let (bucket, _) = naming.bucket(&spelled, &start);
            let separate = overriding.other_window(policy).map(|window| {
                let start = naming.prefix(limit, plan, Some(window));
                let (bucket, name) = naming.bucket(&spelled, &start);
                SeparateBucket { prefix: start.prefix, bucket, name }
            });
            // The limit's numbers hold for the bucket again when the override has ended.
            if separate.is_none() {
                numbers.coexist_with(&own);
            }
            let entry = KeyOverride { numbers, separate };
            let buckets = entry.separate.as_ref().map(|it| it.bucket).into_iter().chain([bucket]);
            for bucket in buckets {
                // Of two spellings of one key, the one that counts has precedence.
                if spelled.text == key {
                    overrides.insert(bucket, entry.clone());
                } else {
                    overrides.entry(bucket).or_insert_with(|| entry.clone());
                }
            }
        }
        let BucketPrefix { prefix, shared } = start;
        LimitVariant { prefix, shared_prefix: shared, numbers: own, overrides }
    }

    /// What holds for the caller that has this bucket and this score.
    #[inline]
    pub fn effective(&self, bucket: BucketId, score: Score) -> EffectiveNumbers<'_> {
        if !self.overrides.is_empty()
            && let Some(entry) = self.overrides.get(&bucket)
        {
            let numbers = entry.numbers.at(score);
            return match &entry.separate {
                None => EffectiveNumbers { numbers, prefix: self.prefix, bucket, name: None },
                Some(SeparateBucket { prefix, bucket, name }) => {
                    EffectiveNumbers { numbers, prefix: *prefix, bucket: *bucket, name: Some(name) }
                }
            };
        }
        let numbers = self.numbers.at(score);
        EffectiveNumbers { numbers, prefix: self.prefix, bucket, name: None }
    }

    /// The numbers that hold for a bucket and a score, if the bucket's id starts from this prefix.
    pub(super) fn policy_of(&self, prefix: u64, bucket: BucketId, score: Score) -> Option<&Policy> {
        let entry = self.overrides.get(&bucket);
        match entry.filter(|it| it.prefix(self) == prefix) {
            Some(entry) => Some(&entry.numbers.at(score).policy),
            None => (self.prefix == prefix).then(|| &self.numbers.at(score).policy),
        }
    }

    pub(super) fn coexist_with(&mut self, other: &LimitVariant) {
        if self.prefix != other.prefix {
            return;
        }
        self.numbers.coexist_with(&other.numbers);
        for ours in self.overrides.values_mut().filter(|it| it.separate.is_none()) {
            ours.numbers.coexist_with(&other.numbers);
        }
        for (bucket, theirs) in other.overrides.iter().filter(|(_, it)| it.separate.is_none()) {
            let ours = self
                .overrides
                .entry(*bucket)
                .or_insert_with(|| KeyOverride { numbers: self.numbers.clone(), separate: None });
            if ours.separate.is_none() {
                ours.numbers.coexist_with(&theirs.numbers);
            }
        }
    }
}

impl KeyOverride {
    fn prefix(&self, variant: &LimitVariant) -> u64 {
        self.separate.as_ref().map_or(variant.prefix, |separate| separate.prefix)
    }
}

impl BucketNaming<'_> {
    fn prefix(&self, limit: &Limit, plan: Option<&String>, window_us: Option<u64>) -> BucketPrefix {
        // With another key or another algorithm, a limit starts with empty buckets.
        let mut kind = format!("{} {}", limit.policy.kind(), limit.key);
        if let Some(window_us) = window_us {
            kind = format!("{kind} every {window_us}us");
        }
        let prefix = self.hasher.limit_prefix(&limit.name, &kind);
        let plan_prefix = |plan: &String| self.hasher.plan_prefix(prefix, plan);
        let shared =
            |start| key_format::prefix(start, &limit.name, &kind, plan.map(String::as_str));
        BucketPrefix { prefix: plan.map_or(prefix, plan_prefix), shared: self.shared.map(shared) }
    }

    /// The bucket of a key that an operator has written down, and its name in a shared store.
    fn bucket(&self, key: &NormalizedKey, start: &BucketPrefix) -> (BucketId, Vec<u8>) {
        let mut bucket = self.hasher.start(start.prefix);
        let mut name = start.shared.clone().unwrap_or_default();
        for (kind, bytes) in &key.parts {
            bucket.part(*kind as u8, bytes);
            if start.shared.is_some() {
                key_format::push_part(&mut name, *kind, bytes);
            }
        }
        (bucket.finish(), name)
    }
}
