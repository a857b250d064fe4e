//! `[tenants.NAME]`, `tenants_file` and `[limits.tenants]`.

use std::time::Duration;

use super::faults::{each_refused, each_warned};
use super::good;
use super::secrets::Files;
use crate::config::settings::Tenants;
use crate::config::{load, summary};
use crate::limit::fixed_window::FixedWindow;
use crate::limit::tenants::{BudgetMode, Overcommit, Sharing, TenantAlgorithm, TenantLimit};
use crate::limit::{Cost, Missing, Mode, Policy, Rate};

/// A route that uses tenants, of which there is one of 100 a minute. What follows begins on line 11.
fn tenants(text: &str) -> String {
    format!(
        "[[routes]]\nname = \"r\"\npath = \"/*\"\nupstream = \"echo\"\nlimits = [\"tenants\"]\n\
         [identity]\ntenant = \"header:x-tenant\"\n\
         [tenants.root]\nrate = \"100/minute\"\n\n{text}"
    )
}

fn settings(text: &str) -> Tenants {
    let loaded = good(&tenants(text));
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    (*loaded.settings.tenants).clone()
}

#[test]
fn a_tenant_has_the_keys_that_are_written_and_defaults_for_the_rest() {
    let read = settings(
        "[tenants.\"p@x:1\"]\nparent = \"root\"\nrate = \"60/hour\"\nburst = 5\n\
         algorithm = \"token_bucket\"\nsharing = \"inherit\"\ndescription = \"A partner.\"\n\
         budget = { mode = \"allocated\", total = 50, overcommit = 1.25 }\n\
         [tenants.c]\nparent = \"p@x:1\"\nalgorithm = \"fixed_window\"\n",
    );
    let spec = |name: &str| &read.tree[read.tree.find(name.as_bytes()).unwrap()].spec;
    let root = spec("root");
    assert_eq!((root.parent.as_deref(), root.burst, root.algorithm), (None, None, None));
    assert_eq!((root.sharing, &root.budget.mode), (Sharing::Enforce, &BudgetMode::Unlimited));
    assert_eq!((root.budget.total, root.budget.overcommit), (None, Overcommit::default()));
    let p = spec("p@x:1");
    assert_eq!(
        (p.parent.as_deref(), p.burst, p.sharing),
        (Some("root"), Some(5), Sharing::Inherit)
    );
    assert_eq!(p.rate.map(|it| (it.count(), it.period_us())), Some((60, 3_600_000_000)));
    assert_eq!((p.algorithm, p.budget.total), (Some(TenantAlgorithm::TokenBucket), Some(50)));
    assert_eq!((&p.budget.mode, p.budget.overcommit.hundredths()), (&BudgetMode::Allocated, 125));
    assert_eq!(p.description.as_deref(), Some("A partner."));
    assert_eq!(spec("c").algorithm, Some(TenantAlgorithm::FixedWindow));
    assert_eq!(read.limit, TenantLimit::default());
}

#[test]
fn routes_say_whether_they_go_by_tenants() {
    let text = tenants("[limits.l]\nkey = \"ip\"\nrate = \"5/second\"\n")
        .replace("[\"tenants\"]", "[\"l\", \"tenants\"]");
    let loaded = good(&text);
    assert_eq!(loaded.settings.routes[0].limits, [0]);
    assert!(loaded.settings.routes[0].tenants);
    let loaded = good(&text.replace(", \"tenants\"", ""));
    assert!(!loaded.settings.routes[0].tenants);
    let warnings = loaded.warnings.lines();
    assert_eq!(warnings.len(), 1);
    let expected = "8:10: warning: the tenants are used by no route; add `\"tenants\"` to the";
    assert!(warnings[0].contains(expected), "{warnings:?}");
}

