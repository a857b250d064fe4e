//! Accepting connections, and their assignment to workers.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use prometheus::IntCounter;
use tokio::sync::watch;
use tokio::time::Instant;

use super::listener::Listener;
use super::socket::{Accepted, AsyncListener, ListeningSocket};
use super::worker::Worker;

/// How long to wait after a failed accept, for instance without a free file descriptor: trying at once
/// would spin.
const ERROR_PAUSE: Duration = Duration::from_millis(50);
/// The same trouble is logged no more often than this.
const LOG_INTERVAL: Duration = Duration::from_secs(5);

pub(super) const OVERLOADED: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\n\
Cache-Control: no-store\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 151\r\n\r\n\
{\"type\":\"about:blank\",\"title\":\"Service Unavailable\",\"status\":503,\"error\":\"overloaded\",\
\"error_description\":\"The gateway has no room for a connection.\"}\n";

/// How many connections there may be, and the counter of those rejected beyond that.
#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    pub max_connections: usize,
    pub rejected: IntCounter,
}

/// Assigns one listener's connections until told to stop, each to the worker that has the fewest.
///
/// # Errors
/// If the listener cannot be watched.
pub(crate) async fn accept(
    socket: ListeningSocket,
    listener: Arc<Listener>,
    workers: Arc<Vec<Worker>>,
    limit: ConnectionLimit,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let socket = AsyncListener::new(socket)?;
    let mut errors = AcceptErrors::default();
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok(accepted) => assign(accepted, &listener, &workers, &limit),
            Err(error) if is_passing(&error) => {}
            Err(error) => {
                errors.log(&error);
                tokio::time::sleep(ERROR_PAUSE).await;
            }
        }
    }
    // Connections in the backlog are established as far as their clients know: serve them.
    let socket = socket.into_std()?;
    while let Ok(accepted) = socket.try_accept() {
        assign(accepted, &listener, &workers, &limit);
    }
    Ok(())
}

fn assign(
    mut accepted: Accepted,
    listener: &Arc<Listener>,
    workers: &[Worker],
    limit: &ConnectionLimit,
) {
    if accepted.socket.prepare().is_err() {
        return;
    }
    if workers.iter().map(Worker::load).sum::<usize>() >= limit.max_connections {
        limit.rejected.inc();
        // Who speaks TLS could not read it.
        if listener.current().tls.is_none() {
            accepted.socket.write_once(OVERLOADED);
        }
        return;
    }
    if let Some(worker) = workers.iter().min_by_key(|worker| worker.load()) {
        worker.assign(accepted, listener.clone());
    }
}

/// Errors that belong to the connection that was lost and not to the listener.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}

#[derive(Default)]
struct AcceptErrors(Option<Instant>);

impl AcceptErrors {
    fn log(&mut self, error: &io::Error) {
        let now = Instant::now();
        if self.0.is_none_or(|last| now - last > LOG_INTERVAL) {
            self.0 = Some(now);
            tracing::error!(%error, "cannot accept connections; raise the file descriptor limit if it is reached");
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_answer_for_want_of_room_is_well_formed() {
        let text = std::str::from_utf8(super::OVERLOADED).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{}", body.len());
        let problem: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(problem["error"], "overloaded");
    }
}
