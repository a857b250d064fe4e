//! A configuration, made ready to be served: names resolved, texts written, metrics looked up.

use std::sync::Arc;

use http::{HeaderName, header};

use crate::caller::Addresses;
use crate::config::Settings;
use crate::config::settings::StoreKind;
use crate::limit::{Limit, Source};
use crate::respond::rate_headers::PolicyText;
use crate::respond::refusal::RefusalText;
use crate::route::Table;
use crate::store::BucketHasher;
use crate::store::redis::name;
use crate::telemetry::{Lines, Metrics};

/// What all workers share of one configuration.
#[derive(Debug)]
pub struct Compiled {
    pub settings: Arc<Settings>,
    pub table: Table,
    pub addresses: Addresses,
    pub limits: Vec<Rule>,
    /// The headers that limits count by.
    pub counted: Vec<HeaderName>,
    /// Those of them that have a `_`, written with `-`.
    pub doubles: Vec<String>,
    /// Whether the host is one of them.
    pub counts_host: bool,
    pub metrics: Metrics,
    pub access_log: Option<Lines>,
}

/// A limit with everything a request needs of it.
#[derive(Debug)]
pub struct Rule {
    /// Its place in the configuration.
    pub index: usize,
    pub limit: Limit,
    /// What the names of its buckets start from.
    pub prefix: u64,
    /// The same in a store that is shared with other gateways.
    pub shared_prefix: Option<Vec<u8>>,
    pub policy_text: PolicyText,
    pub refusal_text: RefusalText,
}

impl Compiled {
    #[must_use]
    pub fn new(
        settings: Arc<Settings>,
        hasher: &BucketHasher,
        metrics: &Metrics,
        access_log: Option<Lines>,
    ) -> Self {
        let limits = settings.limits.iter().enumerate();
        let shared = match &settings.store.kind {
            StoreKind::Memory => None,
            StoreKind::Redis(redis) => Some(redis.prefix.as_str()),
        };
        let limits = limits.map(|(index, limit)| Rule::new(index, limit, hasher, shared)).collect();
        let sources = settings.limits.iter().flat_map(|limit| &limit.key.0);
        let counted = sources.filter_map(|source| match source {
            Source::Header(name) => Some(name.clone()),
            _ => None,
        });
        let counted: Vec<_> = counted.collect();
        Compiled {
            table: Table::new(&settings.routes),
            addresses: Addresses::new(&settings.identity),
            limits,
            doubles: counted
                .iter()
                .filter(|name| name.as_str().contains('_'))
                .map(|name| name.as_str().replace('_', "-"))
                .collect(),
            counts_host: counted.contains(&header::HOST),
            counted,
            metrics: metrics.clone(),
            access_log,
            settings,
        }
    }
}

impl Rule {
    fn new(index: usize, limit: &Limit, hasher: &BucketHasher, shared: Option<&str>) -> Self {
        // A limit that counts by something else, or in another way, starts afresh.
        let kind = format!("{} {}", limit.policy.algorithm(), limit.key);
        Rule {
            index,
            prefix: hasher.limit_prefix(&limit.name, &kind),
            shared_prefix: shared.map(|prefix| name::prefix(prefix, &limit.name, &kind)),
            policy_text: PolicyText::new(limit),
            refusal_text: RefusalText::new(limit),
            limit: limit.clone(),
        }
    }
}
