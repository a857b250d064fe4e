//! A configuration, made ready to be served: names resolved, texts written, metrics looked up.
//!
//! Made once for each reload and shared by all workers. Requests are planned from it alone
//! ([`plan`](super::plan)).

mod field_rules;
mod guard;
mod limit;
mod needs;
mod route;
mod scored;
mod tenants;
mod variant;

use std::sync::Arc;

use hashbrown::HashMap;
use http::header;

use field_rules::field_rules;
pub(super) use guard::CompiledGuard;
pub(super) use limit::CompiledLimit;
pub(super) use needs::{RouteNeeds, condition_sources};
pub(super) use route::{CompiledRoute, RouteLimit, UpstreamPath};
pub(super) use scored::Numbers;
pub(super) use tenants::NamedBucket;
pub use tenants::{CompiledBucket, CompiledTenants};
pub(super) use variant::LimitVariant;

use super::plan::RouteAffinity;
use super::worker_config::NO_ROUTE;
use crate::caller::jwt::Verifier;
use crate::caller::{AccessLists, Addresses, Identity};
use crate::config::Settings;
use crate::config::settings::Route;
use crate::forward::field_rules::FieldRules;
use crate::limit::tenants::TenantTree;
use crate::limit::{Limit, Mode, Strategy};
use crate::overrides::ActiveOverrides;
use crate::route::RouteTable;
use crate::store::BucketHasher;
use crate::telemetry::{CallerNames, Metrics, RequestRecorder, SeriesNames};
use crate::tenants::MergedTenants;
use variant::BucketNaming;

/// What all workers share of one configuration. What can be large and follows from the settings
/// alone is shared further, between configurations that differ in overrides.
#[derive(Debug, Clone)]
pub struct Compiled {
    pub settings: Arc<Settings>,
    pub table: Arc<RouteTable>,
    pub addresses: Addresses,
    /// The limits of the configuration, in its order, then their candidates, then what tenants have:
    /// one for those that are not in the tree, and one for each level.
    pub limits: Vec<Arc<CompiledLimit>>,
    /// The same without overrides and levels.
    plain_limits: Arc<[Arc<CompiledLimit>]>,
    /// The tree that holds, where there is one.
    pub tenants: Arc<CompiledTenants>,
    /// The same without the numbers of others: see [`Compiled::coexisting_with`].
    plain_tenants: Arc<CompiledTenants>,
    /// The guards of the configuration, in its order.
    pub guards: Arc<[CompiledGuard]>,
    /// What the ids of users start from.
    pub trust_prefix: u64,
    /// One for each route of the settings.
    pub routes: Arc<[CompiledRoute]>,
    /// What each route has to know of a request.
    pub needs: Vec<RouteNeeds>,
    pub identity: Arc<Identity>,
    /// Verifies tokens, where the configuration says how.
    pub verifier: Option<Arc<Verifier>>,
    /// Whether a request without a valid token is refused.
    pub token_required: bool,
    /// The allow and deny lists of the configuration, and those of the overrides. Empty if neither
    /// names anybody.
    pub access: Vec<Arc<AccessLists>>,
    /// Which fields pass, on all routes.
    pub(crate) field_rules: Arc<FieldRules>,
    /// Whether callers are told apart by the host.
    pub counts_host: bool,
    /// How logs name callers.
    pub names: CallerNames,
    pub metrics: Metrics,
    /// What is kept of each request, if anything is.
    pub recorder: Option<RequestRecorder>,
}

/// A configuration as workers have it. The tree, which is large and changes at run time, is apart: a
/// request needs it until it is decided, and the rest until it is answered.
#[derive(Debug, Clone)]
pub struct ServedConfig {
    /// Without the tree.
    pub compiled: Arc<Compiled>,
    pub tree: Arc<TenantTree>,
}

/// What a configuration is served with besides its settings.
#[derive(Debug, Clone, Default)]
pub struct ExternalSnapshot {
    pub verifier: Option<Arc<Verifier>>,
    pub access: Option<Arc<AccessLists>>,
    pub overrides: ActiveOverrides,
    /// The tenants of the settings with those that were made at run time, if there are such.
    pub tenants: Option<Arc<MergedTenants>>,
    /// The tree that was announced and does not hold yet, if there is one: other gateways may serve
    /// it before this one does.
    pub announced_tenants: Option<Arc<TenantTree>>,
}

