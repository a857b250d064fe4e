//! Requests and responses on the wire: framing, routing, headers, bodies, connections.

mod bodies;
mod chunked;
mod curl;
mod disconnects;
mod forwarding;
mod framing;
mod host;
mod methods;
mod pipelining;
mod regression;
mod response_format;
mod routing;
mod slow_peers;
mod upgrades;

use crate::support::{Config, Upstream, Weir};

/// A gateway without limits, and the upstream behind it.
fn gateway() -> (Upstream, Weir) {
    let upstream = Upstream::ok();
    let weir = Weir::start(&Config::to(&upstream).open());
    (upstream, weir)
}
