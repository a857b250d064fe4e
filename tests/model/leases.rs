//! Buckets of which units are taken in advance: `lua/lease.lua` and its twin in Rust, step by step, with
//! requests that are decided in between.

use std::time::Duration;

use proptest::prelude::*;
use weir::clock::Micros;
use weir::limit::lease::{Grant, LeaseReply, LeaseRequest, LeaseStep, LeasedBucket};
use weir::limit::refill_bucket::RefillBucket;
use weir::limit::token_bucket::TokenBucket;
use weir::limit::{Policy, Rate};

use crate::decider::{Ask, Decider, Engine};
use crate::limit_changes::change;
use crate::lua::Redis;
use crate::strategies::{LATEST, bucket, cases, refill_bucket, share, span, start, window};

/// What happens after some time.
#[derive(Debug, Clone)]
struct LeaseHistoryStep {
    /// A share of the limit's span in 2^-16, or of the lives of leases.
    gap: u64,
    by_life: bool,
    back: bool,
    /// Which of the two policies holds.
    other: bool,
    event: Event,
}

#[derive(Debug, Clone)]
enum Event {
    /// A request with a share of the quota.
    Decide(u64),
    ChargeAfter(u64),
    /// A lease of which grants: the one with this number ends, and these shares of its units are kept and
    /// returned.
    Lease {
        ends: Option<usize>,
        kept: u64,
        returned: u64,
        life: u64,
        steps: Vec<Wanted>,
    },
}

/// A step: a share of the quota, how many times as much must be there, and whether it is enough.
type Wanted = (u64, u64, bool);

/// A grant as its gateway knows it.
#[derive(Debug, Clone, Copy)]
struct Held {
    grant: Option<Grant>,
    units: u64,
    taken_at: Micros,
    /// By which of the two policies.
    other: bool,
}

fn step() -> impl Strategy<Value = LeaseHistoryStep> {
    let part = || 0..=1_u64 << 16;
    let lease = (
        proptest::option::of(any::<usize>()),
        part(),
        part(),
        1..20_000_000_u64,
        prop::collection::vec((0..1_u64 << 15, 1..8_u64, any::<bool>()), 0..5),
    );
    let event = prop_oneof![
        3 => (0..1_u64 << 14).prop_map(Event::Decide),
        1 => (0..1_u64 << 14).prop_map(Event::ChargeAfter),
        4 => lease.prop_map(|(ends, kept, returned, life, steps)| {
            Event::Lease { ends, kept, returned, life, steps }
        }),
    ];
    let back = prop_oneof![12 => Just(false), 1 => Just(true)];
    let gap = prop_oneof![1 => Just(0), 4 => 0..1_u64 << 13, 1 => 0..1_u64 << 17];
    (gap, any::<bool>(), back, any::<bool>(), event).prop_map(
        |(gap, by_life, back, other, event)| LeaseHistoryStep { gap, by_life, back, other, event },
    )
}

/// One policy, or two that alternate on a bucket.
fn policies() -> impl Strategy<Value = (Policy, Policy)> {
    let same = prop_oneof![bucket(), refill_bucket(), window()].prop_map(|it| (it, it));
    let alternating = change().prop_filter_map("not leased", |(old, new)| {
        let may = old.is_leasable() && new.is_leasable() && new.other_window(&old).is_none();
        // Refills at other instants mean nothing to each other.
        let together = match (&old, &new) {
            (Policy::RefillBucket(old), Policy::RefillBucket(new)) => {
                old.every_us() == new.every_us()
            }
            _ => old.kind() == new.kind(),
        };
        (may && together).then(|| (old.beside(&new), new.beside(&old)))
    });
    let same = same.prop_filter("not leased", |(policy, _)| policy.is_leasable());
    prop_oneof![2 => same, 1 => alternating]
}

/// What the step asks for, by what is held.
fn request(policy: &Policy, held: Option<Held>, event: &Event) -> Option<LeaseRequest> {
    let Event::Lease { kept, returned, life, steps, .. } = event else { return None };
    let units = held.map_or(0, |it| it.units);
    let kept = share(*kept, units).min(units);
    let returned = share(*returned, units).min(units - kept);
    let step = |(part, multiple, is_enough): &Wanted| {
        let units = share(*part, policy.quota()).max(1);
        LeaseStep { units, tested: units * multiple, is_enough: *is_enough }
    };
    Some(LeaseRequest {
        life: *life,
        released: held.and_then(|it| it.grant),
        kept,
        returned,
        taken_at: held.map_or(Micros(0), |it| it.taken_at),
        steps: steps.iter().map(step).collect(),
    })
}

