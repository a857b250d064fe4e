//! Who answers requests: a row for each upstream.

use super::table;
use crate::config::compile::{USUAL_MAX_AGE, USUAL_RETRIES};
use crate::config::settings::{Balance, Ejection, Settings, Upstream, UpstreamServer};
use crate::config::units::show_duration;
use crate::tls::TlsClient;

pub(super) fn upstreams(settings: &Settings) -> String {
    table(settings.upstreams.iter().map(row).collect())
}

fn row(upstream: &Upstream) -> Vec<String> {
    let balance = match &upstream.balance {
        Balance::RoundRobin => "round_robin".to_owned(),
        Balance::LeastRequests => "least_requests".to_owned(),
        Balance::Random => "random".to_owned(),
        Balance::Hash(source) => format!("hash:{source}"),
    };
    let scheme = if upstream.tls.is_some() { "https://" } else { "http://" };
    let server = |it: &UpstreamServer| {
        let scheme = if it.origin.unix_path().is_none() { scheme } else { "" };
        let weight =
            if it.weight == 1 { String::new() } else { format!(" (weight {})", it.weight) };
        format!("{scheme}{}{weight}", it.origin.authority())
    };
    let servers: Vec<String> = upstream.servers.iter().map(server).collect();
    vec![upstream.name.clone(), balance, servers.join(", "), remarks(upstream).join("; ")]
}

/// Whatever is not as usual.
fn remarks(upstream: &Upstream) -> Vec<String> {
    let mut remarks = Vec::new();
    if upstream.http2 {
        remarks.push("HTTP/2".to_owned());
    }
    remarks.extend(upstream.tls.iter().flat_map(tls));
    match upstream.retries {
        USUAL_RETRIES => {}
        0 => remarks.push("no retries".to_owned()),
        many => {
            remarks.push(format!("up to {}", counted(many as usize, "retry", "retries")));
        }
    }
    match upstream.max_age {
        Some(USUAL_MAX_AGE) => {}
        Some(age) => remarks.push(format!("connections up to {} old", show_duration(age))),
        None => remarks.push("connections of any age".to_owned()),
    }
    if let Some(health) = &upstream.health {
        remarks.push(format!("health {} every {}", health.path, show_duration(health.interval)));
    }
    if let Some(breaker) = &upstream.breaker {
        let [window, open] = [breaker.window, breaker.open].map(show_duration);
        let failures = counted(breaker.failures as usize, "failure", "failures");
        remarks.push(format!("breaker after {failures} in {window}, open for {open}"));
    }
    if upstream.ejection != Ejection::default() {
        remarks.push(ejection(&upstream.ejection));
    }
    if upstream.max_connections > 0 {
        let (most, pending) = (upstream.max_connections, upstream.max_pending);
        let connections = counted(most, "connection", "connections");
        remarks.push(format!("at most {connections} to a server, {pending} pending"));
    }
    remarks
}

/// `1 connection`, `2 connections`.
fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn tls(client: &TlsClient) -> Vec<String> {
    let spec = client.spec();
    let mut remarks = Vec::new();
    if spec.unverified {
        remarks.push("not verified".to_owned());
    } else if spec.ca.is_some() {
        remarks.push("verified by its own authorities".to_owned());
    }
    remarks.extend(spec.server_name.as_ref().map(|name| format!("named {}", name.to_str())));
    if spec.identity.is_some() {
        remarks.push("with a client certificate".to_owned());
    }
    remarks
}

fn ejection(ejection: &Ejection) -> String {
    if !ejection.is_on() {
        return "no ejection".to_owned();
    }
    let Ejection { failures, time, max_time, max_percent } = *ejection;
    let failures = counted(failures as usize, "failure", "failures");
    let [time, max_time] = [time, max_time].map(show_duration);
    format!(
        "ejection after {failures}, for {time} to {max_time}, of up to {max_percent} % of the \
         servers and one at least"
    )
}
