//! Requests of random trees of tenants, as the gateway plans them, against a naive model that walks the
//! tree by the table of the engine's semantics. What holds for a single bucket is in
//! [`tenant_tree`](crate::tenant_tree).

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method, Uri};
use proptest::prelude::*;
use weir::caller::Peer;
use weir::clock::{Clock, Micros};
use weir::config;
use weir::gateway::plan::{Planner, RequestHead, RequestInputs, RequestPlan};
use weir::gateway::{Compiled, ExternalSnapshot};
use weir::limit::tenants::{BudgetMode, Sharing, Tenant, TenantIndex, TenantTree};
use weir::store::{BucketHasher, BucketId};
use weir::telemetry::{Metrics, UserScores};
use weir::trust::TrustTable;

use crate::decider::{Ask, CheckMode, Decider, Engine, on_every_engine};
use crate::reference_model::Model;
use crate::strategies::{cases, start};

on_every_engine! {
    a_request_is_charged_to_every_ancestor_it_has_to_pass_or_to_nobody
}

/// A tenant of a random tree. Counts and windows are powers of two, so that nothing is rounded.
#[derive(Debug, Clone)]
struct Node {
    parent: Option<usize>,
    count_bits: u32,
    window_bits: u32,
    has_rate: bool,
    burst: Option<u64>,
    algorithm: Option<&'static str>,
    sharing: &'static str,
    mode: &'static str,
}

const ALGORITHMS: [&str; 3] = ["token_bucket", "sliding_window", "fixed_window"];

fn node() -> impl Strategy<Value = Node> {
    (
        prop::option::weighted(0.8, any::<usize>()),
        (2..6_u32, 0..4_u32),
        prop::bool::weighted(0.6),
        prop::option::weighted(0.5, 4..40_u64),
        prop::option::weighted(0.3, prop::sample::select(&ALGORITHMS[..])),
        prop::sample::select(&["private", "inherit", "enforce", "enforce"][..]),
        prop::sample::select(&["unlimited", "allocated", "shared", "guaranteed", "guaranteed"][..]),
    )
        .prop_map(|(parent, bits, has_rate, burst, algorithm, sharing, mode)| Node {
            parent,
            count_bits: bits.0,
            window_bits: bits.1,
            has_rate,
            burst,
            algorithm,
            sharing,
            mode,
        })
}

/// The tree as a configuration has it. A parent comes before its children.
fn text(nodes: &[Node], with_budgets: bool) -> String {
    let mut text = String::from(
        "[identity]\ntenant = \"header:x-tenant\"\n\
         [limits.tenants]\ncost = { from = \"header:x-cost\", default = 1, max = 1000 }\n\
         [[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"echo\"\nlimits = [\"tenants\"]\n",
    );
    let parent = |at: usize| nodes[at].parent.filter(|_| at > 0).map(|parent| parent % at);
    for (at, node) in nodes.iter().enumerate() {
        let _ = writeln!(text, "[tenants.t{at}]\nsharing = {:?}", node.sharing);
        if let Some(parent) = parent(at) {
            let _ = writeln!(text, "parent = \"t{parent}\"");
        }
        let needs_rate = parent(at).is_none_or(|parent| nodes[parent].sharing == "private");
        if node.has_rate || needs_rate {
            let (count, seconds) = (1 << node.count_bits, 1 << node.window_bits);
            let _ = writeln!(text, "rate = \"{count}/{seconds}s\"");
        }
        if let Some(burst) = node.burst {
            let _ = writeln!(text, "burst = {burst}");
        }
        if let Some(algorithm) = node.algorithm {
            let _ = writeln!(text, "algorithm = {algorithm:?}");
        }
        let children = (0..nodes.len()).filter(|child| parent(*child) == Some(at));
        let children: Vec<usize> = children.collect();
        let total = 1_u64 << node.count_bits;
        match (node.mode, &children[..]) {
            _ if !with_budgets => {}
            ("guaranteed", []) => {}
            ("guaranteed", [child]) => {
                let guaranteed = format!("{{ t{child} = {} }}", total / 2);
                let _ = writeln!(
                    text,
                    "budget = {{ mode = \"guaranteed\", total = {total}, guaranteed = {guaranteed} }}"
                );
            }
            ("guaranteed", [one, two, ..]) => {
                let part = total / 4;
                let guaranteed = format!("{{ t{one} = {part}, t{two} = {part} }}");
                let _ = writeln!(
                    text,
                    "budget = {{ mode = \"guaranteed\", total = {total}, guaranteed = {guaranteed} }}"
                );
            }
            ("allocated", _) => {
                let _ = writeln!(text, "budget = {{ mode = \"allocated\", total = 1000 }}");
            }
            (mode, _) => {
                let _ = writeln!(text, "budget = {{ mode = {mode:?} }}");
            }
        }
    }
    text
}

