//! Upstream servers: connections to them, and what their failures look like to the client.

mod balance;
mod breaker;
mod connection_limit;
mod connection_reuse;
mod degraded;
mod ejection;
mod error_metrics;
mod failing_clients;
mod faults;
mod file_descriptors;
mod health;
mod http2;
mod http2_connection_end;
mod http2_failures;
mod http2_large_heads;
mod http2_resets;
mod http2_send_window;
mod http2_stray_frames;
mod http2_upgrades;
mod moving_names;
mod response_timeout;
mod tls;
mod trailers;
mod trials;
mod unix_socket;
mod unreachable;
