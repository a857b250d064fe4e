//! Listening sockets, and the assignment of their connections to workers.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use prometheus::IntCounter;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::watch;
use tokio::time::Instant;

use super::worker::Worker;
use crate::stream::enable_keepalive;

/// How long to wait after a failed accept, for instance without a free file descriptor: trying at once
/// would spin.
const ERROR_PAUSE: Duration = Duration::from_millis(50);
/// How many connections the kernel may queue; it cuts this to its own limit.
const BACKLOG: i32 = 4096;
/// The same trouble is logged no more often than this.
const LOG_INTERVAL: Duration = Duration::from_secs(5);

const OVERLOADED: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\n\
Cache-Control: no-store\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 151\r\n\r\n\
{\"type\":\"about:blank\",\"title\":\"Service Unavailable\",\"status\":503,\"error\":\"overloaded\",\
\"error_description\":\"The gateway has no room for a connection.\"}\n";

/// Opens a listening socket.
///
/// # Errors
/// If the address is in use, not of this machine, or not allowed.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let domain = if address.is_ipv6() { Domain::IPV6 } else { Domain::IPV4 };
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    // A restart must not wait for the last connections of the process before it.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        // `[::]` and `0.0.0.0` may stand side by side on one port.
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

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
    listener: TcpListener,
    workers: Arc<Vec<Worker>>,
    limit: ConnectionLimit,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let mut errors = AcceptErrors::default();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        // Taken off this runtime, to be put on its worker's.
        match accepted.and_then(|(stream, peer)| Ok((stream.into_std()?, peer))) {
            Ok((stream, peer)) => assign(stream, peer, &workers, &limit),
            Err(error) if is_passing(&error) => {}
            Err(error) => {
                errors.log(&error);
                tokio::time::sleep(ERROR_PAUSE).await;
            }
        }
    }
    // Connections in the backlog are established as far as their clients know: serve them.
    let listener = listener.into_std()?;
    while let Ok((stream, peer)) = listener.accept() {
        assign(stream, peer, &workers, &limit);
    }
    Ok(())
}

fn assign(mut stream: TcpStream, peer: SocketAddr, workers: &[Worker], limit: &ConnectionLimit) {
    if stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).is_err() {
        return;
    }
    enable_keepalive(&stream);
    if workers.iter().map(Worker::load).sum::<usize>() >= limit.max_connections {
        limit.rejected.inc();
        // One attempt: a client that cannot take this at once is closed all the same.
        let _ = stream.write(OVERLOADED);
        return;
    }
    if let Some(worker) = workers.iter().min_by_key(|worker| worker.load()) {
        worker.assign(stream, peer);
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
