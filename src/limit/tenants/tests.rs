//! The rows of the sharing table, the worked examples of `docs/tenants.md`, and every fault. Random
//! trees are in `tests/model`.

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

/// A parent of 5000 a minute and 500 at once, and below it `more`, which has more, `less`, which has
/// less, and `none`, which has no numbers.
fn family(sharing: Sharing, mode: BudgetMode) -> TenantTree {
    let mut specs = vec![
        with(tenant("p", "", 5000, 500), sharing, mode),
        tenant("more", "p", 8000, 800),
        tenant("less", "p", 1000, 100),
    ];
    if sharing != Sharing::Private {
        specs.push(tenant("none", "p", 0, 0));
    }
    tree(specs)
}

#[test]
fn children_of_a_private_parent_have_their_own_numbers_and_do_not_charge_it() {
    let tree = family(Sharing::Private, BudgetMode::Unlimited);
    assert_eq!(effective(&tree, "more"), "8000/60s, 800");
    assert_eq!(effective(&tree, "less"), "1000/60s, 100");
    assert_eq!(steps(&tree, "less"), ["less"]);
    assert_eq!(steps(&tree, "p"), ["p"]);
}

#[test]
fn children_that_inherit_have_the_smaller_numbers_and_do_not_charge_the_parent() {
    let tree = family(Sharing::Inherit, BudgetMode::Unlimited);
    assert_eq!(effective(&tree, "more"), "5000/60s, 500");
    assert_eq!(effective(&tree, "less"), "1000/60s, 100");
    assert_eq!(effective(&tree, "none"), "5000/60s, 500");
    assert_eq!(steps(&tree, "none"), ["none"]);
}

#[test]
fn children_that_inherit_draw_on_a_shared_budget() {
    let tree = family(Sharing::Inherit, BudgetMode::Shared);
    assert_eq!(effective(&tree, "more"), "5000/60s, 500");
    assert_eq!(steps(&tree, "less"), ["less", "p"]);
}

#[test]
fn children_of_an_enforcing_parent_have_the_smaller_numbers_and_charge_it() {
    for mode in [BudgetMode::Unlimited, BudgetMode::Shared] {
        let tree = family(Sharing::Enforce, mode);
        assert_eq!(effective(&tree, "more"), "5000/60s, 500");
        assert_eq!(effective(&tree, "less"), "1000/60s, 100");
        assert_eq!(effective(&tree, "none"), "5000/60s, 500");
        assert_eq!(steps(&tree, "more"), ["more", "p"]);
    }
}

#[test]
fn the_way_up_ends_at_the_first_parent_that_is_not_charged() {
    let specs = vec![
        tenant("root", "", 9000, 0),
        with(tenant("quiet", "root", 8000, 0), Sharing::Inherit, BudgetMode::Unlimited),
        tenant("strict", "quiet", 7000, 0),
        tenant("leaf", "strict", 6000, 0),
    ];
    let tree = tree(specs);
    assert_eq!(steps(&tree, "leaf"), ["leaf", "strict"]);
    assert_eq!(steps(&tree, "strict"), ["strict"]);
    assert_eq!(steps(&tree, "quiet"), ["quiet", "root"]);
    assert_eq!(tree.levels(), 4);
    let leaf = &tree[tree.find(b"leaf").unwrap()];
    assert_eq!((leaf.level, leaf.root), (4, tree.find(b"root").unwrap()));
}

#[test]
fn effective_numbers_are_the_smallest_on_the_way_up() {
    let specs = vec![
        tenant("system", "", 10_000, 1000),
        tenant("partner-a", "system", 5000, 500),
        tenant("a1", "partner-a", 1000, 100),
        tenant("a2", "partner-a", 8000, 50),
    ];
    let tree = tree(specs);
    assert_eq!(effective(&tree, "a1"), "1000/60s, 100");
    assert_eq!(effective(&tree, "a2"), "5000/60s, 50");
    assert_eq!(steps(&tree, "a1"), ["a1", "partner-a", "system"]);
}

