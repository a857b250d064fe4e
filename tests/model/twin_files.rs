//! Each algorithm is one file in Rust and one in Lua, with the functions of the trait `Algorithm`.

use std::collections::BTreeSet;

/// What only Redis needs: it keeps states as text.
const KEPT_AS_TEXT: [&str; 2] = ["parse", "text"];
/// What only buckets have: journals (`lua/journal.lua`), and what is outstanding (`lua/outstanding.lua`).
const BUCKET: [&str; 3] = ["journal_cost", "journal_charge", "cap_refill"];

struct Twin {
    name: &'static str,
    rust: &'static str,
    lua: &'static str,
    /// Functions that only the Lua has.
    more: &'static [&'static str],
}

macro_rules! twin {
    ($name:literal, $more:expr) => {
        Twin {
            name: $name,
            rust: include_str!(concat!("../../src/limit/", $name, ".rs")),
            lua: include_str!(concat!("../../lua/", $name, ".lua")),
            more: $more,
        }
    };
}

fn twins() -> [Twin; 6] {
    [
        twin!("token_bucket", &BUCKET),
        twin!("refill_bucket", &BUCKET),
        twin!("fixed_window", &[]),
        twin!("sliding_window", &[]),
        twin!("sliding_log", &[]),
        twin!("concurrency", &["hold"]),
    ]
}

/// The names that follow `before` in a text, up to the first character that no name has.
fn names_after<'t>(text: &'t str, before: &'t str) -> impl Iterator<Item = &'t str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(before).skip(1).map(move |rest| rest.split(|c| !is_name(c)).next().unwrap_or(""))
}

fn trait_functions() -> BTreeSet<&'static str> {
    let file = include_str!("../../src/limit/algorithm.rs");
    let (_, body) = file.split_once("pub trait Algorithm {").expect("the trait");
    names_after(body, "\n    fn ").collect()
}

/// `function NAME.it(...)` and `NAME.it = ...`, at the start of a line.
fn lua_functions(twin: &Twin) -> BTreeSet<&'static str> {
    let lines = twin.lua.lines();
    let named = lines.filter_map(|line| {
        let line = line.strip_prefix("function ").unwrap_or(line);
        line.strip_prefix(twin.name)?.strip_prefix('.')
    });
    named.filter_map(|rest| rest.split(['(', ' ']).next()).collect()
}

#[test]
fn every_lua_file_has_the_functions_of_the_trait() {
    let functions = trait_functions();
    assert!(functions.contains("evaluate") && functions.len() >= 6, "{functions:?}");
    for twin in twins() {
        let more = KEPT_AS_TEXT.iter().chain(twin.more).copied();
        let expected: BTreeSet<_> = functions.iter().copied().chain(more).collect();
        assert_eq!(lua_functions(&twin), expected, "{}", twin.name);
    }
}

#[test]
fn every_rust_file_implements_the_trait() {
    for twin in twins() {
        let (_, body) = twin.rust.split_once("\nimpl Algorithm for ").expect(twin.name);
        let (body, _) = body.split_once("\n}\n").expect("its end");
        let functions: BTreeSet<_> = names_after(body, "\n    fn ").collect();
        assert_eq!(functions, trait_functions(), "{}", twin.name);
    }
}

/// The names of the arguments stand in the same order in both files: in the comment on `wire_args`
/// in Rust, and where Lua takes the numbers apart.
#[test]
fn lua_takes_the_arguments_in_the_order_that_rust_states() {
    for twin in twins() {
        let (before, _) = twin.rust.split_once("fn wire_args").expect(twin.name);
        let comment = before.rsplit("\n\n").next().expect("a comment");
        let (_, body) = twin.lua.split_once(".wire_args(numbers)").expect(twin.name);
        let (body, _) = body.split_once("\nend\n").expect("its end");
        let mut place = 0;
        for (number, name) in names_by_number(body) {
            let found = comment[place..].find(name);
            let at = found.unwrap_or_else(|| panic!("{}: {name} is number {number}", twin.name));
            place += at + name.len();
        }
    }
}

/// From lines such as `cost = numbers[2],`: the names in the order of their numbers.
fn names_by_number(body: &str) -> Vec<(usize, &str)> {
    let mut names: Vec<_> = names_after(body, "= numbers[")
        .zip(body.split("= numbers["))
        .filter_map(|(number, before)| {
            let name = before.trim_end().rsplit([' ', '{', '\n']).next()?;
            Some((number.parse().ok()?, name))
        })
        .collect();
    names.sort_unstable();
    names
}

#[test]
fn leaky_bucket_is_the_token_bucket_in_both() {
    let lua = include_str!("../../lua/leaky_bucket.lua");
    assert!(lua.contains("\nlocal leaky_bucket = make_token_bucket()\n"), "{lua}");
    let rust = include_str!("../../src/limit/leaky_bucket.rs");
    assert!(rust.contains("\npub struct LeakyBucket(TokenBucket);\n"));
}
