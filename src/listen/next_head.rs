//! Waiting for the next request of a connection.

use std::future::poll_fn;
use std::io;
use std::task::{Poll, ready};

use bytes::Bytes;
use tokio::time::Instant;

use super::connection::{Connection, DRAIN_GRACE, ServerSettings};
use super::tls::TLS_HANDSHAKE;
use crate::clock;
use crate::http1::HeadSearch;
use crate::respond::Fault;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing of a request has come.
    Idle,
    Reading,
    /// Idle, and the gateway is shutting down.
    Draining,
}

pub(super) enum HeadReadError {
    /// Malformed, too large or too slow: the client gets an error response.
    Fault(Fault),
    /// The client has closed or reset the connection.
    Disconnected,
}

impl From<Fault> for HeadReadError {
    fn from(fault: Fault) -> Self {
        HeadReadError::Fault(fault)
    }
}

impl Connection<'_> {
    /// The next head; `None` if the client sends no further request. Size and time are bounded by
    /// the configuration at the time the head comes, not at the time the connection fell idle.
    pub(super) async fn next_head(
        &self,
        settings: &ServerSettings,
        search: &mut HeadSearch,
        first: bool,
    ) -> Result<Option<Bytes>, HeadReadError> {
        let mut phase = Phase::Idle;
        {
            let io = &mut self.inbound.borrow_mut().io;
            io.shrink();
            let (now, timeout) = match first {
                true => (clock::now(), self.settings.header_timeout),
                false => (clock::cached_now(), self.settings.idle_timeout),
            };
            io.set_deadline(now + timeout);
        }
        poll_fn(|cx| {
            let (io, current) = (&mut self.inbound.borrow_mut().io, settings.borrow());
            let max = current.max_header_bytes;
            loop {
                if let Some(head) = search.take(&mut io.read_buf, max).map_err(Fault::from)? {
                    return Poll::Ready(Ok(Some(head)));
                }
                if !io.read_buf.is_empty() && phase != Phase::Reading {
                    // Nothing that it could read can be said to a client that speaks TLS here.
                    if first && io.read_buf[0] == TLS_HANDSHAKE {
                        return Poll::Ready(Ok(None));
                    }
                    phase = Phase::Reading;
                    io.set_deadline(Instant::now() + current.header_timeout);
                }
                if self.control.draining.get() && phase == Phase::Idle {
                    phase = Phase::Draining;
                    io.set_deadline(Instant::now() + DRAIN_GRACE.min(current.drain));
                }
                // Answers to pipelined requests leave before we wait for more of them.
                let _ = io.poll_flush(cx).map_err(|_| HeadReadError::Disconnected)?;
                match ready!(io.poll_fill(cx, false)) {
                    Ok(0) if phase == Phase::Reading => {
                        return Poll::Ready(Err(HeadReadError::Disconnected));
                    }
                    Ok(0) => return Poll::Ready(Ok(None)),
                    Ok(_) => {}
                    Err(error) if error.kind() != io::ErrorKind::TimedOut => {
                        return Poll::Ready(Err(HeadReadError::Disconnected));
                    }
                    Err(_) if phase == Phase::Reading => {
                        return Poll::Ready(Err(Fault::TooSlow.into()));
                    }
                    Err(_) => return Poll::Ready(Ok(None)),
                }
            }
        })
        .await
    }
}
