//! `config/reference.toml` is held equal to the code, and every shipped file is good.

use std::collections::BTreeSet;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::listeners::make;
use super::secrets::Files;
use super::{good, refused};
use crate::config::compile;
use crate::config::file::{Reporter, TomlFile};

const REFERENCE: &str = include_str!("../../../config/reference.toml");

/// Only what is required, with the names of the reference.
const MINIMAL: &str = r#"
[upstreams.api]
servers = ["http://127.0.0.1:9000"]
[limits.per-key]
key = "header:x-api-key"
rate = "100/second"
[limits.in-flight]
key = "ip"
algorithm = "concurrency"
limit = 10
[guards.flood]
key = "ip"
window = "10s"
threshold = 50
penalty = "5m"
[[routes]]
name = "api"
path = "/api/*"
upstream = "api"
limits = ["per-key", "in-flight"]
guards = ["flood"]
"#;

/// What goes with a store in memory.
const IN_MEMORY: [&str; 2] = ["snapshot", "snapshot_interval"];

/// What goes with a store in Redis.
const IN_REDIS: [&str; 11] = [
    "url",
    "cluster",
    "sentinel",
    "username",
    "password_env",
    "password_file",
    "tls",
    "prefix",
    "timeout",
    "on_error",
    "sync_interval",
];

/// Where keys for tokens are, of which one goes, and what goes with the last.
const IN_TOKENS: [&str; 7] =
    ["secret_env", "secret_file", "pem_file", "jwks_file", "jwks_url", "refresh", "ca"];

/// The reference with its examples of keys that have no default.
fn uncommented() -> String {
    uncommented_but(&[])
}

/// The same without some of them.
fn uncommented_but(left_out: &[&str]) -> String {
    let line = |line: &str| match line.strip_prefix('#') {
        Some(key) if left_out.iter().any(|it| key.starts_with(&format!("{it} ="))) => String::new(),
        Some(key) if key.starts_with(|c: char| c.is_ascii_lowercase() || c == '[') => {
            format!("{key}\n")
        }
        _ => format!("{line}\n"),
    };
    REFERENCE.lines().map(line).collect()
}

#[test]
fn reference_states_the_defaults() {
    let loaded = good(REFERENCE);
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    assert_eq!(loaded.settings, good(MINIMAL).settings);
}

#[test]
fn examples_within_the_reference_are_good() {
    let files = Files::new();
    let redis = ("kind = \"memory\"", "kind = \"redis\"");
    let hybrid = ("kind = \"memory\"", "kind = \"hybrid\"");
    let queue = ("strategy = \"reject\"", "strategy = \"queue\"");
    let degrade = ("strategy = \"reject\"", "strategy = \"degrade\"");
    let socket = ("address = \"0.0.0.0:8080\"", "address = \"unix:/run/weir.sock\"");
    // Some exclude each other, and each is in one of these, beside the choice that it goes with.
    for (choices, left_out) in [
        (
            &[hybrid, queue][..],
            &[
                &IN_MEMORY[..],
                &IN_TOKENS[..4],
                &["timezone", "sentinel", "password_file", "degrade", "mode"],
            ]
            .concat(),
        ),
        (
            &[redis, queue],
            &[
                &IN_MEMORY[..],
                &IN_TOKENS[1..],
                &[
                    "algorithms",
                    "timezone",
                    "url",
                    "password_env",
                    "tls",
                    "degrade",
                    "sync_interval",
                    "mode",
                ],
            ]
            .concat(),
        ),
        (
            &[degrade, socket],
            &[
                &IN_REDIS[..],
                &IN_TOKENS[..2],
                &IN_TOKENS[3..],
                &["timezone", "max_wait", "max_queue"],
            ]
            .concat(),
        ),
        (
            &[queue],
            &[&IN_REDIS[..], &IN_TOKENS[..3], &IN_TOKENS[4..], &["timezone", "degrade", "mode"]]
                .concat(),
        ),
        (
            &[queue],
            &[
                &IN_REDIS[..],
                &IN_TOKENS[..1],
                &IN_TOKENS[2..],
                &["algorithms", "timezone", "degrade", "mode"],
            ]
            .concat(),
        ),
    ] {
        let not_built: &[&str] = if cfg!(feature = "otlp") { &[] } else { &["export"] };
        let text = uncommented_but(&[left_out, not_built].concat())
            .replace("enabled = false", "enabled = true")
            // One that goes by the `tls` of `[server]`.
            .replace(
                "[[server.listen]]",
                "[[server.listen]]\naddress = \"[::1]:1\"\n[[server.listen]]",
            )
            .replace("/etc/weir", files.folder())
            .replace("/run/weir", files.folder())
            .replace("trusted_proxies = []", "trusted_proxies = [\"10.0.0.0/8\"]")
            .replace("adaptive = false", "adaptive = true")
            .replace("limits = [\"per-key\",", "limits = [\"tenants\", \"per-key\",")
            // One that every run of the tests has.
            .replace("WEIR_JWT_SECRET", "CARGO_PKG_DESCRIPTION")
            .replace("WEIR_REDIS_PASSWORD", "CARGO_PKG_NAME")
            .replace("WEIR_SENTINEL_PASSWORD", "CARGO_PKG_NAME")
            .replace("WEIR_ADMIN_TOKEN", "CARGO_PKG_NAME")
            .replace("WEIR_TRUSTED_PROXIES", "CARGO_PKG_VERSION_PRE");
        let over_tls = text.contains("upstream-ca.pem");
        let scheme = if over_tls { "url = \"https://127" } else { "url = \"http://127" };
        let text = text.replace("url = \"http://127", scheme);
        let text = choices.iter().fold(text, |text, (from, to)| text.replace(from, to));
        let loaded = good(&text);
        assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    }
}

