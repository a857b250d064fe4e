//! A configuration, made ready to be served: names resolved, texts written, metrics looked up.

use std::sync::Arc;

use hashbrown::HashMap;
use http::{HeaderName, header};

use super::live::NO_ROUTE;
use super::rule::{Naming, Rule};
use crate::caller::identity::Wanted;
use crate::caller::jwt::Verifier;
use crate::caller::{Access, Addresses, Identity};
use crate::config::Settings;
use crate::config::settings::{Route, StoreKind};
use crate::limit::{Cost, Limit, Mode, Source, Strategy, What};
use crate::route::Table;
use crate::rulings::Rulings;
use crate::store::BucketHasher;
use crate::telemetry::{CallerNames, Lines, Metrics, Series};

/// What all workers share of one configuration.
#[derive(Debug)]
pub struct Compiled {
    pub settings: Arc<Settings>,
    pub table: Table,
    pub addresses: Addresses,
    /// Those of the configuration, in its order, and then their candidates.
    pub limits: Vec<Rule>,
    /// For each route what applies to it, and what has to be known of its callers.
    pub applied: Vec<Vec<RouteLimit>>,
    pub needs: Vec<Needs>,
    pub identity: Identity,
    /// Who can tell which tokens are to be believed.
    pub verifier: Option<Arc<Verifier>>,
    /// Whether a request without such a token gets no further.
    pub token_required: bool,
    /// Who is never limited, and who never gets in: as the configuration says, and as operators have
    /// decided. Empty if that is nobody.
    pub access: Vec<Arc<Access>>,
    /// Whether requests may be marked as degraded, which is not for a client to do.
    pub degrades: bool,
    /// Whether a route or a limit asks for the method, which no header may override then.
    pub by_method: bool,
    /// The headers that callers are told apart by.
    pub counted: Vec<HeaderName>,
    /// Those of them that have a `_`, written with `-`.
    pub doubles: Vec<String>,
    /// Whether the host is one of them.
    pub counts_host: bool,
    /// How logs name callers.
    pub names: CallerNames,
    pub metrics: Metrics,
    pub access_log: Option<Lines>,
}

/// What has to be found out about a request before its limits are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    pub who: Wanted,
    /// A token, if it has one.
    pub token: bool,
    /// The beginning of its body, if that is a form.
    pub form: bool,
}

impl Needs {
    fn add(&mut self, source: &Source, identity: &Identity) {
        match source {
            Source::User => self.who.user = true,
            Source::Client => self.who.client = true,
            Source::Tenant => self.who.tenant = true,
            Source::Plan => self.who.plan = true,
            _ => {}
        }
        for source in identity.sources(source) {
            self.token |= matches!(source, Source::Jwt(_));
            self.form |= matches!(source, Source::Form(_));
        }
    }

    /// A plan or tenant may be that of a client.
    fn add_plan(&mut self, identity: &Identity) {
        for source in [Source::Plan, Source::Client] {
            self.add(&source, identity);
        }
    }
}

/// What a configuration is served with besides its settings.
#[derive(Debug, Clone, Default)]
pub struct Outside {
    pub verifier: Option<Arc<Verifier>>,
    pub access: Option<Arc<Access>>,
    pub rulings: Rulings,
}

/// A limit on a route.
#[derive(Debug)]
pub struct RouteLimit {
    /// An index into [`Compiled::limits`].
    pub rule: usize,
    pub cost: Cost,
    /// What it costs is charged when the response is known.
    pub later: bool,
}

impl Compiled {
    /// The same while others serve another: see [`Rule::know`].
    #[must_use]
    pub fn knowing(mut self, other: &Compiled) -> Self {
        let others: HashMap<u64, &Rule> =
            other.limits.iter().map(|rule| (rule.own.prefix, rule)).collect();
        for rule in &mut self.limits {
            if let Some(same) = others.get(&rule.own.prefix) {
                rule.know(same);
            }
        }
        self
    }

