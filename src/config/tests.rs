//! What a configuration must be refused for and what it must mean, file by file.

mod calendar;
mod callers;
mod client_plans;
mod clients;
mod duplicates;
mod faults;
mod foreign_keys;
mod guards;
mod http2;
mod identity;
mod lifecycle;
mod limit_faults;
mod limits;
mod listeners;
mod plans;
mod proposals;
mod reference;
mod remedies;
mod rendering;
mod robustness;
mod route_keys;
mod routes;
mod secret_values;
mod secrets;
mod settings;
mod store;
mod summary;
mod syntax;
mod tenants;
mod traces;
mod trust;
mod upstream_tls;
mod upstreams;
mod variables;
mod without_effect;

use super::{LoadedConfig, parse};

/// A configuration that must be fine.
fn good(text: &str) -> LoadedConfig {
    match parse("config.toml", text) {
        Ok(loaded) => loaded,
        Err(error) => panic!("refused:\n{error}\n{text}"),
    }
}

/// The lines that a faulty configuration is refused with.
fn refused(text: &str) -> Vec<String> {
    match parse("config.toml", text) {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(error) => error.lines(),
    }
}

/// A route to echo that uses one limit named `l`, whose keys are the text.
fn limit(keys: &str) -> String {
    format!(
        "[[routes]]\nname = \"r\"\npath = \"/*\"\nupstream = \"echo\"\nlimits = [\"l\"]\n[limits.l]\n{keys}"
    )
}

/// A route named `r` to echo, with more keys.
fn route(keys: &str) -> String {
    format!("[[routes]]\nname = \"r\"\nupstream = \"echo\"\n{keys}")
}

/// A route to echo and a `[store]` of the kind redis, with more keys.
fn redis(keys: &str) -> String {
    with_route(&format!("[store]\nkind = \"redis\"\n{keys}"))
}

/// Any text below a route that is fine.
fn with_route(text: &str) -> String {
    format!("[[routes]]\nname = \"r\"\npath = \"/*\"\nupstream = \"echo\"\n{text}")
}
