use super::*;

/// How many tokens a caller gets checked in one second, each with these keys, of which each
/// costs so much.
fn checked(
    budget: &mut SignatureBudget,
    caller: usize,
    keys: &[usize],
    named: bool,
    cost: u32,
) -> u32 {
    let mut checked = 0;
    while budget.allows(7, CallerIndex(caller), keys.iter().copied(), named) {
        keys.iter().for_each(|key| budget.spend(7, CallerIndex(caller), *key, cost));
        checked += 1;
    }
    checked
}

#[test]
fn a_flood_spends_its_own_budget_and_leaves_others_theirs() {
    let mut budget = SignatureBudget::default();
    let eight = [0, 1, 2, 3, 4, 5, 6, 7];
    assert_eq!(checked(&mut budget, 1, &eight, false, 300), 1, "each of the eight");
    assert_eq!(checked(&mut budget, 1, &[0], true, 300), 0, "nor for a name");
    assert!(budget.allows(7, CallerIndex(2), eight, false), "another caller");
    assert_eq!(checked(&mut budget, 2, &[9], true, 300), 4);
    assert!(budget.allows(8, CallerIndex(1), eight, false), "a second later");
}

#[test]
fn many_callers_leave_a_key_what_another_has_spent_and_names_the_rest() {
    let mut budget = SignatureBudget::default();
    // All of them have failed before.
    (0..1000).for_each(|caller| budget.spend(6, CallerIndex(caller), 0, 1));
    let all: u32 = (0..100).map(|caller| checked(&mut budget, caller, &[0], false, 100)).sum();
    assert_eq!(all, 25, "half of what a key has");
    let all: u32 = (0..100).map(|caller| checked(&mut budget, caller, &[1], false, 100)).sum();
    assert_eq!(all, 25, "another key, up to half of all");
    assert!(
        !budget.allows(7, CallerIndex(500), [2], false)
            && budget.allows(7, CallerIndex(500), [2], true)
    );
    let all: u32 = (500..900).map(|caller| checked(&mut budget, caller, &[2], true, 100)).sum();
    assert_eq!(all, 50, "tokens that name their key have the rest");
    assert!(!budget.allows(7, CallerIndex(999), [3], true), "and then it is spent");
}

#[test]
fn who_has_not_failed_lately_is_checked_whatever_others_have_spent() {
    let mut budget = SignatureBudget::default();
    let eight = [0, 1, 2, 3, 4, 5, 6, 7];
    for caller in 0..50 {
        checked(&mut budget, caller, &eight, false, 300);
    }
    assert!(budget.all > IN_ALL && !budget.allows(7, CallerIndex(3), eight, false));
    assert!(budget.allows(7, CallerIndex(500), eight, false), "it has shown nothing yet");
    let fresh = (100..1000).filter(|it| checked(&mut budget, *it, &eight, false, 300) > 0);
    assert!(fresh.count() < 100, "a quarter of the worker at most");
}
