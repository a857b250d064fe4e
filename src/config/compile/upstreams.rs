//! `[upstreams.NAME]`.

use super::names::{self, NameTable};
use super::origin::origin;
use super::server::{SOME_TIME, read, secs};
use crate::config::diagnostic::Diagnostic;
use crate::config::file::{Section, unique_values};
use crate::config::settings::{Balance, Origin, Upstream};

/// The name of the built-in upstream.
pub(super) const ECHO: &str = "echo";

const BALANCES: [(&str, Balance); 3] = [
    ("round_robin", Balance::RoundRobin),
    ("least_requests", Balance::LeastRequests),
    ("random", Balance::Random),
];

pub(super) fn upstreams(root: &mut Section<'_>) -> (Vec<Upstream>, NameTable) {
    let mut upstreams = Vec::new();
    let mut names = NameTable::new("upstream", &[ECHO]);
    for entry in root.named_sections("upstreams") {
        let reporter = root.reporter();
        let mut good = names::check(entry.name, entry.span.clone(), reporter);
        if entry.name == ECHO {
            good = false;
            reporter.report(
                Diagnostic::error(entry.span.clone(), "`echo` is the built-in upstream")
                    .help("give this one another name"),
            );
        }
        let upstream = upstream(entry.name, entry.section).filter(|_| good);
        names.define(entry.name, entry.span, upstream.is_some().then_some(upstreams.len()));
        upstreams.extend(upstream);
    }
    (upstreams, names)
}

fn upstream(name: &str, mut section: Section<'_>) -> Option<Upstream> {
    let servers = servers(&mut section);
    let upstream = Upstream {
        name: name.to_owned(),
        servers: servers.clone().unwrap_or_default(),
        balance: read(&mut section, "balance", Balance::LeastRequests, |it| it.choice(&BALANCES)),
        connect_timeout: read(&mut section, "connect_timeout", secs(2), |it| {
            it.duration(SOME_TIME)
        }),
        response_timeout: read(&mut section, "response_timeout", secs(30), |it| {
            it.duration(SOME_TIME)
        }),
        retries: read(&mut section, "retries", 1, |it| it.integer(0..=10)) as u32,
        keepalive: read(&mut section, "keepalive", 64, |it| it.integer(0..=65_536)) as usize,
        keepalive_timeout: read(&mut section, "keepalive_timeout", secs(50), |it| {
            it.duration(SOME_TIME)
        }),
    };
    servers.map(|_| upstream)
}

fn servers(section: &mut Section<'_>) -> Option<Vec<Origin>> {
    const EXAMPLE: &str = "[\"http://127.0.0.1:9000\"]";
    let value = section.require("servers", &format!("servers = {EXAMPLE}"))?;
    let entries = value.list(EXAMPLE)?;
    if entries.is_empty() {
        value.error("is empty: there is nobody to forward to", format!("write `{EXAMPLE}`"));
    }
    let servers = unique_values(&entries, origin);
    (!servers.is_empty()).then_some(servers)
}
