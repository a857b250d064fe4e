//! Plans of heads: no store, no socket, no waiting.

mod routes;

use std::sync::Arc;

use http::{HeaderName, HeaderValue};

use super::*;
use crate::caller::identity::NameSource;
use crate::caller::{AccessLists, AddressSource};
use crate::clock::{Clock, Micros};
use crate::config::parse;
use crate::config::settings::HostPattern;
use crate::gateway::ExternalSnapshot;
use crate::limit::Source;
use crate::limit::trust::{Score, TrustFacts, TrustSums};
use crate::telemetry::{Metrics, UserScores};
use crate::trust::UserEvent;

/// The key of the client `billing`.
const KEY: &str = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";

const CONFIG: &str = r#"
    [identity]
    trusted_proxies = ["10.0.0.0/8"]
    user = ["header:x-user", "form:user"]
    client = "header:x-api-key"
    tenant = "header:x-tenant"

    [access]
    allow = { user = ["ann"] }
    deny = { ip = ["192.0.2.0/24"], user = ["eve"] }

    [[clients]]
    id = "billing"
    key_hash = "sha256:248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
    tenant = "acme"
    plan = "pro"

    [[routes]]
    name = "items"
    host = "*.example.com"
    path = "/api/items/{id}"
    methods = ["POST"]
    upstream = "echo"
    strip_prefix = "/api"
    limits = ["per-ip", "per-client", "writes", "optional", "watched"]
    cost = { from = "header:x-cost", max = 50 }

    [[routes]]
    name = "rest"
    path = "/*"
    upstream = "echo"
    limits = ["per-ip"]

    [limits.per-ip]
    key = "ip"
    rate = "10/second"
    burst = 20

    [limits.per-client]
    key = ["client", "route"]
    rate = "100/minute"
    plans.pro = { rate = "1000/minute" }

    [limits.writes]
    key = "ip"
    when = { method = "GET" }
    rate = "5/second"

    [limits.optional]
    key = "header:x-optional"
    missing = "skip"
    rate = "5/second"

    [limits.watched]
    key = "header:x-watched"
    missing = "deny"
    mode = "shadow"
    rate = "5/second"
"#;

struct Compilation {
    compiled: Compiled,
    hasher: BucketHasher,
    trust: TrustTable,
}

impl Compilation {
    fn of(text: &str) -> Self {
        let loaded = parse("config.toml", text).unwrap_or_else(|error| panic!("{error}"));
        let access = AccessLists::load(&loaded.settings.access).expect("no files");
        let external = ExternalSnapshot { access: Some(Arc::new(access)), ..Default::default() };
        let hasher = BucketHasher::with_secret(&[7; 16]);
        let settings = Arc::new(loaded.settings);
        let compiled = Compiled::new(settings, &hasher, &Metrics::new(), None, external);
        let clock = Clock::manual(Micros(20_000 * 86_400_000_000));
        let trust = TrustTable::new(100, false, &UserScores::new(), clock);
        Compilation { compiled, hasher, trust }
    }

    fn planner(&self) -> Planner<'_> {
        Planner {
            compiled: &self.compiled,
            hasher: &self.hasher,
            via: "weir-1",
            trust: &self.trust,
        }
    }
}

struct Head {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    peer: Peer,
    body: Option<&'static [u8]>,
}

impl Head {
    fn new(method: Method, uri: &str, fields: &[(&str, &str)]) -> Self {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            headers.append(name, HeaderValue::from_str(value).expect("a value"));
        }
        let uri = uri.parse().expect("a target");
        let peer = Peer::new("10.0.0.1:1234".parse().expect("an address"));
        Head { method, uri, headers, peer, body: None }
    }

    fn head(&self) -> RequestHead<'_, '_> {
        RequestHead { method: &self.method, uri: &self.uri, headers: &self.headers }
    }

    fn inputs(&self) -> RequestInputs<'_> {
        RequestInputs { token: None, body: self.body, certificate: None }
    }

    fn plan<'a>(&'a self, planner: Planner<'a>) -> Result<RequestPlan<'a>, Fault> {
        RequestPlan::of(planner, self.head(), &self.peer, self.inputs())
    }
}

fn from(address: &str) -> (&'static str, &str) {
    ("x-forwarded-for", address)
}

