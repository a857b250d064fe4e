use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::limit::tenants::{Budget, BudgetMode, TenantSpec, TenantTree};

/// A parent of 100 a minute that is allocated to its children, of which the file has one of 40.
fn file(total: u64) -> Arc<TenantTree> {
    let rate = |text| crate::config::parse_rate(text);
    let budget = Budget { mode: BudgetMode::Allocated, total: Some(total), ..Budget::default() };
    let parent = TenantSpec { rate: rate("100/minute"), budget, ..TenantSpec::new("p") };
    let parent_name = Some("p".to_owned());
    let child = TenantSpec { rate: rate("40/minute"), parent: parent_name, ..TenantSpec::new("c") };
    Arc::new(TenantTree::build(vec![parent, child]).expect("a tree").0)
}

fn made(name: &str, order: u64, body: &Value) -> RunTimeTenant {
    let tenant = serde_json::from_value(body.clone()).expect("a tenant");
    RunTimeTenant { name: name.to_owned(), order, tenant, announced: None }
}

fn child(name: &str, order: u64, count: u64) -> RunTimeTenant {
    made(name, order, &json!({"parent": "p", "rate": format!("{count}/minute")}))
}

fn names(merged: &MergedTenants) -> (Vec<&str>, Vec<&str>) {
    let held = merged.tree.tenants().iter().map(|it| it.spec.name.as_str());
    let aside = merged.set_aside.iter().map(|it| it.tenant.name.as_str());
    (held.collect(), aside.collect())
}

#[test]
fn the_older_of_two_that_do_not_fit_holds_in_whichever_order_they_are_read() {
    let mut tenants =
        vec![child("new", 9, 30), child("old", 3, 50), child("small", 11, 10), child("c", 1, 1)];
    for _ in 0..4 {
        tenants.rotate_left(1);
        let merged = merge(&file(100), &tenants);
        let expected = (vec!["p", "c", "old", "small"], vec!["c", "new"]);
        assert_eq!(names(&merged), expected);
        let fault = merged.fault("new").expect("a fault");
        assert!(fault.contains("130") && fault.contains("100"), "{fault}");
        assert!(merged.fault("c").expect("a fault").contains("configuration"));
    }
    assert_eq!(names(&merge(&file(40), &tenants)).1, ["c", "old", "new", "small"]);
    assert_eq!(names(&merge(&file(1000), &tenants)).1, ["c"]);
}

#[test]
fn what_is_below_one_that_is_set_aside_is_set_aside_as_well() {
    let below = |name: &str, order, parent: &str| made(name, order, &json!({"parent": parent}));
    let tenants = [
        child("big", 1, 90),
        below("b1", 2, "big"),
        below("b2", 3, "b1"),
        below("good", 4, "c"),
        made("unread", 5, &json!({"rate": "often"})),
        made("loop", 6, &json!({"parent": "loop", "rate": "1/minute"})),
    ];
    let merged = merge(&file(100), &tenants);
    let aside = vec!["big", "b1", "b2", "unread", "loop"];
    assert_eq!(names(&merged), (vec!["p", "c", "good"], aside));
}

#[test]
fn without_tenants_of_run_time_the_tree_is_that_of_the_file() {
    let file = file(100);
    assert!(Arc::ptr_eq(&merge(&file, &[]).tree, &file));
    assert!(Arc::ptr_eq(&merge(&file, &[child("big", 1, 90)]).tree, &file));
}

#[test]
fn a_change_has_to_fit_to_all_that_hold() {
    let tenants = [child("a", 4, 30)];
    let body = |count: u64| child("b", 0, count).tenant;
    let put = |name: &str, count| check_put(&file(100), &tenants, name, body(count));
    let order = |change: &CheckedChange| match &change.change {
        TenantChange::Set(tenant) => tenant.order,
        TenantChange::Remove(_) => 0,
    };
    assert_eq!(order(&put("b", 30).expect("it fits")), 5);
    assert_eq!(order(&put("a", 60).expect("in its own place")), 4, "a change keeps its age");
    assert!(matches!(put("b", 31), Err(ChangeError::DoesNotFit(_))));
    assert!(matches!(put("c", 1), Err(ChangeError::DefinedInFile(_))));
    assert!(matches!(put("a b", 1), Err(ChangeError::Invalid(_))));
    let remove = |name: &str| check_removal(&file(100), &tenants, name);
    assert!(remove("a").is_ok());
    assert!(matches!(remove("c"), Err(ChangeError::DefinedInFile(_))));
    assert_eq!(remove("b"), Err(ChangeError::Unknown));
}

#[test]
fn what_is_set_aside_comes_back_when_it_fits() {
    let kid = made("kid", 1, &json!({"parent": "later", "rate": "8/minute"}));
    let kid = std::slice::from_ref(&kid);
    assert_eq!(names(&merge(&file(100), kid)).1, ["kid"]);
    for (rate, aside) in [("10/minute", vec![]), ("5/minute", vec!["kid"])] {
        let body = json!({"rate": rate, "budget": {"mode": "allocated"}});
        let later = made("later", 2, &body);
        let put = check_put(&file(100), kid, "later", later.tenant.clone());
        assert!(put.is_ok(), "it drives out nobody that holds: {put:?}");
        assert_eq!(names(&merge(&file(100), &[kid[0].clone(), later])).1, aside, "{rate}");
    }
}

