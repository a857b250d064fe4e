//! Requests and responses on the wire: framing, routing, headers, bodies, connections.

mod bodies;
mod chunked;
mod configured_answers;
mod connections_per_ip;
mod curl;
mod disconnects;
mod early_hints;
mod forwarding;
mod framing;
mod host;
mod http2;
mod http2_floods;
mod http2_messages;
mod http2_streams;
mod listeners;
mod methods;
mod overload;
mod pipelining;
mod regression;
mod response_format;
mod route_conditions;
mod routing;
mod server_sent_events;
mod slow_peers;
mod tls;
mod upgrades;

use crate::support::{Config, Upstream, Weir};

/// A gateway without limits, and the upstream behind it.
fn gateway() -> (Upstream, Weir) {
    let upstream = Upstream::ok();
    let weir = Weir::start(&Config::to(&upstream).open());
    (upstream, weir)
}
