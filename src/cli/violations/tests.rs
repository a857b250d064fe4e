use serde_json::json;

use super::*;

fn violation(identifier: &str) -> Value {
    json!({
        "time": 1_794_802_783.9, "event": "rate_limit_exceeded", "identifier": identifier,
        "limit": "calls", "user": "ann",
    })
}

fn answer(violations: Vec<Value>, before: Option<&str>) -> Answer {
    Answer { violations, before: before.map(str::to_owned), hint: None }
}

#[test]
fn the_table_is_aligned_and_harmless() {
    let (first, mut second) = (violation("a\u{1b}[2Jb"), violation("a\u{1b}[2Jb"));
    second["repeated"] = json!(97);
    let text = table(&answer(vec![second, first], Some("5-0\u{1b}[2J")));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("TIME                  EVENT                LIMIT  KEY"));
    assert!(
        lines[1].starts_with("2026-11-16T04:19:43Z  rate_limit_exceeded  calls  a\u{fffd}[2Jb")
    );
    assert!(lines[1].ends_with("97") && lines[2].ends_with('1'), "{text}");
    assert_eq!(*lines.last().unwrap(), "there are more: --before 5-0\u{fffd}[2J");
}

#[test]
fn what_is_not_seen_is_shown() {
    for unseen in ['\u{9b}', '\u{7f}', '\u{202e}', '\u{2066}', '\u{2028}', '\u{200f}', '\u{feff}'] {
        let name = format!("a{unseen}b");
        assert_eq!(printable(&name), "a\u{fffd}b", "{unseen:?}");
        let json = serde_json::to_string(&name).unwrap();
        let safe = escaped(&json);
        assert!(safe.is_ascii() && serde_json::from_str::<String>(&safe).unwrap() == name);
    }
    assert_eq!(escaped("{\n\t\"a\": \"ü\"}"), "{\n\t\"a\": \"ü\"}");
    assert_eq!(escaped("\u{e0041}"), "\\udb40\\udc41");
    assert_eq!(printable("J\u{fc}rgen, 日本"), "J\u{fc}rgen, 日本");
}

#[test]
fn one_event_of_another_version_hides_no_other() {
    let strange = json!({ "event": "moon_phase", "time": "late", "user": 5, "route": "all" });
    let text = table(&answer(vec![violation("ann"), strange, json!(7)], None));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(lines[2].contains("moon_phase") && lines[2].contains("all"), "{text}");
}

#[test]
fn values_are_encoded() {
    assert_eq!(percent_encoded("a@b &c"), "a%40b%20%26c");
}