#[test]
fn the_limit_of_tenants_has_what_is_not_in_the_tree() {
    let limit = |keys: &str| settings(&format!("[limits.tenants]\n{keys}")).limit;
    let full = limit(
        "description = \"Budgets.\"\nenabled = false\nmissing = \"shared\"\nrate = \"10/second\"\n\
         burst = 20\ncost = 3\nmode = \"shadow\"\nstatus = 503\nmessage = \"No.\"\n\
         response_headers = false\nwhen = { method = \"POST\" }\n",
    );
    assert_eq!((full.missing, full.mode, full.enabled), (Missing::Shared, Mode::Shadow, false));
    assert_eq!((full.cost, full.refusal.status.as_u16()), (Cost::Fixed(3), 503));
    assert_eq!((full.response_headers, full.when.len()), (false, 1));
    let Some(Policy::TokenBucket(bucket)) = full.unknown else { panic!("{:?}", full.unknown) };
    assert_eq!((bucket.burst(), bucket.span(10)), (20, Duration::from_secs(1)));
    // With numbers for others, these are counted by address.
    assert_eq!(limit("rate = \"10/second\"").missing, Missing::Ip);
    assert_eq!(limit("").missing, Missing::Deny);
    assert_eq!(limit("missing = \"skip\"").missing, Missing::Skip);
    let dear = "cost = { from = \"response:x-cost\", max = 50 }";
    // Without a `max` no bucket owes more than it holds itself.
    let unbounded = "cost = { from = \"response:x-cost\" }";
    for (keys, debts) in [(dear, [50, 50]), (unbounded, [5, 800]), ("cost = 7", [0, 0])] {
        let found = [5, 800].map(|count| {
            let rate = Rate::new(count, Duration::from_secs(60)).expect("a rate");
            let policy = Policy::FixedWindow(FixedWindow::new(rate));
            limit(keys).with_debt(policy).deepest() - count
        });
        assert_eq!(found, debts, "{keys}");
    }
}

#[test]
fn faults_of_tenants_have_their_line_and_column() {
    let one = |keys: &str| tenants(&format!("[tenants.t]\nparent = \"root\"\n{keys}"));
    each_refused(&[
        (one("rat = \"5/second\""), "13:1: unknown key `rat`; did you mean `rate`?"),
        (one("rate = \"5\""), "13:8: `rate` is not a rate: `5`; add a period"),
        (one("rate = \"5/month\""), "13:8: `rate` is not a rate: `5/month`; write `\"5/30d\"`"),
        (one("burst = 0"), "13:9: `burst` is out of range: `0`"),
        (one("algorithm = \"sliding_log\""), "13:13: `algorithm` cannot be `sliding_log`"),
        (one("sharing = \"enforced\""), "`sharing` cannot be `enforced`; did you mean `enforce`?"),
        (one("budget = \"shared\""), "13:10: `budget` must be a table, not a string"),
        (one("budget = { mode = \"share\" }"), "13:19: `mode` cannot be `share`; did you mean"),
        (one("budget = { totl = 5 }"), "13:12: unknown key `totl`; did you mean `total`?"),
        (
            one("budget = { overcommit = 2.1 }"),
            "13:25: `overcommit` is out of range: `2.1`; write a number from 1.0 to 2",
        ),
        (one("budget = { overcommit = 0.5 }"), "`overcommit` is out of range: `0.5`"),
        (one("budget = { guaranteed = { a = 5 } }"), "13:10: `budget` of `[tenants.t]` has guar"),
        (
            one("budget = { mode = \"guaranteed\" }"),
            "`budget` of `[tenants.t]` has no `guaranteed`",
        ),
        (
            one("budget = { mode = \"guaranteed\", guaranteed = { a = 0 } }"),
            "13:52: `a` is out of range: `0`",
        ),
        (
            one("budget = { mode = \"guaranteed\", guaranteed = { a = 5 } }"),
            "13:52: tenant `t` guarantees something to `a`, which is no child of it; leave it out",
        ),
        (one("description = \"\""), "13:15: `description` is empty"),
        (
            one("").replace("parent = \"root\"", "parent = \"rot\""),
            "12:10: the parent of tenant `t`, \
          `rot`, is no tenant; did you mean `root`?",
        ),
        (
            one("").replace("parent = \"root\"", "parent = \"nobody\""),
            "12:10: the parent of tenant \
          `t`, `nobody`, is no tenant; add `[tenants.nobody]`",
        ),
        (one("").replace("parent = \"root\"", "parent = \"t\""), "12:10: tenant `t` is its own"),
        (one("").replace("parent = \"root\"", ""), "11:10: tenant `t` has no `rate` and no parent"),
        (one("").replace("tenants.t]", "tenants.\"t/1\"]"), "11:10: `t/1` is no name for a tenant"),
        (tenants("[tenants]\nx = 5"), "must be a table, not an integer"),
    ]);
}

