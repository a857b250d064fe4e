//! The program's own log: to standard error, for people on a terminal and for machines elsewhere.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Starts logging. `WEIR_LOG` takes the usual filter syntax (`debug`, `weir=debug,warn`), and
/// `WEIR_LOG_FORMAT=json` makes every line a JSON object.
pub fn start() {
    let filter = EnvFilter::try_from_env("WEIR_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    // A second call, as tests make, leaves the first one's log in place.
    let _ = match std::env::var("WEIR_LOG_FORMAT").as_deref() {
        Ok("json") => log.json().flatten_event(true).try_init(),
        _ => log.try_init(),
    };
}