#[test]
fn reference_lists_every_key_the_code_asks_for_and_no_other() {
    let text = uncommented();
    let reporter = Reporter::default();
    let file = TomlFile::parse(&text);
    compile::settings(&file, &reporter, Path::new(""));
    let table = DeTable::parse(&text).expect("the reference is TOML");
    let mut listed = BTreeSet::new();
    list(table.get_ref(), "", &mut listed);
    assert_eq!(listed, reporter.known_keys());
}

/// What is known of a section must not depend on what it holds, or the test above proves little.
#[test]
fn the_same_keys_are_asked_for_whatever_a_file_says() {
    let known = |text: &str| {
        let reporter = Reporter::default();
        compile::settings(&TomlFile::parse(text), &reporter, Path::new(""));
        reporter.known_keys()
    };
    let faulty =
        "[limits.a.plans.a]\n[guards.a]\n[tenants.a]\n[upstreams.a]\n[[routes]]\n[[clients]]\n";
    assert_eq!(known(faulty), known(&uncommented()));
}

#[test]
fn shipped_files_are_good() {
    for text in [
        crate::config::DEFAULT_CONFIG,
        include_str!("../../../config/examples/simple.toml"),
        include_str!("../../../config/examples/redis.toml"),
        include_str!("../../../config/examples/hybrid.toml"),
        include_str!("../../../config/examples/windows.toml"),
        include_str!("../../../config/examples/algorithms.toml"),
        include_str!("../../../config/examples/strategies.toml"),
        include_str!("../../../config/examples/oauth.toml"),
        include_str!("../../../config/examples/abuse.toml"),
        include_str!("../../../config/examples/tenants.toml"),
        include_str!("../../../config/examples/upstreams.toml"),
    ] {
        let loaded = good(text);
        assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    }
}

#[test]
fn the_shipped_file_with_certificates_is_good() {
    let files = Files::new();
    for name in ["www", "api", "partners"] {
        let host = format!("{name}.example");
        let params = rcgen::CertificateParams::new([host]).unwrap();
        make(&files, name, &params);
    }
    files.write("partners-ca.pem", files.text("clients-ca.pem").as_bytes());
    let text = include_str!("../../../config/examples/tls.toml");
    let loaded = good(&text.replace("/etc/weir", files.folder()));
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    assert_eq!(loaded.settings.server.listen.len(), 3);
}

#[test]
fn required_keys_are_the_ones_the_reference_marks() {
    let marked = REFERENCE.lines().filter(|line| line.starts_with("# Required.")).count();
    let missing =
        refused("[limits.a]\n[guards.a]\n[tenants.a]\n[upstreams.a]\n[[routes]]\n[[clients]]\n");
    let missing = missing.iter().filter(|line| line.contains("has no `")).count();
    assert_eq!(marked, missing);
}

/// Every path of keys in a file, as [`Reporter::known`] writes them.
fn list(table: &DeTable<'_>, above: &str, listed: &mut BTreeSet<String>) {
    for (key, item) in table {
        let path = if above.is_empty() {
            key.get_ref().to_string()
        } else {
            format!("{above}.{}", key.get_ref())
        };
        listed.insert(path.clone());
        match item.get_ref() {
            // The author's own names, headers to set, and conditions.
            DeValue::Table(tables)
                if ["limits", "guards", "tenants", "upstreams", "limits.NAME.plans"]
                    .contains(&path.as_str()) =>
            {
                for (_, item) in tables {
                    if let DeValue::Table(table) = item.get_ref() {
                        list(table, &format!("{path}.NAME"), listed);
                    }
                }
            }
            DeValue::Table(_)
                if ["_headers.set", ".when", ".guaranteed", "[].headers", "[].query"]
                    .iter()
                    .any(|it| path.ends_with(it)) => {}
            DeValue::Table(table) => list(table, &path, listed),
            DeValue::Array(items) => {
                for item in items {
                    if let DeValue::Table(table) = item.get_ref() {
                        list(table, &format!("{path}[]"), listed);
                    }
                }
            }
            _ => {}
        }
    }
}