#[test]
fn budgets_that_do_not_fit_are_refused_or_warned_of_with_their_sums() {
    let partner = |overcommit: &str| {
        let children = [("a1", 2000), ("a2", 1000), ("a3", 3000)].map(|(name, rate)| {
            format!("[tenants.{name}]\nparent = \"partner\"\nrate = \"{rate}/minute\"\n")
        });
        tenants(&format!(
            "[tenants.partner]\nrate = \"5000/minute\"\n\
             budget = {{ mode = \"allocated\", total = 5000, overcommit = {overcommit} }}\n{}",
            children.concat()
        ))
    };
    each_refused(&[(
        partner("1.0"),
        "13:10: the budget of tenant `partner` does not fit: its children have 6000 in 60s (`a1` \
         2000, `a2` 1000, `a3` 3000), and its total is 5000; allocate 1000 less",
    )]);
    each_warned(&[(
        partner("1.5"),
        "13:10: warning: the budget of tenant `partner` is overcommitted: its children have 6000 in \
         60s (`a1` 2000, `a2` 1000, `a3` 3000), and its total is 5000, 7500 with",
    )]);
}

#[test]
fn all_faults_of_tenants_come_together_and_none_that_only_follow() {
    let text = tenants(
        "[tenants.a]\nrate = \"fast\"\n\
         [tenants.b]\nparent = \"a\"\n\
         [tenants.c]\nparent = \"d\"\n\
         [tenants.d]\nparent = \"c\"\n\
         [tenants.e]\nparent = \"nobody\"\n",
    );
    let lines = super::refused(&text);
    let starts: Vec<&str> = lines.iter().map(|line| &line[..line.len().min(45)]).collect();
    assert_eq!(
        starts,
        [
            "config.toml:12:8: `rate` is not a rate: `fast",
            "config.toml:16:10: tenant `c` is its own ance",
            "config.toml:20:10: the parent of tenant `e`, ",
        ]
    );
}

#[test]
fn the_limit_tenants_needs_tenants_and_a_place_where_they_are_found() {
    let text = tenants("");
    let without = text.replace("[tenants.root]\nrate = \"100/minute\"\n", "");
    each_refused(&[
        (
            without,
            "5:11: an entry of `limits` cannot be `tenants`: there are no tenants; add a table",
        ),
        (
            text.replace("tenant = \"header:x-tenant\"", ""),
            "5:11: an entry of `limits` cannot be `tenants`: `[identity]` does not say where a",
        ),
        (
            text.replace("[\"tenants\"]", "[\"tenant\"]"),
            "there is no limit `tenant`; did you mean `tenants`?",
        ),
        (text.replace("[\"tenants\"]", "[\"tenants\", \"tenants\"]"), "repeats an earlier one"),
    ]);
}

#[test]
fn faults_of_the_limit_of_tenants_say_what_to_write() {
    let limit = |keys: &str| tenants(&format!("[limits.tenants]\n{keys}"));
    each_refused(&[
        (
            limit("missing = \"ip\""),
            "12:11: `missing` counts tenants that are not in the tree, and",
        ),
        (limit("missing = \"shared\""), "there is no `rate` for them; add a line such as"),
        (limit("key = \"ip\""), "12:1: unknown key `key`"),
        (limit("algorithm = \"token_bucket\""), "12:1: unknown key `algorithm`"),
        (limit("adaptive = true"), "12:1: unknown key `adaptive`"),
        (limit("rate = \"1/366d\"\nburst = 1000"), "12:8: `rate` does not go with a burst of 1000"),
    ]);
    each_warned(&[
        (limit("burst = 5"), "12:9: warning: `burst` has no effect: there is no `rate`"),
        (
            limit("rate = \"5/second\"\nmissing = \"deny\""),
            "`missing` leaves the `rate` without effect",
        ),
        (
            super::with_route("[limits.tenants]\n"),
            "`[limits.tenants]` has no effect: it is for the tree of tenants, and there are none",
        ),
    ]);
}