#[test]
fn a_plan_names_route_caller_and_limits_with_their_reasons() {
    let compilation = Compilation::of(CONFIG);
    let fields = [
        ("host", "shop.example.com:8080"),
        ("x-api-key", KEY),
        ("x-cost", "7"),
        from("203.0.113.9"),
    ];
    let head = Head::new(Method::POST, "/api/items/42?q=1", &fields);
    let plan = head.plan(compilation.planner()).expect("a plan");

    assert_eq!((plan.route.index, &*plan.route.settings.name), (0, "items"));
    assert_eq!(plan.route.target, "/items/42?q=1");
    let reason = plan.route.reason();
    assert_eq!(*reason.host, HostPattern::Below("example.com".to_owned()));
    assert_eq!((reason.path.segments.len(), reason.methods), (3, &[Method::POST][..]));

    assert_eq!(plan.caller.address.caller.ip.to_string(), "203.0.113.9");
    assert_eq!(plan.caller.address.source, AddressSource::ForwardedFor);
    let api_key = Source::Header(HeaderName::from_static("x-api-key"));
    let names = NameSources {
        user: None,
        client: Some(NameSource::Request(&api_key)),
        tenant: Some(NameSource::ClientRecord),
        plan: Some(NameSource::ClientRecord),
    };
    assert_eq!(plan.caller.names, names);
    assert_eq!(plan.access, AccessVerdict::Neither);

    let planned = plan.limits.limits.iter().zip(&plan.limits.checks);
    let planned: Vec<_> =
        planned.map(|(it, check)| (&*it.limit.name, check.policy.quota(), check.cost)).collect();
    assert_eq!(planned, [("per-ip", 20, 7), ("per-client", 1000, 7)]);
    let skipped: Vec<_> = plan.limits.skipped.iter().map(|it| (it.limit, it.reason)).collect();
    let reasons = [SkipReason::Condition, SkipReason::MissingKey, SkipReason::Unkeyed];
    let skipping = skipped.iter().map(|(index, reason)| {
        (&*compilation.compiled.limits[*index as usize].limit.name, *reason)
    });
    let expected: Vec<_> = ["writes", "optional", "watched"].into_iter().zip(reasons).collect();
    assert_eq!(skipping.collect::<Vec<_>>(), expected);

    let texts = PlanTexts::of(compilation.planner(), &plan, head.head(), head.inputs());
    let texts = texts.expect("texts");
    assert_eq!(texts.keys, ["203.0.113.9", "billing, items"]);
    assert_eq!((texts.user.as_deref(), texts.client.as_deref()), (None, Some("billing")));
    assert_eq!((texts.tenant.as_deref(), texts.plan.as_deref()), (Some("acme"), Some("pro")));
}

#[test]
fn the_same_head_is_always_planned_alike_and_another_caller_has_other_buckets() {
    let compilation = Compilation::of(CONFIG);
    let bucket = |address: &str| {
        let head = Head::new(Method::GET, "/", &[from(address)]);
        let plan = head.plan(compilation.planner()).expect("a plan");
        plan.limits.checks[0].bucket
    };
    assert_eq!(bucket("203.0.113.9"), bucket("203.0.113.9"));
    assert_ne!(bucket("203.0.113.9"), bucket("203.0.113.8"));
}

#[test]
fn access_names_the_list_and_what_it_went_by_and_deny_wins() {
    let compilation = Compilation::of(CONFIG);
    let verdict = |fields: &[(&str, &str)]| {
        let head = Head::new(Method::GET, "/", fields);
        let plan = head.plan(compilation.planner()).expect("a plan");
        assert!(plan.access == AccessVerdict::Neither || plan.limits.checks.is_empty());
        plan.access
    };
    let reason = |by| AccessReason { list: 0, by };
    let by_address = AccessVerdict::Denied(reason(AccessSubject::Address));
    assert_eq!(verdict(&[from("203.0.113.9")]), AccessVerdict::Neither);
    assert_eq!(verdict(&[from("192.0.2.9")]), by_address);
    assert_eq!(verdict(&[from("192.0.2.9"), ("x-user", "ann")]), by_address);
    let allowed = AccessVerdict::Allowed(reason(AccessSubject::User));
    assert_eq!(verdict(&[("x-user", "ann")]), allowed);
    assert_eq!(verdict(&[("x-user", "eve")]), AccessVerdict::Denied(reason(AccessSubject::User)));
}

