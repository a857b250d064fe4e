//! Clients whose keys nobody reads, and whose plans no limit knows.

use super::faults::{each_good, each_warned};
use super::{good, limit, with_route};

/// Of the word `test`.
const HASH: &str = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

fn by_ip(keys: &str) -> String {
    limit(&format!("key = \"ip\"\n{keys}"))
}

#[test]
fn clients_without_a_source_are_shown_where_they_are_written() {
    let clients = format!("[[clients]]\nid = \"b\"\nkey_hash = \"{HASH}\"\n");
    each_warned(&[(
        with_route(&clients),
        "config.toml:5:1: warning: `[identity]` does not say where a `client` is found",
    )]);
}

#[test]
fn a_plan_of_a_client_that_no_limit_knows_is_warned_of() {
    let text = |plan: &str, keys: &str| {
        by_ip(&format!(
            "rate = \"1/second\"\n{keys}\n[[clients]]\nid = \"b\"\nkey_hash = \"{HASH}\"\n\
             plan = \"{plan}\"\n[identity]\nclient = \"header:x-api-key\"\n"
        ))
    };
    let pro = "plans.pro.rate = \"9/second\"";
    each_warned(&[
        (
            text("prro", pro),
            "13:8: warning: `plan` is `prro`, for which no limit has numbers of its own; did you mean \
             `pro`?",
        ),
        (
            text("gold", pro),
            "no limit has numbers of its own; the usual numbers hold: leave it out if that is meant, \
             or write `[limits.NAME.plans.gold]`",
        ),
        (text("gold plus", pro), "or write `[limits.NAME.plans.\"gold plus\"]`"),
    ]);
    each_good(&[
        text("pro", pro),
        // Where no limit has plans, somebody else goes by it.
        text("gold", ""),
        text("gold", &format!("{pro}\nwhen = {{ plan = [\"gold\", \"pro\"] }}")),
        text("gold", &format!("{pro}\nwhen = {{ plan = \"*\" }}")),
        format!("{}forward = {{ plan = \"x-plan\" }}", text("gold", pro)),
    ]);
}

#[test]
fn the_table_proposed_for_a_plan_is_the_one_of_that_plan() {
    let text = |plan: &str| {
        by_ip(&format!(
            "rate = \"1/second\"\nplans.pro.rate = \"9/second\"\n[identity]\n\
             client = \"header:x-api-key\"\n[[clients]]\nid = \"b\"\nkey_hash = \"{HASH}\"\n\
             plan = '{plan}'\n"
        ))
    };
    let warning = |plan: &str| good(&text(plan)).warnings.lines().join("\n");
    let longest = "x".repeat(60);
    for plan in
        ["say \"hi\"", "a\\b", "a`b", "v1.0", "zero\u{200b}width", "\u{e0001}", "größer", &longest]
    {
        let warning = warning(plan);
        let (_, header) = warning.split_once("or write `").expect("a header is proposed");
        let header = header.trim_end_matches('`').replace("NAME", "l");
        let pasted = format!("{}{header}\nrate = \"5/second\"\n", text(plan));
        each_good(&[pasted]);
    }
    // A name that is not shown as it is would be that of another plan.
    for plan in ["x".repeat(61), "weir_a-secret_0123456789".to_owned()] {
        let warning = warning(&plan);
        assert!(!warning.contains(&plan), "{warning}");
        assert!(warning.ends_with("or give it a table below `[limits.NAME.plans]`"), "{warning}");
    }
}

#[test]
fn a_plan_in_a_file_of_clients_is_warned_of_where_the_file_is_named() {
    let files = super::secrets::Files::new();
    let client = format!("[[clients]]\nid = \"b\"\nkey_hash = \"{HASH}\"\nplan = \"prro\"\n");
    files.write("clients.toml", client.as_bytes());
    let text = by_ip(&format!(
        "rate = \"1/second\"\nplans.pro.rate = \"9/second\"\n[identity]\n\
         client = \"header:x-api-key\"\nclients_file = \"{}/clients.toml\"",
        files.folder()
    ));
    each_warned(&[(
        text,
        "`clients_file` names a client `b` whose plan is `prro`, for which no limit has numbers of \
         its own; did you mean `pro`?",
    )]);
}
