//! When overrides hold, and which of two.

use super::*;

fn deny(value: &str, until: u64) -> Override {
    let subject = Subject::Access {
        action: AccessAction::Deny,
        who: CallerKind::Ip,
        value: value.to_owned(),
    };
    Override { subject, until, reason: None }
}

#[test]
fn what_is_written_down_can_be_read_again() {
    let overrides = OverrideTable::default();
    let numbers = NumbersSpec { rate: Some("5/second".to_owned()), burst: Some(7), boost: None };
    let subject = Subject::Override { limit: "l".into(), key: "a".into(), numbers };
    let entry = Override { subject, until: now() + 60, reason: Some("a launch".into()) };
    overrides.put(entry.clone()).expect("room");
    overrides.put(deny("192.0.2.0/24", now() + 60)).expect("room");
    assert_eq!(OverrideTable::of(&overrides.text()).all(), overrides.all());
    assert_eq!(overrides.get("override/l/a"), Some(entry));
    assert!(OverrideTable::of(b"garbage").all().is_empty());
}

#[test]
fn what_has_ended_holds_no_more_and_makes_room() {
    let overrides = OverrideTable::default();
    overrides.put(deny("192.0.2.1", now())).expect("room");
    assert!(overrides.all().is_empty() && overrides.overrides().access().is_none());
    overrides.put(deny("192.0.2.2", now() + 60)).expect("room");
    assert_eq!(overrides.count(), 1);
}

#[test]
fn the_later_of_two_overrides_of_one_caller_holds() {
    let overrides = OverrideTable::default();
    overrides.put(deny("192.0.2.1", now() + 60)).expect("room");
    let subject = Subject::Access {
        action: AccessAction::Allow,
        who: CallerKind::Ip,
        value: "192.0.2.1".into(),
    };
    overrides.put(Override { subject, until: now() + 60, reason: None }).expect("room");
    let access = overrides.overrides().access().expect("one is named");
    assert!(access.deny.is_empty() && !access.allow.is_empty());
}

#[tokio::test]
async fn an_end_is_a_change() {
    let overrides = OverrideTable::default();
    overrides.put(deny("192.0.2.1", now() + 1)).expect("room");
    overrides.changed().await;
    while !overrides.all().is_empty() {
        overrides.changed().await;
    }
}