#[test]
fn a_form_names_the_caller_unless_its_address_is_denied_already() {
    let compilation = Compilation::of(CONFIG);
    let form = ("content-type", "application/x-www-form-urlencoded");
    let mut head = Head::new(Method::POST, "/login", &[from("203.0.113.9"), form]);
    head.body = Some(b"user=ann");
    let plan = head.plan(compilation.planner()).expect("a plan");
    let by_form = Source::Form("user".to_owned());
    assert_eq!(plan.caller.names.user, Some(NameSource::Request(&by_form)));
    assert!(plan.access.is_allowed());

    // Not even a form that says two things is looked at.
    let mut head = Head::new(Method::POST, "/login", &[from("192.0.2.9"), form]);
    head.body = Some(b"user=ann&user=eve");
    let planner = compilation.planner();
    let route = planner.route(head.head()).expect("a route");
    let address = planner.address(&head.peer, &head.headers);
    let step = planner.form(&route, &address, &head.headers, || true);
    assert!(matches!(step, FormStep::Known(FormBody::Denied)), "{step:?}");
    let plan = head.plan(planner).expect("a plan");
    assert!(plan.access.is_denied());
    assert_eq!(plan.caller.names, NameSources::default());
}

#[test]
fn what_is_answered_without_a_limit_has_no_plan() {
    let compilation = Compilation::of(CONFIG);
    let fault = |method, uri: &str, fields: &[(&str, &str)]| {
        let head = Head::new(method, uri, fields);
        let planned = head.plan(compilation.planner());
        planned.err().map(|fault| fault.status().as_u16())
    };
    assert_eq!(fault(Method::TRACE, "/", &[]), Some(405));
    assert_eq!(fault(Method::GET, "/", &[("via", "1.1 weir-1")]), Some(502));
    assert_eq!(fault(Method::GET, "/", &[("x-user", "a"), ("x-user", "b")]), Some(400));
    assert_eq!(fault(Method::GET, "/%zz", &[]), Some(400));
    assert_eq!(fault(Method::GET, "/", &[]), None);
}

/// A limit that goes by trust, and one beside it that does not.
const TRUSTING: &str = r#"
    [identity]
    user = "header:x-user"
    client = "header:x-api-key"

    [[clients]]
    id = "billing"
    key_hash = "sha256:248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
    trust = 0.259

    [[routes]]
    name = "trusting"
    path = "/trusting"
    upstream = "echo"
    limits = ["adaptive", "plain"]

    [[routes]]
    name = "plain"
    path = "/plain"
    upstream = "echo"
    limits = ["plain"]

    [limits.adaptive]
    key = "user"
    rate = "10/second"
    burst = 20
    adaptive = true

    [limits.plain]
    key = "ip"
    rate = "10/second"
    burst = 20
"#;

#[test]
fn a_plan_says_how_far_the_caller_is_trusted_and_why() {
    let compilation = Compilation::of(TRUSTING);
    let planner = compilation.planner();
    let trusted = |path: &str, fields: &[(&str, &str)]| {
        let head = Head::new(Method::GET, path, fields);
        let plan = head.plan(planner).expect("a plan");
        (plan.trust, plan.limits.numbers.iter().map(|it| it.policy.quota()).collect::<Vec<_>>())
    };
    assert_eq!(trusted("/plain", &[("x-user", "ann")]), (None, vec![20]));
    let (nobody, quotas) = trusted("/trusting", &[]);
    let none = PlannedTrust {
        score: Score::ZERO,
        reason: ScoreReason::NoUser,
        user: None,
        is_news: false,
    };
    assert_eq!((nobody, quotas), (Some(none), vec![20, 20]));
    let (client, quotas) = trusted("/trusting", &[("x-api-key", KEY)]);
    let client = client.expect("trust");
    assert_eq!((client.reason, client.user), (ScoreReason::ClientRecord, None));
    assert_eq!((client.score, quotas), (Score::of_hundredths(25), vec![25, 20]));

    let ann = trusted("/trusting", &[("x-user", "ann")]).0.expect("trust");
    assert_eq!((ann.score, ann.is_news), (Score::ZERO, true));
    let ann = ann.user.expect("a user");
    compilation.trust.introduce(ann, Score::ZERO, Vec::new);
    compilation.trust.count(ann, UserEvent::Success);
    compilation.trust.count(ann, UserEvent::Violation);
    let (known, quotas) = trusted("/trusting", &[("x-user", "ann")]);
    let sums = TrustSums { successes: 1, failures: 0, violations: 1 };
    let facts = TrustFacts { sums, ..TrustFacts::default() };
    let known = known.expect("trust");
    assert_eq!((known.reason, known.user), (ScoreReason::Formula(facts), Some(ann)));
    assert_eq!((known.score, quotas), (Score::of_hundredths(45), vec![29, 20]));
    let other = trusted("/trusting", &[("x-user", "bob")]).0.expect("trust");
    assert_eq!(other.score, Score::ZERO, "one user says nothing of another");
}
