//! What a configuration says, in a few lines: for `weir check` and the log at start.

mod guards;
mod identity;
mod limits;
mod store;
mod tenants;

use std::fmt::Write as _;

use http::Method;

use super::LoadedConfig;
use super::settings::{Admin, Balance, HostPattern, Origin, Route, Settings, Target, Upstream};
use crate::limit::Cost;
use crate::limit::tenants::TENANTS;
pub use store::store;

/// Routes, upstreams and limits in aligned columns.
pub fn summary(loaded: &LoadedConfig) -> String {
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
    let (listen, at) = (listen.join(", "), settings.admin.listen);
    let _ = writeln!(text, "listen {listen}, admin {at}{}", admin(&settings.admin));
    let _ = writeln!(text, "store {}", store(&settings.store));
    let callers = identity::identity(settings);
    if !callers.is_empty() {
        let _ = write!(text, "\ncallers\n{callers}");
    }
    let routes = settings.routes.iter().map(|route| route_row(route, settings));
    let _ = write!(text, "\nroutes\n{}", table(routes.collect()));
    if !settings.upstreams.is_empty() {
        let rows = settings.upstreams.iter().map(upstream_row).collect();
        let _ = write!(text, "\nupstreams\n{}", table(rows));
    }
    if !settings.limits.is_empty() {
        let _ = write!(text, "\nlimits\n{}", limits::limits(settings));
    }
    if !settings.guards.is_empty() {
        let _ = write!(text, "\nguards\n{}", guards::guards(settings));
    }
    if !settings.tenants.tree.is_empty() {
        let _ = write!(text, "\ntenants\n{}", tenants::tenants(settings));
    }
    text
}

/// What goes behind the address of the admin listener if not everything is there.
pub fn admin(admin: &Admin) -> &'static str {
    if admin.has_api() { "" } else { " (/metrics, /healthz and /readyz only: there is no token)" }
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn route_row(route: &Route, settings: &Settings) -> Vec<String> {
    let methods: Vec<&str> = route.methods.iter().map(Method::as_str).collect();
    let upstream = |target| match target {
        Target::Echo => "echo",
        Target::Upstream(index) => &settings.upstreams[index].name,
    };
    let cost = route.cost.as_ref().map(|cost| match cost {
        Cost::Fixed(cost) => format!("cost {cost}"),
        Cost::Dynamic { from, default, max } => {
            let most = max.map_or("what each limit holds".to_owned(), |max| max.to_string());
            format!("cost by {}, else {default}, up to {most}", limits::source(from))
        }
    });
    let degrade = route.degrade.map(|it| format!("degraded → {}", upstream(it)));
    let guards: Vec<&str> =
        route.guards.iter().map(|index| settings.guards[*index].name.as_str()).collect();
    let guards = (!guards.is_empty()).then(|| format!("guarded by {}", guards.join(", ")));
    let names = route.limits.iter().map(|index| settings.limits[*index].name.as_str());
    let names: Vec<&str> = names.chain(route.tenants.then_some(TENANTS)).collect();
    vec![
        route.name.clone(),
        host(&route.host),
        route.path.to_string(),
        if methods.is_empty() { "any method".to_owned() } else { methods.join(" ") },
        format!("→ {}", upstream(route.target)),
        if names.is_empty() { "no limits".to_owned() } else { names.join(", ") },
        cost.into_iter().chain(degrade).chain(guards).collect::<Vec<_>>().join("; "),
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

fn host(host: &HostPattern) -> String {
    match host {
        HostPattern::Any => "any host".to_owned(),
        HostPattern::Exact(name) => name.clone(),
        HostPattern::Below(name) => format!("*.{name}"),
    }
}

/// Rows with every column as wide as its widest cell.
fn table(rows: Vec<Vec<String>>) -> String {
    lines(&rows).into_iter().flat_map(|line| [line, "\n".to_owned()]).collect()
}

fn lines(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths).filter(|(_, width)| **width > 0) {
            // Writing to a string cannot fail.
            let _ = write!(line, "  {cell:<width$}");
        }
        line.trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}
