use std::time::Duration;

use super::*;
use crate::caller::Addresses;
use crate::config::settings::Identity;
use crate::limit::tenants::{Budget, BudgetMode, TenantSpec};
use crate::store::BucketHasher;

fn spec(name: &str, parent: Option<&str>, count: u64) -> TenantSpec {
    let rate = Rate::new(count, Duration::from_secs(60)).expect("a rate");
    let parent = parent.map(ToOwned::to_owned);
    TenantSpec { parent, rate: Some(rate), ..TenantSpec::new(name) }
}

/// A root with two children, of which one has a part of it guaranteed.
fn tree(child: u64) -> Arc<TenantTree> {
    let mode = BudgetMode::Guaranteed(vec![("a".to_owned(), 40)]);
    let budget = Budget { mode, ..Budget::default() };
    let root = TenantSpec { budget, ..spec("root", None, 100) };
    let specs = vec![root, spec("a", Some("root"), child), spec("b", Some("root"), 50)];
    Arc::new(TenantTree::build(specs).expect("a tree").0)
}

fn compiled(tree: &Arc<TenantTree>, before: Option<&CompiledTenants>) -> CompiledTenants {
    let hasher = BucketHasher::with_secret(&[7; 16]);
    let addresses = Addresses::new(&Identity::default());
    let naming = BucketNaming { hasher: &hasher, shared: Some("weir"), addresses: &addresses };
    CompiledTenants::new(tree.clone(), &TenantLimit::default(), naming, before)
}

fn buckets(compiled: &CompiledTenants) -> Vec<&CompiledBucket> {
    let each = compiled.tenants.iter();
    each.flat_map(|it| {
        [Some(&it.own), it.pool.as_deref(), it.guarantee.as_deref()].into_iter().flatten()
    })
    .collect()
}

#[test]
fn buckets_of_a_tree_have_names_of_their_own_in_one_hash_slot() {
    let compiled = compiled(&tree(30), None);
    let keys: Vec<String> =
        buckets(&compiled).iter().map(|it| String::from_utf8_lossy(&it.key).into_owned()).collect();
    let expected = ["root", "root/pool", "a", "root/guaranteed/a", "b"];
    assert_eq!(keys, expected.map(|it| format!("weir:tenants:{{root}}:{it}")));
    let mut ids: Vec<_> = buckets(&compiled).iter().map(|it| (it.prefix, it.bucket)).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), expected.len());
    let names: Vec<&str> = buckets(&compiled).iter().map(|it| it.numbers.text.name()).collect();
    let told = ["root", "root", "a", "root", "b"].map(|name| format!("tenants/{name}"));
    assert_eq!(names, told, "parts are told by whose they are");
}

#[test]
fn what_did_not_change_is_shared_with_the_tree_before() {
    let before = compiled(&tree(30), None);
    let after = compiled(&tree(20), Some(&before));
    let shared =
        before.tenants.iter().zip(after.tenants.iter()).map(|(one, other)| Arc::ptr_eq(one, other));
    assert_eq!(shared.collect::<Vec<_>>(), [true, false, true]);
}

#[test]
fn numbers_that_coexist_reach_as_deep_as_either() {
    let (small, large) = (compiled(&tree(20), None), compiled(&tree(90), None));
    let deepest = |compiled: &CompiledTenants| {
        let policy = compiled.tenants[1].own.numbers.policy;
        let far = crate::limit::State::new(crate::clock::Micros(u64::MAX >> 12), 0);
        policy.clamp(far, crate::clock::Micros(1_000_000))
    };
    assert_ne!(deepest(&small), deepest(&large));
    let mut both = small.clone();
    both.coexist_with(&large);
    assert_eq!(deepest(&both), deepest(&large));
    assert_eq!(both.tenants[1].own.numbers.policy.quota(), 20, "and holds to its own");
    assert_eq!(both.tenants.len(), 3);
    // What only the other has is remembered for what is made anew under its name.
    let mut none = CompiledTenants::default();
    none.coexist_with(&large.without_tree());
    assert_eq!(none.tenants.len(), 3);
    assert!(none.tree().is_empty());
}

#[test]
fn a_charge_that_was_deferred_finds_its_bucket_in_the_next_tree() {
    let (before, after) = (compiled(&tree(20), None), compiled(&tree(90), None));
    let at = |name: &str| before.tree.find(name.as_bytes()).expect("a tenant");
    let own = TenantBucket { of: at("a"), part: BucketPart::Own };
    let policy = |after: &CompiledTenants, bucket| {
        let (name, id) = (NamedBucket::new(&before.tree, bucket), before.bucket(bucket).bucket);
        after.without_tree().policy_of(after.tree(), &name, id).map(Policy::quota)
    };
    assert_eq!(policy(&after, own), Some(90));
    let guarantee = TenantBucket { of: at("root"), part: BucketPart::Guarantee(at("a")) };
    assert_eq!(policy(&after, guarantee), Some(40));
    assert_eq!(policy(&CompiledTenants::default(), own), None);
}

/// What docs/tenants.md says of memory.
#[test]
fn a_tenant_is_small() {
    assert!(size_of::<CompiledTenant>() <= 208, "{}", size_of::<CompiledTenant>());
    assert!(size_of::<Tenant>() <= 640, "{}", size_of::<Tenant>());
}