    #[must_use]
    pub fn new(
        settings: Arc<Settings>,
        hasher: &BucketHasher,
        metrics: &Metrics,
        access_log: Option<Lines>,
        outside: Outside,
    ) -> Self {
        let identity = Identity::new(&settings.identity);
        let addresses = Addresses::new(&settings.identity);
        let decided = outside.rulings.access().map(Arc::new);
        let access: Vec<Arc<Access>> = outside.access.into_iter().chain(decided).collect();
        let shared = match &settings.store.kind {
            StoreKind::Memory => None,
            StoreKind::Redis(redis) => Some(redis.prefix.as_str()),
        };
        let candidates: Vec<(usize, Limit)> =
            settings.limits.iter().enumerate().filter_map(candidate).collect();
        let limits = settings.limits.iter().chain(candidates.iter().map(|(_, limit)| limit));
        let naming = Naming { hasher, shared, addresses: &addresses };
        let limits: Vec<Rule> = limits
            .enumerate()
            .map(|(index, limit)| Rule::new(index, limit, naming, &outside.rulings, metrics))
            .collect();
        let rules_of = |index: usize| {
            let beside = candidates.iter().position(|(of, _)| *of == index);
            [Some(index), beside.map(|place| settings.limits.len() + place)].into_iter().flatten()
        };
        let applied = |route: &Route| {
            let enabled = route.limits.iter().filter(|index| settings.limits[**index].enabled);
            enabled.flat_map(|index| rules_of(*index)).map(|rule| limits[rule].on(route)).collect()
        };
        let applied: Vec<Vec<RouteLimit>> = settings.routes.iter().map(applied).collect();
        let needs = applied.iter().map(|applied| {
            let rules = applied.iter().map(|it| &limits[it.rule].limit);
            needs_of(rules, &identity, &access)
        });
        let needs: Vec<Needs> = needs.collect();
        let keys = settings.limits.iter().flat_map(|limit| &limit.key.0);
        let keys = keys.chain(settings.limits.iter().flat_map(asked));
        let keys = keys.flat_map(|source| identity.sources(source));
        // Whoever the caller is said to be, nobody but it says so: be it for a plan or a list.
        let named = [&identity.user, &identity.client, &identity.tenant, &identity.plan];
        let keys = keys.chain(named.into_iter().flatten());
        let keys = keys.filter_map(|source| match source {
            Source::Header(name) => Some(name.clone()),
            _ => None,
        });
        let costs = applied.iter().flatten().filter_map(|limit| limit.cost.header().cloned());
        let mut counted: Vec<HeaderName> = Vec::new();
        let address = settings.identity.address_header.clone();
        for name in keys.chain(costs).chain(address) {
            if !counted.contains(&name) {
                counted.push(name);
            }
        }
        let table = Table::new(&settings.routes);
        let by_method = |limit: &Limit| limit.when.iter().any(|it| it.what == What::Method);
        Compiled {
            by_method: table.by_method() || settings.limits.iter().any(by_method),
            table,
            addresses,
            degrades: limits.iter().any(Rule::degrades),
            limits,
            applied,
            needs,
            verifier: outside.verifier,
            token_required: settings.identity.jwt.as_ref().is_some_and(|jwt| jwt.required),
            access,
            doubles: counted
                .iter()
                .filter(|name| name.as_str().contains('_'))
                .map(|name| name.as_str().replace('_', "-"))
                .collect(),
            counts_host: counted.contains(&header::HOST),
            counted,
            identity,
            names: CallerNames { hashed: settings.telemetry.hash_keys },
            metrics: metrics.clone(),
            access_log,
            settings,
        }
    }
}

impl Compiled {
    /// The names that its metrics carry.
    #[must_use]
    pub fn series(&self) -> Series<'_> {
        let routes = self.settings.routes.iter().map(|route| route.name.as_str());
        Series {
            routes: routes.chain([NO_ROUTE]).collect(),
            limits: self.limits.iter().map(|rule| rule.limit.name.as_str()).collect(),
            upstreams: self.settings.upstreams.iter().map(|it| it.name.as_str()).collect(),
        }
    }
}

/// What a limit asks for besides its key.
fn asked(limit: &Limit) -> impl Iterator<Item = &Source> {
    limit.when.iter().filter_map(|condition| match &condition.what {
        What::Source(source) => Some(source),
        What::Method => None,
    })
}

fn needs_of<'a>(
    limits: impl Iterator<Item = &'a Limit>,
    identity: &Identity,
    access: &[Arc<Access>],
) -> Needs {
    let mut needs = Needs::default();
    for limit in limits {
        let sources = limit.key.0.iter().chain(asked(limit));
        for source in sources {
            needs.add(source, identity);
            if matches!(source, Source::Tenant | Source::Plan) {
                needs.add_plan(identity);
            }
        }
        if !limit.plans.is_empty() {
            needs.add_plan(identity);
        }
    }
    for access in access {
        if access.names_users() {
            needs.add(&Source::User, identity);
        }
        if access.names_clients() {
            needs.add(&Source::Client, identity);
        }
    }
    needs
}

/// What a limit's candidate is: a limit beside it that only watches. No limit of the configuration
/// can be called so.
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
