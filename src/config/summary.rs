//! What a configuration says, in a few lines: for `weir check` and the log at start.

mod guards;
mod identity;
mod limits;
mod logs;
mod routes;
mod server;
mod store;
mod tenants;
mod upstreams;

use std::fmt::Write as _;

use super::LoadedConfig;
use super::settings::Admin;
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
    let mut tenants = String::new();
    if !settings.tenants.tree.is_empty() {
        tenants = tenants::tenants(settings);
    }
    for (heading, lines) in [
        ("server", server::server(&settings.server)),
        ("callers", identity::identity(settings)),
        ("routes", routes::routes(settings)),
        ("upstreams", upstreams::upstreams(settings)),
        ("limits", limits::limits(settings)),
        ("guards", guards::guards(settings)),
        ("tenants", tenants),
        ("logs", logs::logs(&settings.telemetry)),
    ] {
        if !lines.is_empty() {
            let _ = write!(text, "\n{heading}\n{lines}");
        }
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