impl Compiled {
    pub fn new(
        settings: Arc<Settings>,
        hasher: &BucketHasher,
        metrics: &Metrics,
        recorder: Option<RequestRecorder>,
        external: ExternalSnapshot,
    ) -> Self {
        let identity = Identity::new(&settings.identity);
        let addresses = Addresses::new(&settings.identity);
        let candidates: Vec<(usize, Limit)> =
            settings.limits.iter().enumerate().filter_map(candidate).collect();
        let limits = settings.limits.iter().chain(candidates.iter().map(|(_, limit)| limit));
        let unknown = tenants::unknown_limit(&settings.tenants.limit);
        let limits = limits.chain([&unknown]);
        let naming = naming(&settings, hasher, &addresses);
        let limits: Arc<[Arc<CompiledLimit>]> = limits
            .enumerate()
            .map(|(index, it)| Arc::new(CompiledLimit::new(index, it, naming, &[], metrics)))
            .collect();
        let with_candidate = |index: usize| {
            let candidate = candidates.iter().position(|(of, _)| *of == index);
            [Some(index), candidate.map(|it| settings.limits.len() + it)].into_iter().flatten()
        };
        let route = |route: &Route| {
            let enabled = route.limits.iter().filter(|index| settings.limits[**index].enabled);
            let applied = enabled.flat_map(|index| with_candidate(*index));
            let tenants = limits.last().filter(|it| route.tenants && it.limit.enabled);
            let affinity = RouteAffinity::new(route, &settings);
            CompiledRoute::new(route, applied.map(|it| &*limits[it]), tenants, affinity)
        };
        let guards = settings.guards.iter().enumerate();
        let guards: Arc<[CompiledGuard]> =
            guards.map(|(index, it)| CompiledGuard::new(index, it, naming, metrics)).collect();
        let routes: Arc<[CompiledRoute]> = settings.routes.iter().map(route).collect();
        let table = RouteTable::new(&settings.routes);
        let mut rules = field_rules(&settings, &identity, &routes);
        rules.by_method |= table.by_method();
        rules.degrades = limits.iter().any(|limit| limit.degrades());
        rules.has_ids = recorder.is_some();
        let (tree, limit) = (settings.tenants.tree.clone(), &settings.tenants.limit);
        let tenants = Arc::new(CompiledTenants::new(tree, limit, naming, None));
        let compiled = Compiled {
            table: Arc::new(table),
            addresses,
            limits: Vec::new(),
            plain_limits: limits,
            plain_tenants: tenants.clone(),
            tenants,
            guards,
            // No limit can have such a name.
            trust_prefix: hasher.limit_prefix("@trust", "user"),
            routes,
            needs: Vec::new(),
            verifier: None,
            token_required: settings.identity.jwt.as_ref().is_some_and(|jwt| jwt.required),
            access: Vec::new(),
            counts_host: rules.key_headers.contains(&header::HOST),
            field_rules: Arc::new(rules),
            identity: Arc::new(identity),
            names: CallerNames::configured(&settings.telemetry),
            metrics: metrics.clone(),
            recorder,
            settings,
        };
        compiled.with(hasher, external)
    }

    /// The same settings with other overrides, lists or keys: only limits that have an override are
    /// made anew.
    pub fn with(&self, hasher: &BucketHasher, external: ExternalSnapshot) -> Self {
        let overridden = external.overrides.access().map(Arc::new);
        let access: Vec<Arc<AccessLists>> = external.access.into_iter().chain(overridden).collect();
        let needs = self.routes.iter().map(|route| {
            let limits = route.limits.iter().chain(&route.tenants);
            let limits = limits.map(|it| &self.plain_limits[it.limit].limit);
            let guards = route.guards.iter().map(|it| &self.guards[*it].guard);
            let mut needs =
                RouteNeeds::of(limits, guards, &self.identity, &self.settings.trust, &access);
            if route.is_forwarded {
                needs.add_forwarded(&self.settings.identity.forward, &self.identity);
            }
            let needs =
                if route.tenants.is_some() { needs.with_tenant(&self.identity) } else { needs };
            let hashed_by = route.affinity.iter().flat_map(RouteAffinity::keys);
            hashed_by.fold(needs, |needs, key| needs.with_key(key, &self.identity))
        });
        let needs = needs.collect();
        let (overrides, mut limits) = (external.overrides.overrides(), self.plain_limits.to_vec());
        let naming = naming(&self.settings, hasher, &self.addresses);
        for compiled in limits.iter_mut().filter(|_| !overrides.is_empty()) {
            let limit = &compiled.limit;
            if let Some(numbers) = overrides.get(limit.name.as_str()) {
                let index = compiled.index;
                let overridden = CompiledLimit::new(index, limit, naming, numbers, &self.metrics);
                *compiled = Arc::new(overridden);
            }
        }
        let plain_tenants = self.tenants_of(external.tenants.as_ref().map(|it| &it.tree), naming);
        let levels = 1..=plain_tenants.tree().levels();
        limits.extend(levels.map(|level| self.level(level, naming)));
        let (mut tenants, verifier) = (plain_tenants.clone(), external.verifier);
        if let Some(announced) = &external.announced_tenants {
            let announced = self.tenants_of(Some(announced), naming);
            Arc::make_mut(&mut tenants).coexist_with(&announced);
        }
        Compiled { limits, needs, access, tenants, plain_tenants, verifier, ..self.clone() }
    }