/// A configuration in a file of its own, beside the files that it names.
fn in_folder(files: &Files, text: &str) -> Result<String, Vec<String>> {
    files.write("config.toml", text.as_bytes());
    let path = std::path::Path::new(files.folder()).join("config.toml");
    match load(&path) {
        Ok(loaded) => Ok(format!("{}{}", loaded.warnings.lines().join("\n"), summary(&loaded))),
        Err(error) => Err(error.lines()),
    }
}

/// The message of the only fault, without the name of the configuration.
fn only_fault(files: &Files, text: &str) -> String {
    let lines = in_folder(files, text).expect_err("refused");
    assert_eq!(lines.len(), 1, "{lines:#?}");
    lines[0].replace(&format!("{}/", files.folder()), "")
}

fn with_files(list: &str) -> String {
    format!("tenants_file = {list}\n{}", tenants(""))
}

#[test]
fn tenants_in_files_are_found_beside_the_configuration() {
    let files = Files::new();
    files.write("one.toml", b"[tenants.a]\nparent = \"root\"\n[tenants.b]\nparent = \"c\"\n");
    files.write("two.toml", b"[tenants.c]\nparent = \"a\"\n");
    files.write("config.toml", with_files("[\"one.toml\", \"two.toml\"]").as_bytes());
    let folder = std::path::Path::new(files.folder());
    let loaded = load(&folder.join("config.toml")).unwrap();
    let tenants = &loaded.settings.tenants;
    assert_eq!(tenants.tree.tenants().len(), 4);
    assert_eq!(tenants.files, [folder.join("one.toml"), folder.join("two.toml")]);
    assert_eq!(tenants.tree.levels(), 4);
}

#[test]
fn faults_in_files_have_their_line_and_column_there() {
    let files = Files::new();
    let text = with_files("\"t.toml\"");
    for (file, expected) in [
        (
            "[tenants.a]\nparent = \"root\"\nrate = 5\n",
            "t.toml:3:8: `rate` must be a string, not an",
        ),
        (
            "[tenants.a]\nparent = \"rot\"\n",
            "t.toml:2:10: the parent of tenant `a`, `rot`, is no \
          tenant; did you mean `root`?",
        ),
        ("[tenants.a]\nparent = \"a\"\n", "t.toml:2:10: tenant `a` is its own ancestor"),
        (
            "[tenants.root]\nrate = \"5/second\"\n",
            "whose tenant `root`, t.toml:1:10, is in the configuration al",
        ),
        ("", "without tenants: t.toml; add a table `[tenants.NAME]` to it"),
        ("# none\n[tenants]\n", "without tenants: t.toml"),
        ("[tenants.a]\nparent = \"\"\n", "leave it out for a root"),
        ("[server]\n", "t.toml:1:2: unknown key `server`; known here: `tenants`"),
        ("[tenants.a]\nparent = \n", "t.toml:2:"),
    ] {
        files.write("t.toml", file.as_bytes());
        let fault = only_fault(&files, &text);
        let start = "config.toml:1:16: `tenants_file` names a file w";
        assert!(fault.starts_with(start) && fault.contains(expected), "{expected}: {fault}");
    }
    files.write(
        "t.toml",
        b"[tenants.a]\nparent = \"root\"\nburst = 5\nalgorithm = \"fixed_window\"\n",
    );
    let told = in_folder(&files, &text).unwrap();
    assert!(
        told.contains("`tenants_file` names a file to look at: t.toml:3:9: the `burst` of"),
        "{told}"
    );
}