#[test]
fn lua_and_rust_take_the_same_in_advance() {
    let redis = Redis::start();
    proptest!(cases(256), |(
        (first, second) in policies(), start in start(), steps in prop::collection::vec(step(), 1..40),
    )| {
        let mut lua = redis.fresh();
        let (mut rust, mut now) = (LeasedBucket::default(), start);
        let mut grants: Vec<Held> = Vec::new();
        for step in steps {
            let policy = if step.other { &second } else { &first };
            let gap = share(step.gap, if step.by_life { 20_000_000 } else { span(policy) });
            now = Micros(if step.back { now.0 - gap.min(now.0 / 2) } else { now.0 + gap });
            if now > LATEST || now.0 < start.0 / 2 {
                break;
            }
            let quota = policy.quota();
            match &step.event {
                Event::Decide(part) => {
                    let ask = Ask { key: 1, policy, cost: share(*part, quota) };
                    let outcome = lua.decide(now, &[ask]);
                    let admitted = rust.decide(policy, now, ask.cost);
                    prop_assert_eq!(outcome.admitted, admitted, "at {:?} of {:?}", now, policy);
                }
                Event::ChargeAfter(part) => {
                    let ask = Ask { key: 1, policy, cost: share(*part, quota).max(1) };
                    lua.charge_after(now, &ask);
                    let mut next = rust.clone();
                    let was_clamped = next.advance(policy, now);
                    let charged = policy.charge_after(next.state, now, ask.cost);
                    // A bucket that can get no deeper is left as it is.
                    if was_clamped || charged != next.state {
                        next.state = charged;
                        rust = next;
                    }
                }
                event @ Event::Lease { ends, .. } => {
                    let held = ends.filter(|_| !grants.is_empty()).map(|it| it % grants.len());
                    let held = held.map(|it| grants.remove(it)).filter(|it| it.other == step.other);
                    let Some(asked) = request(policy, held, event) else { continue };
                    let theirs = lua.lease(now, &Ask { key: 1, policy, cost: 0 }, &asked);
                    let ours = rust.exchange(policy, now, &asked);
                    prop_assert_eq!(theirs, ours, "{:?} at {:?} of {:?}", asked, now, policy);
                    let LeaseReply { granted, grant, found, .. } = ours;
                    let units = granted + if found { asked.kept } else { 0 };
                    grants.push(Held { grant, units, taken_at: now, other: step.other });
                }
            }
        }
    });
}

/// Redis keeps a bucket until it is full, also if that is long after the last lease has ended.
#[test]
fn bucket_is_kept_until_what_was_outstanding_has_refilled() {
    let redis = Redis::start();
    let rate = Rate::new(50, Duration::from_secs(1)).expect("a rate");
    let tokens = Policy::TokenBucket(TokenBucket::new(rate, 4_000).expect("a bucket"));
    let refill = RefillBucket::new(Duration::from_secs(1), 50, 4_000).expect("a bucket");
    for policy in [tokens, Policy::RefillBucket(refill)] {
        let mut lua = redis.fresh();
        let ask = Ask { key: 1, policy: &policy, cost: 1 };
        let steps =
            [LeaseStep { units: 1_000, tested: 1_000, is_enough: true }].into_iter().collect();
        let life = 5_000_000;
        let (released, taken_at) = (None, Micros(0));
        let request = LeaseRequest { life, released, kept: 0, returned: 0, taken_at, steps };
        // The life of the lease, and twenty seconds in which a thousand refill.
        let kept = |lua: &crate::lua::Lua<'_>| {
            let milliseconds: i64 = redis.ask(redis::cmd("PTTL").arg(&lua.name(&ask)));
            assert!(milliseconds > 24_000, "{milliseconds} ms: {policy:?}");
        };
        assert_eq!(lua.lease_now(&ask, &request).granted, 1_000);
        kept(&lua);
        lua.charge_now(&ask);
        kept(&lua);
    }
}