    /// The tree that holds, compiled.
    fn tenants_of(
        &self,
        tree: Option<&Arc<TenantTree>>,
        naming: BucketNaming<'_>,
    ) -> Arc<CompiledTenants> {
        let tree = tree.unwrap_or(&self.settings.tenants.tree);
        let before = &self.plain_tenants;
        if Arc::ptr_eq(tree, before.tree()) {
            return before.clone();
        }
        let limit = &self.settings.tenants.limit;
        Arc::new(CompiledTenants::new(tree.clone(), limit, naming, Some(before)))
    }

    /// What all tenants on a level have in common.
    fn level(&self, level: usize, naming: BucketNaming<'_>) -> Arc<CompiledLimit> {
        let index = self.first_level() + level - 1;
        self.limits.get(index).cloned().unwrap_or_else(|| {
            let limit = tenants::level_limit(&self.settings.tenants.limit, level);
            Arc::new(CompiledLimit::new(index, &limit, naming, &[], &self.metrics))
        })
    }

    /// Where in [`Compiled::limits`] that of the roots is, if there are tenants.
    pub fn first_level(&self) -> usize {
        self.plain_limits.len()
    }

    /// The same for workers.
    pub fn served(&self) -> ServedConfig {
        let tree = self.tenants.tree().clone();
        ServedConfig { compiled: Arc::new(self.clone().numbers_only()), tree }
    }

    /// As much of it as is needed to remember which numbers were served.
    pub fn numbers_only(mut self) -> Self {
        self.tenants = Arc::new(self.tenants.without_tree());
        self.plain_tenants = self.tenants.clone();
        self
    }

    /// The same while other workers or gateways serve another: see [`CompiledLimit::coexist_with`].
    pub fn coexisting_with(mut self, other: &Compiled) -> Self {
        if !Arc::ptr_eq(&self.tenants, &other.tenants) {
            Arc::make_mut(&mut self.tenants).coexist_with(&other.tenants);
        }
        if Arc::ptr_eq(&self.settings, &other.settings) {
            for (limit, same) in self.limits.iter_mut().zip(&other.limits) {
                // Most have no override in either.
                if !Arc::ptr_eq(limit, same) {
                    Arc::make_mut(limit).coexist_with(same);
                }
            }
            return self;
        }
        let others: HashMap<u64, &CompiledLimit> =
            other.limits.iter().map(|limit| (limit.default_variant.prefix, &**limit)).collect();
        for limit in &mut self.limits {
            if let Some(same) = others.get(&limit.default_variant.prefix) {
                Arc::make_mut(limit).coexist_with(same);
            }
        }
        self
    }

    /// The names that its metrics carry.
    pub fn series(&self) -> SeriesNames<'_> {
        let routes = self.settings.routes.iter().map(|route| route.name.as_str());
        SeriesNames {
            routes: routes.chain([NO_ROUTE]).collect(),
            limits: self.limits.iter().map(|it| it.limit.name.as_str()).collect(),
            guards: self.guards.iter().map(|it| &*it.name).collect(),
            upstreams: self.settings.upstreams.iter().map(|it| it.name.as_str()).collect(),
        }
    }
}

/// How the buckets of a configuration are named.
fn naming<'a>(
    settings: &'a Settings,
    hasher: &'a BucketHasher,
    addresses: &'a Addresses,
) -> BucketNaming<'a> {
    BucketNaming { hasher, shared: settings.store.kind.key_prefix(), addresses }
}

/// A limit's candidate, as a limit beside it that only watches. No limit of the configuration can
/// have such a name.
fn candidate((index, limit): (usize, &Limit)) -> Option<(usize, Limit)> {
    let policy = limit.candidate?;
    let candidate = Limit {
        name: format!("{}:candidate", limit.name),
        policy,
        mode: Mode::Shadow,
        strategy: Strategy::Reject,
        response_headers: false,
        candidate: None,
        // They have the limit's algorithm, which need not be the candidate's.
        plans: Vec::new(),
        ..limit.clone()
    };
    Some((index, candidate))
}
