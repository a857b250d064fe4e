//! The signals that a running gateway listens to.

use std::io;

use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGHUP.
    Reload,
    /// SIGTERM or SIGINT.
    Stop,
}

#[derive(Debug)]
pub(crate) struct Signals {
    hangup: Stream,
    terminate: Stream,
    interrupt: Stream,
}

impl Signals {
    /// From here on the signals no longer end the process by themselves.
    ///
    /// # Errors
    /// If a handler cannot be installed.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Signals {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.hangup.recv() => Signal::Reload,
            _ = self.terminate.recv() => Signal::Stop,
            _ = self.interrupt.recv() => Signal::Stop,
        }
    }
}