#[test]
fn a_file_that_is_named_below_a_table_is_told_where_to_stand() {
    let fault = only_fault(&Files::new(), &format!("{}tenants_file = \"t.toml\"\n", tenants("")));
    assert!(
        fault.contains("unknown key `tenants_file`; write it above the first table"),
        "{fault}"
    );
}

#[test]
fn a_name_in_two_files_is_a_fault_that_names_both() {
    let files = Files::new();
    files.write("one.toml", b"[tenants.a]\nparent = \"root\"\n");
    files.write("two.toml", b"[tenants.a]\nparent = \"root\"\n");
    let fault = only_fault(&files, &with_files("[\"one.toml\", \"two.toml\"]"));
    let expected = "1:29: an entry of `tenants_file` names a file whose tenant `a`, two.toml:1:10, is \
                    in one.toml:1:10 already; remove it in one of the two";
    assert!(fault.contains(expected), "{fault}");
}

#[test]
fn a_file_that_is_none_is_a_fault_and_nothing_follows_from_it() {
    let files = Files::new();
    let pipe = std::path::Path::new(files.folder()).join("pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    files.write("latin.toml", b"# \xff\n");
    let child = "[tenants.a]\nparent = \"elsewhere\"\n";
    for (list, expected) in [
        ("\"pipe\"", "cannot be read: `pipe`: it is not a regular file"),
        ("\"gone.toml\"", "cannot be read: `gone.toml`: No such file"),
        ("\"/dev/null\"", "cannot be read: `/dev/null`: it is not a regular file"),
        ("\".\"", "`: is a directory"),
        (
            "\"latin.toml\"",
            "names a file with a fault: latin.toml:1: the configuration is not valid",
        ),
        ("[\"tenants.toml\", \"tenants.toml\"]", "repeats an earlier one"),
        ("5", "must be a string, not an integer"),
        ("[]", "`tenants_file` is empty"),
    ] {
        files.write("tenants.toml", b"[tenants.z]\nparent = \"root\"\n");
        let text = with_files(list);
        let text = if list == "[]" { text } else { format!("{text}{child}") };
        let fault = only_fault(&files, &text);
        assert!(fault.contains(expected), "{expected}: {fault}");
    }
}

#[test]
fn many_faults_of_a_file_are_counted() {
    let files = Files::new();
    let many: String =
        (0..150).map(|it| format!("[tenants.t{it}]\nparent = \"nobody\"\n")).collect();
    files.write("t.toml", many.as_bytes());
    let lines = in_folder(&files, &with_files("\"t.toml\"")).unwrap_err();
    assert_eq!(lines.len(), 101);
    assert!(lines[100].contains("names a file with a fault: t.toml: 50 more"), "{}", lines[100]);
}

#[test]
fn the_summary_shows_the_tree_with_its_numbers() {
    let loaded = good(include_str!("../../../config/examples/tenants.toml"));
    let summary = summary(&loaded);
    let at = summary.find("\ntenants\n").expect("the tree");
    assert_eq!(
        &summary[at..],
        "\ntenants
  system       10000/minute  burst 1000                  enforce  allocated 8000 of 10000, 2000 unallocated
    partner-a  5000/minute   burst 500                   enforce  guaranteed 1500 of 5000, 3500 unallocated, pool 3500/minute burst 350
      a1       5000/minute   burst 500                            has guaranteed 1000/minute burst 100
      a2       2000/minute   burst 200                            has guaranteed 500/minute burst 50
      a3       1000/minute   burst 100
    partner-b  3000/minute   burst 300                   enforce  shared
      b1       3000/minute   burst 300
      b2       1000/minute               sliding_window
  any other tenant: 10/minute burst 10 for each address
"
    );
}

#[test]
fn a_large_tree_is_shown_in_part() {
    let many: String =
        (0..1200).map(|it| format!("[tenants.t{it}]\nparent = \"root\"\n")).collect();
    let summary = summary(&good(&tenants(&many)));
    assert!(summary.contains("\n    … and 1190 more\n"), "{summary}");
}
