//! Tenants in the configuration and in files of their own: what `weir check` says of them, and that a
//! running gateway reads them again.

use std::process::Output;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::support::gateway::program;
use crate::support::{Config, Scratch, Weir, wait_until};

/// A configuration whose tenants are in files beside it, below a root of 5000 a minute.
fn config(budget: &str) -> String {
    let tenants = format!(
        "[identity]\ntenant = \"header:x-tenant\"\n\
         [tenants.partner]\nrate = \"5000/minute\"\nburst = 500\nbudget = {{ {budget} }}\n"
    );
    let config = Config::echo().open().also(&tenants).text();
    let config = config.replace("limits = []", "limits = [\"tenants\"]");
    format!("tenants_file = \"tenants.toml\"\n{config}")
}

fn children(rates: &[u32]) -> String {
    let child = |(at, rate): (usize, &u32)| {
        format!("[tenants.a{}]\nparent = \"partner\"\nrate = \"{rate}/minute\"\n", at + 1)
    };
    rates.iter().enumerate().map(child).collect()
}

fn check(scratch: &Scratch) -> (Option<i32>, String, String) {
    let file = scratch.path().join("weir.toml");
    let Output { status, stdout, stderr } = program().arg("check").arg(file).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn check_prints_the_tree_and_refuses_what_does_not_fit() {
    let scratch = Scratch::new();
    scratch.file("tenants.toml", &children(&[2000, 1000, 3000]));
    scratch.file("weir.toml", &config("mode = \"allocated\", total = 5000, overcommit = 1.0"));
    let (code, _, said) = check(&scratch);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("6000") && said.contains("5000"), "{said}");
    scratch.file("weir.toml", &config("mode = \"allocated\", total = 5000, overcommit = 1.5"));
    let (code, tree, said) = check(&scratch);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("warning: the budget of tenant `partner` is overcommitted"), "{said}");
    assert!(said.contains("6000") && said.contains("5000"), "{said}");
    for line in [
        "  partner  5000/minute  burst 500  enforce  allocated 6000 of 5000, 0 unallocated\n",
        "    a3     3000/minute  burst 500\n",
    ] {
        assert!(tree.contains(line), "{tree}");
    }
}

#[test]
fn a_pipe_in_the_place_of_a_file_is_a_fault_at_once() {
    let scratch = Scratch::new();
    let pipe = scratch.path().join("tenants.toml");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    scratch.file("weir.toml", &config("mode = \"shared\""));
    let (code, _, said) = check(&scratch);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("it is not a regular file"), "{said}");
}

#[test]
fn files_of_tenants_are_read_again_when_they_change() {
    let scratch = Scratch::new();
    let tenants = scratch.file("tenants.toml", &children(&[1000]));
    let file = scratch.file("weir.toml", &config("mode = \"allocated\""));
    let weir = Weir::start_from(scratch, file);
    let last_reload = || weir.metrics().value("weir_config_last_reload_successful", &[]);
    let read = weir.reloads("ok");
    std::fs::write(&tenants, children(&[1000, 2000])).unwrap();
    wait_until("they are read", || weir.reloads("ok") > read);
    wait_until("their number is told", || weir.output().contains("tenants=3"));
    // One that was cut off changes nothing.
    std::fs::write(&tenants, "").unwrap();
    wait_until("it is refused", || last_reload() == Some(0.0));
    wait_until("it is said why", || weir.output().contains("without tenants: tenants.toml"));
    std::fs::write(&tenants, children(&[1000, 2000])).unwrap();
    wait_until("it is as it was", || last_reload() == Some(1.0));
    // One with faults changes nothing, and says why.
    std::fs::write(&tenants, children(&[1000, 2000, 3000])).unwrap();
    wait_until("it is refused", || last_reload() == Some(0.0));
    wait_until("it is said why", || weir.output().contains("its children have 6000 in 60s"));
    std::fs::write(&tenants, children(&[1000, 2000, 1500])).unwrap();
    wait_until("they are read", || last_reload() == Some(1.0));
}