#[test]
fn rates_are_compared_by_the_second_and_keep_their_window() {
    let hour = Duration::from_secs(3600);
    let child = |count| TenantSpec { rate: Some(per(count, hour)), ..tenant("c", "p", 0, 0) };
    let below = |count| tree(vec![tenant("p", "", 100, 0), child(count)]);
    // 100 a minute are 6000 an hour.
    assert_eq!(effective(&below(5999), "c"), "5999/3600s, 100");
    assert_eq!(effective(&below(6000), "c"), "6000/3600s, 100");
    assert_eq!(effective(&below(6001), "c"), "100/60s, 100");
}

#[test]
fn a_window_gives_no_more_than_was_written_in_the_time_that_was_written() {
    let below = |parent: Rate, own: Rate| {
        let window = Some(TenantAlgorithm::FixedWindow);
        let p = TenantSpec { rate: Some(parent), ..tenant("p", "", 0, 0) };
        let c = TenantSpec { rate: Some(own), algorithm: window, ..tenant("c", "p", 0, 0) };
        effective(&tree(vec![p, c]), "c")
    };
    let [second, minute, hour] = [1, 60, 3600].map(Duration::from_secs);
    // 6000 an hour, all of it at once, would be more than 101 in a minute.
    assert_eq!(below(per(6000, hour), per(101, minute)), "100/60s");
    assert_eq!(below(per(6000, hour), per(100, minute)), "100/60s");
    assert_eq!(below(per(150, hour), per(101, minute)), "2/60s");
    assert_eq!(below(per(10, hour), per(5, second)), "1/360s");
}

#[test]
fn an_algorithm_is_the_parents_unless_it_is_written() {
    let window = |spec| TenantSpec { algorithm: Some(TenantAlgorithm::SlidingWindow), ..spec };
    let bucket = |spec| TenantSpec { algorithm: Some(TenantAlgorithm::TokenBucket), ..spec };
    let specs = vec![
        window(tenant("p", "", 100, 0)),
        tenant("c", "p", 50, 0),
        bucket(tenant("b", "p", 0, 200)),
    ];
    let tree = tree(specs);
    assert_eq!(effective(&tree, "c"), "50/60s");
    // A window's count stands for its burst.
    assert_eq!(effective(&tree, "b"), "100/60s, 100");
}

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

#[test]
fn a_tree_that_is_none_is_refused_with_all_its_faults() {
    let specs = vec![
        tenant("a", "b", 10, 0),
        tenant("b", "c", 10, 0),
        tenant("c", "a", 10, 0),
        tenant("below", "a", 10, 0),
        tenant("self", "self", 10, 0),
        tenant("lost", "nobody", 0, 0),
        tenant("poor", "", 0, 0),
        tenant("of poor", "poor", 0, 0),
        tenant("twice", "", 10, 0),
        tenant("twice", "", 10, 0),
    ];
    assert_eq!(
        faults(specs),
        [
            "`of poor` is no name for a tenant; write 1 to 128 of letters, digits and `_`, `.`, `-`, \
             `@`, `:`, `~`, `+`",
            "there is more than one tenant `twice`; remove one of them, or give it another name",
            "the parent of tenant `lost`, `nobody`, is no tenant; add `[tenants.nobody]`, or leave \
             `parent` out for a root",
            "tenant `a` is its own ancestor: by `parent` it leads to `b` → `c` → `a`; leave out \
             `parent` in the one that is the root",
            "tenant `self` is its own ancestor: by `parent` it leads to `self`; leave out `parent` \
             in the one that is the root",
            "tenant `poor` has no `rate` and no parent to give it one; add a line such as `rate = \
             \"1000/minute\"`",
        ]
    );
}

