//! Budgets: allocated, and split into guarantees and a pool.

use super::*;

/// Children of 2000, 1000 and 3000 below a parent of 5000.
fn allocated(overcommit: u16) -> Vec<TenantSpec> {
    let overcommit = Overcommit::of_hundredths(overcommit).expect("a factor");
    let budget = Budget { mode: BudgetMode::Allocated, total: Some(5000), overcommit };
    vec![
        TenantSpec { budget, ..tenant("partner-a", "", 5000, 0) },
        tenant("a1", "partner-a", 2000, 0),
        tenant("a2", "partner-a", 1000, 0),
        tenant("a3", "partner-a", 3000, 0),
    ]
}

#[test]
fn children_that_do_not_fit_are_a_fault_with_every_number() {
    assert_eq!(
        faults(allocated(100)),
        [
            "the budget of tenant `partner-a` does not fit: its children have 6000 in 60s (`a1` 2000, \
          `a2` 1000, `a3` 3000), and its total is 5000; allocate 1000 less, raise the `total`, or \
          write `overcommit = 1.2` or more"
        ]
    );
    assert_eq!(
        faults(allocated(119)),
        [
            "the budget of tenant `partner-a` does not fit: its children have 6000 in 60s (`a1` 2000, \
          `a2` 1000, `a3` 3000), and its total is 5000, 5950 with an overcommit of 1.19; allocate 50 \
          less, raise the `total`, or write `overcommit = 1.2` or more"
        ]
    );
}

#[test]
fn children_that_overcommit_are_a_warning_with_every_number() {
    assert_eq!(
        warnings(allocated(150)),
        ["the budget of tenant `partner-a` is overcommitted: its children have 6000 in 60s (`a1` \
          2000, `a2` 1000, `a3` 3000), and its total is 5000, 7500 with an overcommit of 1.5; \
          children that use all of theirs at once are refused by it"]
    );
    assert_eq!(warnings(allocated(120)).len(), 1);
    let (tree, _) = TenantTree::build(allocated(150)).unwrap();
    let parent = &tree[tree.find(b"partner-a").unwrap()];
    assert_eq!((parent.total, parent.allocated, parent.unallocated()), (5000, 6000, 0));
}

#[test]
fn allocations_are_counted_in_the_parents_window_and_rounded_up() {
    let mode = BudgetMode::Allocated;
    let hourly =
        TenantSpec { rate: Some(per(61, Duration::from_secs(3600))), ..tenant("c", "p", 0, 0) };
    let parent = with(tenant("p", "", 100, 0), Sharing::Enforce, mode);
    let tree = tree(vec![parent, hourly, tenant("d", "p", 50, 0), tenant("e", "p", 0, 0)]);
    let parent = &tree[tree.find(b"p").unwrap()];
    assert_eq!((parent.allocated, parent.unallocated()), (52, 48));
}

/// 5000 a minute and 500 at once, of which `a1` has 1000 guaranteed and `a2` 500.
fn guarantees() -> Vec<TenantSpec> {
    let mode = guaranteed(&[("a1", 1000), ("a2", 500)]);
    vec![
        with(tenant("partner-a", "", 5000, 500), Sharing::Enforce, mode),
        tenant("a1", "partner-a", 0, 0),
        tenant("a2", "partner-a", 0, 0),
        tenant("a3", "partner-a", 0, 0),
        tenant("deep", "a1", 0, 0),
    ]
}

#[test]
fn a_bucket_is_split_into_guarantees_and_a_pool() {
    let tree = tree(guarantees());
    let of = |name: &str| &tree[tree.find(name.as_bytes()).unwrap()];
    assert_eq!(of("a1").guarantee.as_ref().map(shown).unwrap(), "1000/60s, 100");
    assert_eq!(of("a2").guarantee.as_ref().map(shown).unwrap(), "500/60s, 50");
    assert_eq!(of("a3").guarantee, None);
    assert_eq!(of("partner-a").pool.as_ref().map(shown).unwrap(), "3500/60s, 350");
    assert_eq!((of("partner-a").allocated, of("partner-a").unallocated()), (1500, 3500));
    assert_eq!(steps(&tree, "a1"), ["a1", "partner-a guaranteed a1 or partner-a pool"]);
    assert_eq!(steps(&tree, "a3"), ["a3", "partner-a pool"]);
    assert_eq!(steps(&tree, "partner-a"), ["partner-a pool"]);
    let deep = ["deep", "a1", "partner-a guaranteed a1 or partner-a pool"];
    assert_eq!(steps(&tree, "deep"), deep);
    for step in tree.steps(tree.find(b"deep").unwrap()) {
        if let TenantStep::FirstOf(guarantee, pool) = step {
            assert_eq!(shown(tree.policy(guarantee)), "1000/60s, 100");
            assert_eq!(shown(tree.policy(pool)), "3500/60s, 350");
        }
    }
}

