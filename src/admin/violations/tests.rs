use super::*;
use crate::violations::ViolationId;

const SHOWN: CallerNames = CallerNames { hashed: false };

#[test]
fn parameters_are_decoded_and_empty_ones_are_none() {
    let query = parse("user=a%40b&route=&max=7&before=12-3&since=1.5&limit=l", SHOWN).unwrap();
    assert_eq!(query.user.as_deref(), Some("a@b"));
    assert_eq!((query.route, query.limit), (None, Some("l".to_owned())));
    assert_eq!((query.max, query.before), (7, Some(ViolationId(12, 3))));
    assert_eq!(query.since, Some(1.5));
    assert_eq!(parse("", SHOWN).unwrap().max, 100);
    let ago = parse("since=1h", SHOWN).unwrap().since.unwrap();
    assert!((unix_time() - 3_600.0 - ago).abs() < 5.0);
}

#[test]
fn what_cannot_be_meant_is_refused() {
    for bad in [
        "usr=a",
        "usr=",
        "usr",
        "=a",
        "max=0",
        "max=1001",
        "since=soon",
        "before=9",
        "ip=here",
        "since=-1",
    ] {
        assert!(parse(bad, SHOWN).is_err(), "{bad}");
    }
    for (bad, why) in [
        ("user=a&user=b", "user is given twice"),
        ("since=1m&until=1h", "is later than until"),
        ("since=2026-11-17T14:03Z&until=2026-11-17T14:02:59Z", "swap them"),
    ] {
        let error = parse(bad, SHOWN).unwrap_err();
        let said = format!("{error:?}");
        assert!(said.contains(why), "{bad}: {said}");
    }
    let second = "since=2026-11-17T14:03:00Z&until=2026-11-17%2014:03:00Z&user=&user=a";
    assert!(parse(second, SHOWN).is_ok(), "a second that the table shows holds what is in it");
}

#[test]
fn hashed_names_are_found_by_name_and_by_hash() {
    let hashed = CallerNames { hashed: true };
    let ann = hashed.of("ann");
    for text in ["user=ann".to_owned(), format!("user={ann}")] {
        assert_eq!(parse(&text, hashed).unwrap().user.as_ref(), Some(&ann));
    }
    assert_eq!(parse("key=ann", hashed).unwrap().key, Some(ann));
    let there = parse("ip=192.0.2.1", hashed).unwrap().ip;
    assert_eq!(there, Some(AddressFilter::Text(hashed.of("192.0.2.1"))));
    assert!(parse("ip=192.0.2.0/24", hashed).is_err());
}