#[test]
fn a_child_of_a_private_parent_needs_a_rate() {
    let parent = with(tenant("p", "", 10, 0), Sharing::Private, BudgetMode::Unlimited);
    assert_eq!(
        faults(vec![parent, tenant("c", "p", 0, 5)]),
        [
            "tenant `c` has no `rate`, and its parent `p`, whose sharing is `private`, gives it none; \
          add a line such as `rate = \"1000/minute\"`, or write `sharing = \"inherit\"` for `p`"
        ]
    );
}

#[test]
fn sixteen_levels_are_a_tree_and_seventeen_are_not() {
    let chain = |levels: usize| {
        let parent =
            |level: usize| if level == 1 { String::new() } else { format!("t{}", level - 1) };
        (1..=levels).map(|it| tenant(&format!("t{it}"), &parent(it), 10, 0)).collect::<Vec<_>>()
    };
    assert_eq!(tree(chain(16)).levels(), 16);
    let fault = "tenant `t17` is on level 17, and there are 16; give it a parent that is higher up";
    assert_eq!(faults(chain(17)), [fault]);
    assert_eq!(faults(chain(40)), [fault]);
}

#[test]
fn numbers_out_of_range_are_faults() {
    let total = |total| {
        let budget = Budget { total: Some(total), ..Budget::default() };
        faults(vec![TenantSpec { budget, ..tenant("t", "", 10, 0) }])
    };
    assert_eq!(total(0).len(), 1);
    assert_eq!(total(1_000_000_001).len(), 1);
    let slow = Rate::new(1, Duration::from_secs(366 * 86_400)).ok();
    let spec = TenantSpec { rate: slow, ..tenant("t", "", 0, 1000) };
    assert_eq!(
        faults(vec![spec]),
        [
            "tenant `t` has a burst of 1000: the burst would take more than 100 years to refill; write \
          another `burst` or a higher `rate`"
        ]
    );
}

#[test]
fn what_has_no_effect_is_warned_of() {
    let budget = |mode, total, overcommit| {
        let overcommit = Overcommit::of_hundredths(overcommit).unwrap();
        TenantSpec { budget: Budget { mode, total, overcommit }, ..tenant("t", "", 10, 0) }
    };
    let window =
        TenantSpec { algorithm: Some(TenantAlgorithm::FixedWindow), ..tenant("t", "", 10, 5) };
    let private = with(tenant("t", "", 10, 0), Sharing::Private, BudgetMode::Shared);
    let cases = [
        (
            window,
            "the `burst` of tenant `t` has no effect: windows have none; remove it, or write \
          `algorithm = \"token_bucket\"`",
        ),
        (
            private,
            "the budget of tenant `t` has no effect: its sharing is `private`, so nobody \
          draws on what is `shared`; remove it, or write `sharing = \"enforce\"`",
        ),
        (
            budget(BudgetMode::Shared, Some(7), 100),
            "the `total` of tenant `t` has no effect: the \
          budget is `shared`, and its rate decides; remove it, or write `mode = \"allocated\"`",
        ),
        (
            budget(BudgetMode::Unlimited, None, 150),
            "the `overcommit` of tenant `t` has no effect: \
          the budget is `unlimited`; remove it, or write `mode = \"allocated\"`",
        ),
    ];
    for (spec, expected) in cases {
        assert_eq!(warnings(vec![spec]), [expected]);
    }
    assert_eq!(warnings(vec![budget(BudgetMode::Shared, Some(10), 100)]), [""; 0]);
    let above = warnings(vec![budget(BudgetMode::Allocated, Some(11), 100)]);
    assert!(above.len() == 1 && above[0].contains("is 11, and it can use 10"), "{above:?}");
    let parent = with(tenant("p", "", 100, 0), Sharing::Enforce, guaranteed(&[("c", 50)]));
    assert_eq!(
        warnings(vec![parent, tenant("c", "p", 20, 0)]),
        [
            "tenant `p` guarantees 50 to `c`, which may use 20; guarantee less, or raise the `rate` of \
          `c`"
        ]
    );
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
