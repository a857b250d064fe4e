//! `[upstreams.NAME]`.

use std::path::Path;
use std::time::Duration;

use super::balance::balance;
use super::breaker::breaker;
use super::ejection::ejection;
use super::health::health;
use super::names::{self, NameTable};
use super::request_source::KnownIdentities;
use super::server::{ANY_TIME, FIELDS, SOME_TIME, read, secs};
use super::upstream_servers::servers;
use super::upstream_tls;
use crate::config::diagnostic::Diagnostic;
use crate::config::file::{Section, Value};
use crate::config::settings::{Balance, Upstream};

/// The name of the built-in upstream.
pub(super) const ECHO: &str = "echo";

/// How often a request is sent again, and how old connections become, where a file says nothing.
pub(in crate::config) const USUAL_RETRIES: u32 = 1;
pub(in crate::config) const USUAL_MAX_AGE: Duration = Duration::from_secs(3600);

/// `folder` is where the file is.
pub(super) fn upstreams(
    root: &mut Section<'_>,
    known: KnownIdentities,
    folder: &Path,
) -> (Vec<Upstream>, NameTable) {
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
        let upstream = upstream(entry.name, entry.section, known, folder).filter(|_| good);
        names.define(entry.name, entry.span, upstream.is_some().then_some(upstreams.len()));
        upstreams.extend(upstream);
    }
    (upstreams, names)
}

/// Over HTTP/2 requests with large heads may have to wait in any case.
fn max_pending(section: &mut Section<'_>, http2: bool) -> usize {
    let value = section.get("max_pending");
    let is_used = http2 || section.has("max_connections");
    if let Some(value) = value.as_ref().filter(|_| !is_used) {
        value.warning(
            "has no effect: servers may have as many connections as there are requests",
            "add `max_connections`, or remove it",
        );
    }
    value.and_then(|it| it.integer(0..=1_000_000)).unwrap_or(1024) as usize
}

fn upstream(
    name: &str,
    mut section: Section<'_>,
    known: KnownIdentities,
    folder: &Path,
) -> Option<Upstream> {
    let servers = servers(&mut section);
    let http2 = read(&mut section, "http2", false, Value::boolean);
    let tls = upstream_tls::tls(&mut section, folder, servers.as_ref(), http2);
    let servers = servers.map(|it| it.servers);
    let upstream = Upstream {
        name: name.to_owned(),
        servers: servers.clone().unwrap_or_default(),
        balance: read(&mut section, "balance", Balance::LeastRequests, |it| balance(it, known)),
        connect_timeout: read(&mut section, "connect_timeout", secs(2), |it| {
            it.duration(SOME_TIME)
        }),
        response_timeout: read(&mut section, "response_timeout", secs(30), |it| {
            it.duration(SOME_TIME)
        }),
        retries: read(&mut section, "retries", u64::from(USUAL_RETRIES), |it| it.integer(0..=10))
            as u32,
        keepalive: read(&mut section, "keepalive", 64, |it| it.integer(0..=65_536)) as usize,
        keepalive_timeout: read(&mut section, "keepalive_timeout", secs(50), |it| {
            it.duration(SOME_TIME)
        }),
        max_age: Some(read(&mut section, "max_age", USUAL_MAX_AGE, |it| it.duration(ANY_TIME)))
            .filter(|age| !age.is_zero()),
        resolve_interval: read(&mut section, "resolve_interval", secs(10), |it| {
            it.duration(SOME_TIME)
        }),
        max_connections: read(&mut section, "max_connections", 0, |it| it.integer(0..=1_000_000))
            as usize,
        max_pending: max_pending(&mut section, http2),
        ejection: ejection(section.section_like("ejection", "ejection = { failures = 5 }")),
        max_response_headers: read(&mut section, "max_response_headers", 100, |it| {
            it.integer(FIELDS)
        }) as usize,
        health: health(&mut section),
        breaker: breaker(&mut section),
        http2,
        tls: tls.clone().unwrap_or_default(),
    };
    (servers.is_some() && tls.is_some()).then_some(upstream)
}
