//! No input makes the reader panic, and none is too large for it.

use proptest::prelude::*;

use super::{good, refused};
use crate::config::parse;

const REFERENCE: &str = include_str!("../../../config/reference.toml");

/// Reads a text and shows all that comes of it.
fn exercise(text: &str) {
    match parse("c", text) {
        Ok(loaded) => drop((loaded.warnings.render(true), crate::config::summary(&loaded))),
        Err(error) => {
            assert!(!error.lines().is_empty());
            drop((error.render(false), error.render(true)));
        }
    }
}

/// One change to a text, by places given in thousandths of its length.
#[derive(Debug, Clone)]
enum Change {
    Insert(usize, String),
    Delete(usize, usize),
    Copy(usize, usize, usize),
}

fn change() -> impl Strategy<Value = Change> {
    let at = 0..1000usize;
    let token = prop::sample::select(vec![
        "\"",
        "'",
        "[",
        "]",
        "{",
        "}",
        "=",
        "\n",
        "#",
        ".",
        ",",
        "[[",
        "]]",
        "\"\"\"",
        "\\",
        "-1",
        "0",
        "1e999",
        "nan",
        "18446744073709551616",
        "true",
        "\u{0}",
        "ü",
        "\u{feff}",
        "\r",
        "/",
        "*",
        "{x}",
        "%",
        "10s",
        "1979-05-27",
        "limits",
        "echo",
        "redis://",
        "response:",
        "jwt:",
        "form:",
        "plans",
        "concurrency",
        "4xx",
        "@",
        " ",
    ]);
    prop_oneof![
        (at.clone(), token.prop_map(str::to_owned)).prop_map(|(at, it)| Change::Insert(at, it)),
        (at.clone(), any::<char>()).prop_map(|(at, it)| Change::Insert(at, it.to_string())),
        (at.clone(), 1..40usize).prop_map(|(at, length)| Change::Delete(at, length)),
        (at.clone(), 1..200usize, at).prop_map(|(from, length, to)| Change::Copy(from, length, to)),
    ]
}

fn apply(text: &mut String, change: &Change) {
    let place = |text: &str, at: usize| text.floor_char_boundary(text.len() * at / 1000);
    let end = |text: &str, start: usize, length: usize| text.floor_char_boundary(start + length);
    match change {
        Change::Insert(at, it) => text.insert_str(place(text, *at), it),
        Change::Delete(at, length) => {
            let start = place(text, *at);
            text.replace_range(start..end(text, start, *length).max(start), "");
        }
        Change::Copy(from, length, to) => {
            let start = place(text, *from);
            let piece = text[start..end(text, start, *length).max(start)].to_owned();
            text.insert_str(place(text, *to), &piece);
        }
    }
}

/// The reference without its comments, so that most changes hit something that means something.
fn bare() -> String {
    let lines = REFERENCE.lines().filter(|line| !line.starts_with("# ") && *line != "#");
    let text: String = lines.flat_map(|line| [line.trim_start_matches('#'), "\n"]).collect();
    text.replace("kind = \"memory\"", "kind = \"redis\"")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_change_to_a_good_file_makes_reading_panic(changes in prop::collection::vec(change(), 1..6)) {
        let mut text = bare();
        for change in &changes {
            apply(&mut text, change);
        }
        exercise(&text);
    }

    #[test]
    fn no_text_makes_reading_panic(text in any::<String>()) {
        exercise(&text);
    }
}

/// Every string of the reference in turn gives way to one that must not be repeated as it is.
#[test]
fn messages_stay_short_and_plain_whatever_strings_hold() {
    let text = bare();
    let quotes: Vec<usize> = text.match_indices('"').map(|(at, _)| at).collect();
    let long = |piece: &str| piece.repeat(5000);
    let hostile = [
        "\\u001b[31m\\n".to_owned(),
        long("x"),
        long("9"),
        long("a-"),
        long("/"),
        format!("/{}", long("%6c")),
        format!("/:{}", long("a")),
        format!("http://{}/", long("a/")),
        format!("header:{}", long("a")),
        format!("response:{}", long("a")),
        format!("jwt:{}", long("a")),
        format!("https://{}/", long("a/")),
        format!("https://{}", long("a")),
        format!("redis://{}/", long("a/")),
        format!("redis://{}@a", long("%6c:")),
        format!("unix:///{}", long("a/")),
        format!("1/{}", long("s")),
        format!("0.0.0.0:{}", long("0")),
    ];
    for ends in quotes.chunks_exact(2) {
        for string in &hostile {
            let changed = format!("{}{string}{}", &text[..=ends[0]], &text[ends[1]..]);
            let Err(error) = parse("c", &changed) else { continue };
            for line in error.lines() {
                assert!(line.chars().count() < 500, "{line}");
                assert!(!line.chars().any(char::is_control), "{line:?}");
            }
        }
    }
}

#[test]
fn deep_nesting_is_refused_and_not_followed() {
    for text in [
        format!("a = {}", "[".repeat(100_000)),
        format!("a = {}", "{a=".repeat(100_000)),
        format!("{}a = 1", "a.".repeat(100_000)),
        format!("[{}a]", "a.".repeat(100_000)),
        format!("[[{}a]]", "routes.".repeat(100_000)),
    ] {
        exercise(&text);
    }
}

#[test]
fn one_long_line_is_refused_and_shown() {
    let line = format!("{} = \"{}\"", "x".repeat(100_000), "y".repeat(1_000_000));
    let lines = refused(&line);
    assert!(lines.iter().all(|line| line.len() < 1000));
    exercise(&line);
}

#[test]
fn ten_thousand_routes_are_read() {
    let route = |at| {
        format!("[[routes]]\nname = \"r{at}\"\npath = \"/{at}/{{id}}\"\nupstream = \"echo\"\n")
    };
    let text: String = (0..10_000).map(route).collect();
    assert_eq!(good(&text).settings.routes.len(), 10_000);
}
