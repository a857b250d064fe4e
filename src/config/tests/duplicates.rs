//! Tables that a file has twice: which one is shown as the first, and what to write.

use std::collections::BTreeSet;
use std::path::Path;

use super::{refused, route, with_route};
use crate::config::compile;
use crate::config::file::{ARRAYS, Reporter, TomlFile};

/// The line that is labelled as the first, from one.
fn first_line(text: &str) -> Option<usize> {
    let shown = crate::config::parse("config.toml", text).unwrap_err().to_string();
    let above = shown.lines().zip(shown.lines().skip(1));
    let mut labelled = above.filter(|(_, label)| label.ends_with("first here"));
    let (line, _) = labelled.next()?;
    line.split('|').next()?.trim().parse().ok()
}

#[test]
fn the_first_table_is_looked_for_in_the_same_entry_of_an_array() {
    let entry = |name: &str| format!("[[routes]]\nname = \"{name}\"\n");
    let table = "[routes.respond]\nheaders = []\n";
    let text = [&entry("a"), table, &entry("b"), table, table].concat();
    assert_eq!(first_line(&text), Some(7), "{text}");
    // In the last entry only the second one can be seen as a header.
    let text = [&entry("a"), table, &entry("b"), "respond.headers = []\n", table].concat();
    assert_eq!(first_line(&text), None, "{text}");
    let inner = "[[routes.x]]\n[routes.x.y]\n";
    let text = [&entry("a"), inner, inner, "[routes.x.y]\n"].concat();
    assert_eq!(first_line(&text), Some(6), "{text}");
    // Entries of another array change nothing.
    let text = [table, "[[clients]]\n[[routesx]]\n", table].concat();
    assert_eq!(first_line(&text), Some(1), "{text}");
}

#[test]
fn a_second_header_of_an_array_is_told_double_brackets_whichever_of_the_two_has_them() {
    let single = "[routes]\nname = \"b\"\npath = \"/b\"\nupstream = \"echo\"\n";
    let clients = "[clients]\nid = \"a\"\n";
    for (text, header) in [
        (format!("{single}{}", route("path = \"/a\"")), "`[[routes]]`; write `[[routes]]`"),
        (format!("{}{single}", with_route("")), "`[routes]`; write `[[routes]]`"),
        (format!("{single}{single}"), "`[routes]`; write `[[routes]]`"),
        (with_route(&clients.repeat(2)), "`[clients]`; write `[[clients]]`"),
    ] {
        let lines = refused(&text);
        let expected = format!("duplicate table {header} above each");
        assert!(lines.iter().any(|it| it.ends_with(&expected)), "{lines:#?}");
    }
    for (first, second) in [("[server]", "[[server]]"), ("[[limits]]", "[limits]")] {
        let lines = refused(&with_route(&format!("{first}\n{second}\n")));
        let expected = format!("duplicate table `{second}`; put its keys below the first one");
        assert!(lines.iter().any(|it| it.ends_with(&expected)), "{lines:#?}");
    }
}

#[test]
fn the_arrays_of_a_file_are_those_that_the_code_reads_as_such() {
    let reporter = Reporter::default();
    compile::settings(&TomlFile::parse("[[routes]]\n[[clients]]\n"), &reporter, Path::new(""));
    let known = reporter.known_keys();
    let mut arrays: BTreeSet<&str> = BTreeSet::new();
    for key in &known {
        arrays.extend(key.split_once("[]").map(|(name, _)| name).filter(|it| !it.contains('.')));
    }
    assert_eq!(arrays, BTreeSet::from(ARRAYS));
}
