//! What a configuration says, in a few lines: for `weir check` and the log at start.

mod store;

use std::fmt::Write as _;

use http::Method;

use super::Loaded;
use super::compile::always_there;
use super::settings::{
    Balance, HostPattern, Origin, PathPattern, Route, Segment, Settings, Target, Upstream,
};
use super::units::{show_duration, show_rate};
use crate::limit::fixed_window::Windows;
use crate::limit::{Cost, Key, Limit, Missing, OnError, Policy, Source};
pub use store::store;

/// Routes, upstreams and limits in aligned columns.
#[must_use]
pub fn summary(loaded: &Loaded) -> String {
    let settings = &loaded.settings;
    let mut text = String::new();
    let listen: Vec<String> = settings.server.listen.iter().map(ToString::to_string).collect();
    let counts = [
        count(settings.routes.len(), "route"),
        count(settings.limits.len(), "limit"),
        count(settings.upstreams.len(), "upstream"),
    ];
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{}: {}", loaded.name, counts.join(", "));
    let _ = writeln!(text, "listen {}, admin {}", listen.join(", "), settings.admin.listen);
    let _ = writeln!(text, "store {}", store(&settings.store));
    let routes = settings.routes.iter().map(|route| route_row(route, settings));
    let _ = write!(text, "\nroutes\n{}", table(routes.collect()));
    if !settings.upstreams.is_empty() {
        let rows = settings.upstreams.iter().map(upstream_row).collect();
        let _ = write!(text, "\nupstreams\n{}", table(rows));
    }
    if !settings.limits.is_empty() {
        let on_error = settings.store.on_error;
        let rows = settings.limits.iter().map(|limit| limit_row(limit, on_error)).collect();
        let _ = write!(text, "\nlimits\n{}", table(rows));
    }
    text
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn route_row(route: &Route, settings: &Settings) -> Vec<String> {
    let methods: Vec<&str> = route.methods.iter().map(Method::as_str).collect();
    let upstream = match route.target {
        Target::Echo => "echo",
        Target::Upstream(index) => &settings.upstreams[index].name,
    };
    let limits: Vec<&str> =
        route.limits.iter().map(|index| settings.limits[*index].name.as_str()).collect();
    vec![
        route.name.clone(),
        host(&route.host),
        path(&route.path),
        if methods.is_empty() { "any method".to_owned() } else { methods.join(" ") },
        format!("→ {upstream}"),
        if limits.is_empty() { "no limits".to_owned() } else { limits.join(", ") },
    ]
}

fn upstream_row(upstream: &Upstream) -> Vec<String> {
    let balance = match upstream.balance {
        Balance::RoundRobin => "round_robin",
        Balance::LeastRequests => "least_requests",
        Balance::Random => "random",
    };
    let servers: Vec<String> =
        upstream.servers.iter().map(|it| format!("http://{}", origin(it))).collect();
    vec![upstream.name.clone(), balance.to_owned(), servers.join(", ")]
}

fn origin(origin: &Origin) -> String {
    let Origin { host, port } = origin;
    // Only an IPv6 address has colons, and a port wants brackets around it.
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// `on_error` is told only where it is not the store's.
fn limit_row(limit: &Limit, on_error: OnError) -> Vec<String> {
    let (rate, burst) = match &limit.policy {
        Policy::TokenBucket(it) | Policy::LeakyBucket(it) => {
            (show_rate(it.rate()), format!("burst {}", it.burst()))
        }
        Policy::RefillBucket(it) => {
            let every = show_duration(std::time::Duration::from_micros(it.every_us()));
            (format!("{} every {every}", it.amount()), format!("burst {}", it.burst()))
        }
        Policy::SlidingWindow(it) => (show_rate(it.rate()), String::new()),
        Policy::SlidingLog(it) => (show_rate(it.rate()), String::new()),
        Policy::FixedWindow(it) => match it.windows() {
            Windows::Every(rate) => (show_rate(rate), String::new()),
            Windows::Calendar(calendar) => (format!("{}/{calendar}", it.count()), String::new()),
        },
        Policy::Concurrency(it) => (format!("{} at a time", it.limit()), String::new()),
    };
    let missing = match limit.missing {
        _ if always_there(&limit.key) => "",
        Missing::Ip => "missing ip",
        Missing::Skip => "missing skip",
        Missing::Deny => "missing deny",
        Missing::Shared => "missing shared",
    };
    let on_error = match limit.on_error {
        same if same == on_error => String::new(),
        other => format!("on error {}", other.name()),
    };
    vec![
        limit.name.clone(),
        key(&limit.key),
        limit.policy.algorithm().to_owned(),
        rate,
        burst,
        match &limit.cost {
            Cost::Fixed(cost) => format!("cost {cost}"),
            Cost::Told { max, .. } => format!("cost up to {max}"),
        },
        missing.to_owned(),
        on_error,
        if limit.response_headers { String::new() } else { "hidden".to_owned() },
    ]
}

fn host(host: &HostPattern) -> String {
    match host {
        HostPattern::Any => "any host".to_owned(),
        HostPattern::Exact(name) => name.clone(),
        HostPattern::Below(name) => format!("*.{name}"),
    }
}

fn path(path: &PathPattern) -> String {
    let mut text = String::new();
    for segment in &path.segments {
        match segment {
            Segment::Literal(literal) => text.extend(["/", literal]),
            Segment::Parameter(name) => text.extend(["/{", name, "}"]),
        }
    }
    match (path.prefix, text.is_empty()) {
        (true, _) => text + "/*",
        (false, true) => "/".to_owned(),
        (false, false) => text,
    }
}

fn key(key: &Key) -> String {
    let source = |source: &Source| match source {
        Source::Ip => "ip".to_owned(),
        Source::Route => "route".to_owned(),
        Source::Global => "global".to_owned(),
        Source::Header(name) => format!("header:{name}"),
        Source::Query(name) => format!("query:{name}"),
        Source::Cookie(name) => format!("cookie:{name}"),
    };
    key.0.iter().map(source).collect::<Vec<_>>().join(" + ")
}

/// Rows with every column as wide as its widest cell.
fn table(rows: Vec<Vec<String>>) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths).filter(|(_, width)| **width > 0) {
            let _ = write!(line, "  {cell:<width$}");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