#[test]
fn a_bucket_is_split_by_what_the_ancestors_leave_it() {
    let mut specs = guarantees();
    specs[0].parent = Some("root".to_owned());
    specs.push(tenant("root", "", 3000, 300));
    let tree = tree(specs);
    let parent = &tree[tree.find(b"partner-a").unwrap()];
    assert_eq!(parent.pool.as_ref().map(shown).unwrap(), "1500/60s, 150");
    let guarantee = tree[tree.find(b"a2").unwrap()].guarantee;
    assert_eq!(guarantee.as_ref().map(shown).unwrap(), "500/60s, 50");
}

#[test]
fn a_window_is_split_in_its_own_window() {
    let second = Duration::from_secs(1);
    let mut specs = guarantees();
    specs[0].algorithm = Some(TenantAlgorithm::FixedWindow);
    specs[0].burst = None;
    specs[0].parent = Some("root".to_owned());
    specs.push(TenantSpec { rate: Some(per(40, second)), ..tenant("root", "", 0, 0) });
    let tree = tree(specs);
    let parent = &tree[tree.find(b"partner-a").unwrap()];
    // 2400 a minute: 1000 and 500 of them are 16 and 8 a second.
    assert_eq!(shown(&parent.effective), "40/1s");
    assert_eq!(parent.pool.as_ref().map(shown).unwrap(), "16/1s");
    let guarantee = tree[tree.find(b"a1").unwrap()].guarantee;
    assert_eq!(guarantee.as_ref().map(shown).unwrap(), "16/1s");
}

#[test]
fn without_a_pool_the_parents_own_callers_have_nothing() {
    let mode = guaranteed(&[("a", 60), ("b", 40)]);
    let specs = vec![
        with(tenant("p", "", 100, 0), Sharing::Inherit, mode),
        tenant("a", "p", 0, 0),
        tenant("b", "p", 0, 0),
    ];
    let tree = tree(specs);
    assert_eq!(steps(&tree, "a"), ["a", "p guaranteed a"]);
    assert_eq!(steps(&tree, "p"), [""; 0]);
    assert!(tree.find(b"p").is_some());
    assert_eq!(tree.find_charged(b"p"), None);
    assert!(tree.find_charged(b"a").is_some());
    assert_eq!(tree.find_charged(b"c"), None);
}

#[test]
fn guarantees_that_do_not_fit_are_faults_with_every_number() {
    let below = |guarantees: &[(&str, u64)], burst| {
        let parent = with(tenant("p", "", 100, burst), Sharing::Enforce, guaranteed(guarantees));
        faults(vec![parent, tenant("a", "p", 0, 0), tenant("b", "p", 0, 0)])
    };
    assert_eq!(
        below(&[("a", 80), ("b", 30)], 0),
        [
            "tenant `p` guarantees 110 (`a` 80, `b` 30), and its total is 100; guarantee 10 less, or \
          raise the `total`"
        ]
    );
    assert_eq!(
        below(&[("c", 10), ("p", 10)], 0),
        [
            "tenant `p` guarantees something to `c`, which is no child of it; leave it out, or write \
             `parent = \"p\"` for `c`",
            "tenant `p` guarantees something to `p`, which is no child of it; leave it out, or write \
             `parent = \"p\"` for `p`",
        ]
    );
    assert_eq!(
        below(&[("a", 9)], 10),
        [
            "the guarantee of 9 of 100 that tenant `p` gives to `a` is too small: its part of the 10 \
          that may come at once is less than 1; guarantee more, or let at least 12 come at once"
        ]
    );
    assert_eq!(
        below(&[("a", 100)], 0),
        [
            "tenant `p` guarantees all of its 100, so nothing is left for a child without a guarantee: \
          `b`; guarantee less in all, or something to every child"
        ]
    );
    assert_eq!(below(&[("a", 10), ("a", 20)], 0).len(), 1);
    assert_eq!(below(&[("a", 0)], 0).len(), 1);
    let mut specs = guarantees();
    specs[0].parent = Some("root".to_owned());
    specs.push(tenant("root", "", 1200, 0));
    assert_eq!(
        faults(specs),
        [
            "tenant `partner-a` guarantees 1500 (`a1` 1000, `a2` 500) of a total of 5000, and by its \
          own and its ancestors' rates it has 1200; guarantee 300 less, or raise the rates above"
        ]
    );
}