#[derive(Debug, Clone)]
struct Step {
    tenant: usize,
    cost: u64,
    gap_us: u64,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let cost = prop_oneof![4 => 1..4_u64, 1 => 1..40_u64];
    let gap = prop_oneof![4 => Just(0), 3 => 0..400_000_u64, 1 => 0..9_000_000_u64];
    let step = (any::<usize>(), cost, gap);
    let step = step.prop_map(|(tenant, cost, gap_us)| Step { tenant, cost, gap_us });
    prop::collection::vec(step, 1..120)
}

/// Which bucket of which tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Part {
    Own(String),
    Pool(String),
    GuaranteeOf(String),
}

/// The buckets of a tree, and for each that is split, the one that it was.
struct NaiveTree<'t> {
    tree: &'t TenantTree,
    models: HashMap<Part, Model>,
    whole: HashMap<String, Model>,
}

impl<'t> NaiveTree<'t> {
    fn new(tree: &'t TenantTree) -> Self {
        let (mut models, mut whole) = (HashMap::new(), HashMap::new());
        for tenant in tree.tenants() {
            let name = tenant.spec.name.clone();
            models.insert(Part::Own(name.clone()), Model::new(&tenant.effective));
            whole.insert(name.clone(), Model::new(&tenant.effective));
            if let Some(pool) = &tenant.pool {
                models.insert(Part::Pool(name.clone()), Model::new(pool));
            }
            if let Some(guarantee) = &tenant.guarantee {
                models.insert(Part::GuaranteeOf(name), Model::new(guarantee));
            }
        }
        NaiveTree { tree, models, whole }
    }

    /// Tenant by tenant, its own first, the buckets of which one has to admit. `None` if the tenant's
    /// own callers have nothing.
    fn levels(&self, of: TenantIndex) -> Option<Vec<(&'t Tenant, Vec<Part>)>> {
        let mut levels = Vec::new();
        let (mut at, mut through): (_, Option<&Tenant>) = (of, None);
        loop {
            let tenant = &self.tree[at];
            let name = tenant.spec.name.clone();
            let buckets = match &tenant.spec.budget.mode {
                BudgetMode::Guaranteed(named) if tenant.spec.sharing != Sharing::Private => {
                    let child = through.map(|it| it.spec.name.clone());
                    let child = child.filter(|child| named.iter().any(|(name, _)| name == child));
                    let mut buckets: Vec<Part> = child.map(Part::GuaranteeOf).into_iter().collect();
                    buckets.extend(tenant.pool.map(|_| Part::Pool(name)));
                    buckets
                }
                _ => vec![Part::Own(name)],
            };
            if buckets.is_empty() {
                return None;
            }
            levels.push((tenant, buckets));
            let Some(parent) = tenant.parent else { return Some(levels) };
            let spec = &self.tree[parent].spec;
            let draws = matches!(spec.budget.mode, BudgetMode::Shared | BudgetMode::Guaranteed(_));
            match spec.sharing {
                Sharing::Enforce => {}
                Sharing::Inherit if draws => {}
                Sharing::Inherit | Sharing::Private => return Some(levels),
            }
            (at, through) = (parent, Some(tenant));
        }
    }

