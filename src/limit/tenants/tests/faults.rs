//! What is no tree, and what has no effect in one.

use super::*;

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
