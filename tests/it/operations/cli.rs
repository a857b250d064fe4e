//! The command line: `check`, help, and errors of usage.

use std::io::Write as _;
use std::process::{Output, Stdio};

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

/// Line and column, counted from one, of the first location where `part` stands.
fn location(text: &str, part: &str) -> String {
    let at = text.find(part).unwrap();
    let line = text[..at].matches('\n').count() + 1;
    let column = at - text[..at].rfind('\n').map_or(0, |it| it + 1) + 1;
    format!("weir.toml:{line}:{column}")
}

#[test]
fn check_summarises_a_valid_file() {
    let (code, said) = check(&Config::echo().text());
    assert_eq!(code, Some(0), "{said}");
    for part in ["all", "per-ip", "/*"] {
        assert!(said.contains(part), "no {part} in:\n{said}");
    }
    assert!(!said.contains("error"), "{said}");
}

#[test]
fn error_is_shown_with_location_and_remedy() {
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
        let location = location(&text, part);
        assert!(said.contains(&location), "{to}: {location} in\n{said}");
        assert!(said.contains(remedy), "{to}: no {remedy} in\n{said}");
    }
}

#[test]
fn all_errors_are_shown_together() {
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
fn shipped_configurations_are_valid() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/config");
    for name in ["config.toml", "reference.toml", "examples/oauth.toml"] {
        let output = program().arg("check").arg(format!("{folder}/{name}")).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{name}:\n{}", all(&output));
        assert!(all(&output).contains("route"), "{name} is summed up");
    }
}

#[test]
fn help_and_version_are_printed() {
    let output = program().arg("--help").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let said = all(&output);
    for word in ["run", "check", "health", "hash-key", "--config", "Usage"] {
        assert!(said.contains(word), "no {word} in:\n{said}");
    }
    let output = program().arg("--version").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(all(&output).contains(env!("CARGO_PKG_VERSION")));
}

#[test]
fn bad_usage_exits_with_2() {
    for arguments in [
        &["--nonsense"][..],
        &["nonsense"],
        &["run", "--config"],
        &["check", "a", "b"],
        &["--config", "x.toml", "check"],
        // A key on the command line is seen by others.
        &["hash-key", "0123456789abcdef"],
    ] {
        let output = program().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", all(&output));
    }
}

fn hash_key(input: &[u8]) -> (Option<i32>, String) {
    let mut command = program();
    command.arg("hash-key").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code(), all(&output))
}

#[test]
fn a_key_is_hashed_from_standard_input() {
    // FIPS 180-2, appendix B.2.
    let key = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq".to_vec();
    let hash = "sha256:248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1\n";
    for end in [&b""[..], b"\n", b"\r\n"] {
        let said = hash_key(&[&key, end].concat());
        assert_eq!(said, (Some(0), hash.to_owned()));
    }
}

#[test]
fn invalid_key_is_not_hashed_and_not_echoed() {
    for (input, expected) in [
        (&b""[..], "there is no key on standard input"),
        (b"hunter2\n", "fewer than 16 characters"),
        (b"hunter2hunter2hunter2\nhunter2\n", "more than one line"),
        (b" hunter2hunter2hunter2", "spaces around it"),
        (b"hunter2hunter2hunter2\xff", "not valid UTF-8"),
    ] {
        let (code, said) = hash_key(input);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(expected) && !said.contains("hunter2"), "{said}");
    }
}

#[test]
fn a_new_key_comes_with_its_hash() {
    let output = program().args(["hash-key", "--new"]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with("weir_"), "{} lines", lines.len());
    assert_eq!(hash_key(lines[0].as_bytes()), (Some(0), format!("{}\n", lines[1])));
    let output = program().args(["hash-key", "--help"]).output().unwrap();
    let said = all(&output);
    for word in ["standard input", "--new", "[[clients]]", "key_hash"] {
        assert!(said.contains(word), "no {word} in:\n{said}");
    }
}
