//! `[guards.NAME]`, and routes that name guards and limits.

use super::{good, refused};

/// A guard `g` and a limit `l`, and a route with these keys.
fn file(guard: &str, route: &str) -> String {
    format!(
        "[limits.l]\nkey = \"ip\"\nrate = \"10/second\"\n[guards.g]\nkey = \"ip\"\nthreshold = 5\n\
         {guard}\n[[routes]]\nname = \"r\"\npath = \"/*\"\nupstream = \"echo\"\n{route}\n"
    )
}

const TIMES: &str = "window = \"10s\"\npenalty = \"5m\"";
const BOTH: &str = "limits = [\"l\"]\nguards = [\"g\"]";

#[test]
fn guard_that_can_hardly_ever_block_is_warned_of() {
    let warnings = |guard| good(&file(guard, BOTH)).warnings.lines();
    let short = warnings("window = \"1h\"\npenalty = \"1m\"");
    assert_eq!(short.len(), 1, "{short:?}");
    assert!(short[0].contains("`penalty` is shorter than the window"), "{short:?}");
    assert_eq!(warnings("window = \"1m\"\npenalty = \"1m\""), [""; 0]);
}

#[test]
fn guard_with_the_name_of_a_limit_is_warned_of() {
    let same = file(TIMES, "limits = [\"l\"]\nguards = [\"l\"]").replace("guards.g", "guards.l");
    let warnings = good(&same).warnings.lines();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("guard `l` has the name of a limit"), "{warnings:?}");
}

#[test]
fn limit_among_guards_and_guard_among_limits_are_told_where_to_go() {
    for (route, fault) in [
        ("limits = [\"l\", \"g\"]\nguards = [\"g\"]", "`g` is a guard; name it in `guards`"),
        ("limits = [\"l\"]\nguards = [\"g\", \"l\"]", "`l` is a limit; name it in `limits`"),
        ("guards = [\"g\", \"l\"]", "`l` is a limit; name it in `limits`"),
        ("limits = [\"l\", \"g\"]", "`g` is a guard; name it in `guards`"),
    ] {
        let faults = refused(&file(TIMES, route));
        assert!(faults.len() == 1 && faults[0].contains(fault), "{route}: {faults:#?}");
    }
}

#[test]
fn name_outside_of_a_list_is_not_called_unused() {
    for route in ["limits = [\"l\"]\nguards = \"g\"", "limits = \"l\"\nguards = [\"g\"]"] {
        let faults = refused(&file(TIMES, route));
        assert!(faults.len() == 1 && faults[0].contains("must be an array"), "{faults:#?}");
    }
}