    /// Whether a request passes, which is charged then.
    fn decide(&mut self, now: Micros, levels: &[(&Tenant, Vec<Part>)], cost: u64) -> bool {
        let first_that_admits = |buckets: &Vec<Part>| {
            buckets.iter().find(|it| self.models[*it].refusal(now, cost).is_none()).cloned()
        };
        let chosen: Option<Vec<Part>> =
            levels.iter().map(|(_, buckets)| first_that_admits(buckets)).collect();
        let Some(chosen) = chosen else { return false };
        for bucket in chosen {
            self.models.get_mut(&bucket).expect("a bucket").charge(now, cost);
        }
        for (tenant, _) in levels {
            let whole = self.whole.get_mut(&tenant.spec.name).expect("a tenant");
            assert_eq!(whole.refusal(now, cost), None, "the parts of {:?}", tenant.spec);
            whole.charge(now, cost);
        }
        true
    }
}

/// What plans requests of a tree.
struct Plans {
    compiled: Compiled,
    hasher: BucketHasher,
    trust: TrustTable,
}

impl Plans {
    /// If all of it fits together.
    fn of(text: &str) -> Option<Self> {
        let loaded = config::parse("tenants.toml", text).ok()?;
        let (settings, metrics) = (Arc::new(loaded.settings), Metrics::new());
        let hasher = BucketHasher::with_secret(&[7; 16]);
        let external = ExternalSnapshot::default();
        let compiled = Compiled::new(settings, &hasher, &metrics, None, external);
        let trust = TrustTable::new(1, false, &UserScores::new(), Clock::manual(Micros(0)));
        Some(Plans { compiled, hasher, trust })
    }
}

fn headers(tenant: &str, cost: u64) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in [("x-tenant", tenant), ("x-cost", &cost.to_string())] {
        headers.insert(name, HeaderValue::from_str(value).expect("a value"));
    }
    headers
}

fn a_request_is_charged_to_every_ancestor_it_has_to_pass_or_to_nobody<E: Engine>(engine: &E) {
    let nodes = prop::collection::vec(node(), 1..9);
    proptest!(cases(3 * E::CASES), |(
        nodes in nodes, start in start(), steps in steps(),
    )| {
        // Most budgets fit; where one does not, the tree is tried without.
        let plans = Plans::of(&text(&nodes, true)).or_else(|| Plans::of(&text(&nodes, false)));
        let plans = plans.expect("without budgets everything fits");
        let tree = plans.compiled.tenants.tree();
        let mut naive = NaiveTree::new(tree);
        let (mut decider, mut now) = (engine.fresh(), start);
        let mut keys: HashMap<BucketId, u64> = HashMap::new();
        let (peer, uri) = (Peer::new(([10, 0, 0, 1], 1).into()), Uri::from_static("/"));
        for step in steps {
            now = Micros(now.0 + step.gap_us);
            let name = format!("t{}", step.tenant % nodes.len());
            let of = tree.find(name.as_bytes()).expect("a tenant");
            let headers = headers(&name, step.cost);
            let head = RequestHead { method: &Method::GET, uri: &uri, headers: &headers };
            let planner = Planner {
                compiled: &plans.compiled,
                hasher: &plans.hasher,
                via: "weir-1",
                trust: &plans.trust,
            };
            let inputs = RequestInputs { token: None, body: None, certificate: None };
            let plan = RequestPlan::of(planner, head, &peer, inputs);
            let Some(levels) = naive.levels(of) else {
                prop_assert!(plan.is_err(), "{name} has nothing");
                continue;
            };
            let plan = plan.expect("a plan");
            let mut asks = Vec::new();
            for check in &plan.limits.checks {
                let next = keys.len() as u64;
                let key = *keys.entry(check.bucket).or_insert(next);
                let mode = CheckMode { choice: check.choice, ..CheckMode::default() };
                asks.push((Ask { policy: check.policy, key, cost: check.cost }, mode));
            }
            let buckets: usize = levels.iter().map(|(_, buckets)| buckets.len()).sum();
            prop_assert_eq!(asks.len(), buckets);
            let outcome = decider.decide_as(now, &asks);
            prop_assert_eq!(outcome.admitted, naive.decide(now, &levels, step.cost), "{}", name);
            // All buckets hold what they should, those of levels that did not refuse as well.
            let parts = levels.iter().flat_map(|(_, buckets)| buckets);
            for (answer, part) in outcome.answers.iter().zip(parts) {
                prop_assert_eq!(answer.report, naive.models[part].report(now), "{:?}", part);
            }
        }
    });
}
