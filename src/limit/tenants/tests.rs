//! The rows of the sharing table, the worked examples of `docs/tenants.md`, and every fault. Random
//! trees are in `tests/model`.

mod budgets;
mod faults;
mod sharing;

use std::time::Duration;

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

fn per(count: u64, period: Duration) -> Rate {
    Rate::new(count, period).expect("a rate")
}

fn tenant(name: &str, parent: &str, count: u64, burst: u64) -> TenantSpec {
    let rate = (count > 0).then(|| per(count, MINUTE));
    let burst = (burst > 0).then_some(burst);
    let parent = (!parent.is_empty()).then(|| parent.to_owned());
    TenantSpec { parent, rate, burst, ..TenantSpec::new(name) }
}

fn with(spec: TenantSpec, sharing: Sharing, mode: BudgetMode) -> TenantSpec {
    let budget = Budget { mode, ..spec.budget.clone() };
    TenantSpec { sharing, budget, ..spec }
}

fn guaranteed(guarantees: &[(&str, u64)]) -> BudgetMode {
    BudgetMode::Guaranteed(guarantees.iter().map(|(name, it)| ((*name).to_owned(), *it)).collect())
}

fn tree(specs: Vec<TenantSpec>) -> TenantTree {
    let (tree, warnings) = TenantTree::build(specs).unwrap_or_else(|it| panic!("{it:?}"));
    let above = |it: &TenantWarning| matches!(it.kind, TenantWarningKind::TotalAbove { .. });
    assert!(warnings.iter().all(above), "{warnings:?}");
    tree
}

fn faults(specs: Vec<TenantSpec>) -> Vec<String> {
    let faults = TenantTree::build(specs).err().unwrap_or_default();
    faults.iter().map(ToString::to_string).collect()
}

fn warnings(specs: Vec<TenantSpec>) -> Vec<String> {
    let (_, warnings) = TenantTree::build(specs).unwrap_or_else(|it| panic!("{it:?}"));
    warnings.iter().map(ToString::to_string).collect()
}

/// `count/seconds, burst`, of a window without a burst.
fn shown(policy: &Policy) -> String {
    let rate = |rate: Rate| format!("{}/{}s", rate.count(), rate.period_us() / 1_000_000);
    match policy {
        Policy::TokenBucket(it) => format!("{}, {}", rate(it.rate()), it.burst()),
        Policy::SlidingWindow(it) => rate(it.rate()),
        Policy::FixedWindow(it) => format!("{}/{}s", it.count(), it.seconds()),
        other => panic!("{other:?}"),
    }
}

fn effective(tree: &TenantTree, name: &str) -> String {
    shown(&tree[tree.find(name.as_bytes()).expect(name)].effective)
}

/// The steps of a tenant, as `name`, `name pool` or `name guaranteed child`.
fn steps(tree: &TenantTree, name: &str) -> Vec<String> {
    let bucket = |it: TenantBucket| {
        let of = &tree[it.of].spec.name;
        match it.part {
            BucketPart::Own => of.clone(),
            BucketPart::Pool => format!("{of} pool"),
            BucketPart::Guarantee(child) => format!("{of} guaranteed {}", tree[child].spec.name),
        }
    };
    let steps = tree.steps(tree.find(name.as_bytes()).expect(name));
    let step = |step| match step {
        TenantStep::One(it) => bucket(it),
        TenantStep::FirstOf(one, other) => format!("{} or {}", bucket(one), bucket(other)),
    };
    steps.map(step).collect()
}

#[test]
fn children_stand_side_by_side_in_the_order_written() {
    let specs = vec![
        tenant("b1", "b", 10, 0),
        tenant("a", "", 10, 0),
        tenant("a1", "a", 10, 0),
        tenant("b", "", 10, 0),
        tenant("b2", "b", 10, 0),
    ];
    let tree = tree(specs);
    let name = |of: TenantIndex| tree[of].spec.name.clone();
    let roots: Vec<TenantIndex> = tree.roots().collect();
    assert_eq!(roots.iter().copied().map(name).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(tree.children(roots[0]).map(name).collect::<Vec<_>>(), ["a1"]);
    assert_eq!(tree.children(roots[1]).map(name).collect::<Vec<_>>(), ["b1", "b2"]);
    assert!(TenantTree::build(Vec::new()).unwrap().0.is_empty());
}