#[test]
fn no_change_drives_out_one_that_holds() {
    // The file had room for all three; now the older of the two others is set aside.
    let tenants = [child("x", 1, 20), child("a", 2, 30), child("b", 3, 20)];
    let file = file(80);
    assert_eq!(names(&merge(&file, &tenants)), (vec!["p", "c", "x", "b"], vec!["a"]));
    let smaller = child("x", 1, 10).tenant;
    let changes = [check_removal(&file, &tenants, "x"), check_put(&file, &tenants, "x", smaller)];
    for change in changes {
        let Err(ChangeError::DoesNotFit(why)) = change else { panic!("{change:?}") };
        assert!(why.contains("\"b\" would be set aside") && why.contains("come back: a)"), "{why}");
    }
    assert!(check_removal(&file, &tenants, "a").is_ok());
    assert!(check_removal(&file, &[tenants[0].clone(), tenants[2].clone()], "x").is_ok());
    assert!(check_removal(&file, &tenants, "b").is_ok(), "which makes no room for the older one");
}

/// What is warned of when one of these is changed to this.
fn warned(tenants: &[RunTimeTenant], name: &str, body: &Value) -> Vec<String> {
    let body = made(name, 1, body).tenant;
    check_put(&file(100), tenants, name, body).expect("it fits").warnings
}

#[test]
fn a_change_that_starts_afresh_says_so() {
    let tenants = [child("a", 1, 30)];
    for (body, expected) in [
        (json!({"parent": "p", "rate": "20/minute"}), None),
        (json!({"parent": "c", "rate": "20/minute"}), None),
        (
            json!({"rate": "20/minute", "algorithm": "fixed_window"}),
            Some("the algorithm and the root"),
        ),
        (
            json!({"parent": "p", "rate": "20/minute", "algorithm": "fixed_window"}),
            Some("the algorithm"),
        ),
    ] {
        let warnings = warned(&tenants, "a", &body);
        assert_eq!(warnings.len(), usize::from(expected.is_some()), "{warnings:?}");
        let said = |part: &str| warnings[0].contains(part) && warnings[0].contains("tenant `a` ");
        assert!(expected.is_none_or(said), "{warnings:?}");
    }
}

#[test]
fn all_whose_buckets_start_afresh_are_named() {
    let own = |budget: &Value| json!({"rate": "100/day", "budget": budget});
    let shared = own(&json!({"mode": "shared"}));
    let guaranteed = |each: &Value| own(&json!({"mode": "guaranteed", "guaranteed": each}));
    let elsewhere = json!({"parent": "c", "rate": "100/day"});
    let windows = json!({"rate": "100/day", "algorithm": "fixed_window"});
    let everything = guaranteed(&json!({"k0": 50, "k1": 50}));
    let named = guaranteed(&json!({"k0": 90}));
    for (before, after, expected) in [
        (&named, guaranteed(&json!({"k0": 40})), None),
        (&named, guaranteed(&json!({"k1": 90})), Some("tenant `k1` are others")),
        (&named, guaranteed(&json!({"k0": 40, "k1": 40})), Some("tenant `k1` are others")),
        (&named, shared.clone(), Some("tenant `own` are others")),
        (&shared, named.clone(), Some("tenants `own`, `k0` are others")),
        (&shared, everything.clone(), Some("tenants `k0`, `k1` are others")),
        (&shared, elsewhere, Some("tenants `own`, `k0`, `k1`, `k1-kid` are others")),
        (&shared, windows, Some("tenants `own`, `k0`, `k1`, `k1-kid` are others")),
        (&everything, shared.clone(), Some("tenant `own` are others")),
    ] {
        let kid = |name: &str, parent: &str| made(name, 2, &json!({"parent": parent}));
        let own = made("own", 1, before);
        let tenants = [own, kid("k0", "own"), kid("k1", "own"), kid("k1-kid", "k1")];
        let warnings = warned(&tenants, "own", &after);
        let afresh = warnings.iter().find(|it| it.contains("are others"));
        assert_eq!(afresh.is_some(), expected.is_some(), "{after}: {warnings:?}");
        let said = |part: &str| afresh.is_some_and(|it| it.contains(part));
        assert!(expected.is_none_or(said), "{expected:?}: {warnings:?}");
    }
}

#[test]
fn the_order_of_age_does_not_begin_anew() {
    let oldest = child("a", u64::MAX, 1);
    let put = check_put(&file(100), &[oldest], "b", child("b", 0, 1).tenant).expect("it fits");
    let TenantChange::Set(made) = put.change else { panic!("{put:?}") };
    assert_eq!(made.order, u64::MAX);
}

#[test]
fn one_that_does_not_hold_takes_no_room_from_younger_ones() {
    let strange = json!({"mode": "guaranteed", "guaranteed": {"nobody": 1}});
    let strange = json!({"parent": "p", "rate": "50/minute", "budget": strange});
    let tenants = [made("strange", 1, &strange), child("good", 2, 30)];
    assert_eq!(names(&merge(&file(100), &tenants)), (vec!["p", "c", "good"], vec!["strange"]));
    assert!(check_removal(&file(100), &tenants, "strange").is_ok());
}

#[test]
fn a_table_is_not_set_back_by_what_was_read_before_a_change() {
    let table = TenantTable::of([child("a", 1, 1)]);
    let seen = table.mark();
    let change = TenantChange::Set(Box::new(child("b", 2, 1)));
    table.apply(&change, Some("second".to_owned()));
    table.replace(seen.as_deref(), [child("a", 1, 1)], Some("first".to_owned()));
    assert_eq!(table.state().tenants.len(), 2);
    table.replace(Some("second"), [], Some("third".to_owned()));
    assert_eq!(table.state(), TableState { tenants: vec![], mark: Some("third".to_owned()) });
}
