//! The rows of the sharing table, and the numbers that follow from the way up.

use super::*;

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
