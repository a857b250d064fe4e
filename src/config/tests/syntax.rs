//! Text that is not TOML: what is said of it, and what is still said of the rest.

use super::refused;

#[test]
fn a_value_without_its_quotes_is_reported_as_such_whatever_it_begins_with() {
    for word in [
        "ip",
        "two",
        "ten",
        "five",
        "nine",
        "inf2",
        "1/second",
        "10/second",
        "30s",
        "x",
        "1.a",
        "user",
    ] {
        let lines = refused(&format!("[limits.a]\nkey = {word} # a comment\n"));
        let expected =
            format!("config.toml:2:7: `{word}` is not a value; write a string in quotes,");
        assert!(lines.iter().any(|it| it.starts_with(&expected)), "{word}: {lines:?}");
    }
}

#[test]
fn a_semicolon_at_the_end_of_a_line_is_told_to_go() {
    for line in ["rate = \"1/second\";", "rate = \"1/second\" ; # a comment", "burst = [5];"] {
        let lines = refused(&format!("[limits.a]\n{line}\n"));
        let expected = "no `;` is needed at the end of a line; remove it";
        assert!(lines.iter().any(|it| it.ends_with(expected)), "{line}: {lines:?}");
    }
}

#[test]
fn faults_of_syntax_and_meaning_are_reported_together() {
    let text = "[server]\nlisten =\nworkers = \"3\"\ndrain = 30s\n\n[limits.a]\nkey = \"ip\"\n\
                rate = \"1/second\nburst = 0\nburst = 1\n\n[[routes]]\nname = \"a\"\n\
                limits = [\"a\"\nbogus = 1\n\n[admin]\nx = 1\n";
    let lines = refused(text);
    let expected = [
        "config.toml:2:9: there is no value;",
        "config.toml:3:11: `workers` must be an integer, not a string;",
        "config.toml:4:9: `30s` is not a value; write a string in quotes,",
        "config.toml:8:17: the string is not closed; end it with `\"`",
        "config.toml:9:9: `burst` is out of range: `0`;",
        "config.toml:10:1: duplicate key `burst`;",
        "config.toml:14:10: the array is not closed; close it with `]`",
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(expected), "{line}");
    }
}

#[test]
fn what_an_open_bracket_or_string_swallows_is_not_reported() {
    let before = "config.toml:2:1: unknown key `worker`; did you mean `workers`?";
    for (open, expected) in [
        ("[limits.x\nrate = 5\n", "config.toml:3:10: the table is not closed; close it with `]`"),
        ("listen = \"\"\"a\n", "config.toml:3:10: the string is not closed; end it with `\"\"\"`"),
        ("listen = '''a\n", "config.toml:3:10: the string is not closed; end it with `'''`"),
        ("listen = [\"a\",\n", "config.toml:3:10: the array is not closed; close it with `]`"),
        ("listen = { a = 1\n", "config.toml:3:10: the inline table is not closed; close it with"),
    ] {
        let lines = refused(&format!("[server]\nworker = 1\n{open}[admin]\nlistn = 1\n"));
        assert!(lines.len() == 2 && lines[0] == before, "{lines:#?}");
        assert!(lines[1].starts_with(expected), "{lines:#?}");
    }
}
