//! The command line: `check`, help, and what is said about bad usage.

use std::process::Output;

use crate::support::gateway::program;
use crate::support::{Config, Scratch};

fn check(text: &str) -> (Option<i32>, String) {
    let scratch = Scratch::new();
    let file = scratch.file("weir.toml", text);
    let output = program().arg("check").arg(file).output().unwrap();
    (output.status.code(), all(&output))
}

fn all(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Line and column, counted from one, of the first place where `part` stands.
fn place(text: &str, part: &str) -> String {
    let at = text.find(part).unwrap();
    let line = text[..at].matches('\n').count() + 1;
    let column = at - text[..at].rfind('\n').map_or(0, |it| it + 1) + 1;
    format!("weir.toml:{line}:{column}")
}

#[test]
fn a_good_file_is_summed_up() {
    let (code, said) = check(&Config::echo().text());
    assert_eq!(code, Some(0), "{said}");
    for part in ["all", "per-ip", "/*"] {
        assert!(said.contains(part), "no {part} in:\n{said}");
    }
    assert!(!said.contains("error"), "{said}");
}

#[test]
fn a_fault_is_told_with_its_place_and_a_way_out() {
    let good = Config::echo().text();
    let rows = [
        ("burst = 5", "brust = 5", "brust", "burst"),
        ("rate = \"1/second\"", "rate = \"1/fortnight\"", "\"1/fortnight\"", "minute"),
        ("limits = [\"per-ip\"]", "limits = [\"per-op\"]", "\"per-op\"", "per-ip"),
        ("upstream = \"echo\"", "upstream = \"ecko\"", "\"ecko\"", "echo"),
        ("key = \"ip\"", "key = \"iq\"", "\"iq\"", "ip"),
        ("burst = 5", "burst = 0", "0\n", "1"),
        ("burst = 5", "burst = \"five\"", "\"five\"", "integer"),
        ("[admin]", "[admim]", "admim", "admin"),
    ];
    for (from, to, part, remedy) in rows {
        let text = good.replacen(from, to, 1);
        let (code, said) = check(&text);
        assert_eq!(code, Some(2), "{to}:\n{said}");
        let place = place(&text, part);
        assert!(said.contains(&place), "{to}: {place} in\n{said}");
        assert!(said.contains(remedy), "{to}: no {remedy} in\n{said}");
    }
}

#[test]
fn all_faults_are_told_together() {
    let text = Config::echo().text();
    let text = text.replace("burst = 5", "brust = 5").replace("1/second", "1/eon");
    let text = text.replace("upstream = \"echo\"", "upstream = \"ecko\"");
    let (code, said) = check(&text);
    assert_eq!(code, Some(2));
    for part in ["brust", "1/eon", "ecko"] {
        assert!(said.contains(part), "no {part} in:\n{said}");
    }
}

#[test]
fn the_shipped_configurations_are_good() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/config");
    for name in ["config.toml", "reference.toml"] {
        let output = program().arg("check").arg(format!("{folder}/{name}")).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{name}:\n{}", all(&output));
        assert!(all(&output).contains("route"), "{name} is summed up");
    }
}

#[test]
fn help_and_version_are_there() {
    let output = program().arg("--help").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let said = all(&output);
    for word in ["run", "check", "--config", "Usage"] {
        assert!(said.contains(word), "no {word} in:\n{said}");
    }
    let output = program().arg("--version").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(all(&output).contains(env!("CARGO_PKG_VERSION")));
}

#[test]
fn bad_usage_is_a_2() {
    for arguments in [
        &["--nonsense"][..],
        &["nonsense"],
        &["run", "--config"],
        &["check", "a", "b"],
        &["--config", "x.toml", "check"],
    ] {
        let output = program().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", all(&output));
    }
}
