//! What the log says of one server that fails.

use tokio::time::Instant;

use super::EjectionVerdict;
use crate::config::settings::Ejection;
use crate::upstream::ConnectError;
use crate::upstream::failing_clients::FailingClients;
use crate::upstream::failure_log::FailureLog;

/// A server that cannot be reached is logged no more often than this, in milliseconds.
const UNREACHABLE_INTERVAL: u64 = 30_000;
/// The same for one that is left out for requests that failed. Those of one client may do that again as
/// often as requests of others bring the server back.
const EJECTION_INTERVAL: u64 = 1_000;

#[derive(Debug)]
pub(super) struct EjectionLog {
    upstream: String,
    server: String,
    log: FailureLog,
}

impl EjectionLog {
    pub(super) fn new(upstream: &str, server: &str) -> Self {
        let (upstream, server) = (upstream.to_owned(), server.to_owned());
        EjectionLog { upstream, server, log: FailureLog::default() }
    }

    /// No connection could be had. Logged once, and again while it lasts.
    pub(super) fn note_unreachable(&mut self, now: Instant, error: &ConnectError) {
        if self.log.repeat(now, UNREACHABLE_INTERVAL) {
            tracing::warn!(
                "upstream server {} of `{}` cannot be reached: {}",
                self.server,
                self.upstream,
                error.detail()
            );
        }
    }

    /// A request got no response, which has led to that.
    pub(super) fn note_failed(
        &mut self,
        now: Instant,
        verdict: EjectionVerdict,
        clients: &FailingClients,
        settings: &Ejection,
    ) {
        let (server, upstream) = (&self.server, &self.upstream);
        match verdict {
            // One that is left out again too soon to be logged may stay so for long.
            EjectionVerdict::Ejected(time) | EjectionVerdict::EjectedAgain(time)
                if self.log.begin(now, EJECTION_INTERVAL, clients) =>
            {
                tracing::warn!(
                    "upstream server {server} of `{upstream}` is left out for {time}ms{}: {} \
                     requests in a row got no response",
                    clients.for_whom(),
                    settings.failures,
                );
            }
            // What the log has said of a few clients may come to hold for all.
            EjectionVerdict::EjectedAgain(_) | EjectionVerdict::StillEjected
                if self.log.widen(clients) =>
            {
                tracing::warn!(
                    "upstream server {server} of `{upstream}` is now left out for everybody: not \
                     only requests of a few clients got no response"
                );
            }
            _ => {}
        }
    }

    /// It is no longer left out.
    pub(super) fn note_back(&mut self, why: &str) {
        if self.log.end() {
            tracing::info!("upstream server {} of `{}` {why}", self.server, self.upstream);
        }
    }
}

#[cfg(test)]
impl EjectionLog {
    pub(super) fn says_left_out(&self) -> bool {
        self.log.has_said()
    }

    pub(super) fn says_for_few(&self) -> bool {
        self.log.has_said_for_few()
    }
}
