//! From a server's host and port to socket addresses.
//!
//! All workers and the probes share the answer for a server's name. There is at most one query for it
//! at a time, and a request waits for that only if there is no earlier answer: the last one is used
//! until there is another, so an outage of the name server is none of the gateway.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::pin::{Pin, pin};
use std::rc::Weak;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::pool::{Recall, Server};
use crate::config::settings::Origin;

/// When a failed query is repeated, if there is an older answer.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Resolves a name.
type Resolve = fn(Origin) -> Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

#[derive(Debug, Clone)]
pub(crate) struct ServerAddress(Arc<CachedName>);

#[derive(Debug)]
struct CachedName {
    origin: Origin,
    resolve: Resolve,
    /// Whether it is a name, which may come to mean other addresses.
    is_name: bool,
    known: ArcSwapOption<CachedAnswer>,
    /// How long an answer is used before the name is resolved again.
    interval: Mutex<Duration>,
    refreshing: AtomicBool,
    /// Why there is no answer, for requests that wait for the first.
    failed: Mutex<Option<io::Error>>,
    answered: Notify,
}

#[derive(Debug)]
struct CachedAnswer {
    addresses: Arc<[SocketAddr]>,
    /// `None`: for ever.
    until: Option<Instant>,
}

impl CachedAnswer {
    fn is_stale(&self) -> bool {
        self.until.is_some_and(|until| until <= Instant::now())
    }
}

/// The addresses of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resolution {
    /// To be tried in order.
    pub addresses: Arc<[SocketAddr]>,
    /// They are an earlier answer, and are being resolved again.
    pub stale: bool,
}

impl ServerAddress {
    pub(crate) fn new(origin: &Origin) -> Self {
        ServerAddress::resolved_by(origin, |origin| {
            Box::pin(async move {
                let asked = tokio::net::lookup_host((origin.host.as_str(), origin.port));
                Ok(asked.await?.collect())
            })
        })
    }

    fn resolved_by(origin: &Origin, resolve: Resolve) -> Self {
        let literal: Option<Arc<[SocketAddr]>> = match (origin.unix_path(), origin.host.parse()) {
            // There is nothing to resolve, and nothing that it could be resolved to.
            (Some(_), _) => Some([].into()),
            (None, Ok::<IpAddr, _>(ip)) => Some([SocketAddr::new(ip, origin.port)].into()),
            (None, Err(_)) => None,
        };
        let known = literal.map(|addresses| Arc::new(CachedAnswer { addresses, until: None }));
        ServerAddress(Arc::new(CachedName {
            origin: origin.clone(),
            resolve,
            is_name: known.is_none(),
            known: ArcSwapOption::new(known),
            interval: Mutex::new(Duration::from_secs(10)),
            refreshing: AtomicBool::new(false),
            failed: Mutex::default(),
            answered: Notify::new(),
        }))
    }

    /// The path, if it is a Unix socket.
    pub(super) fn unix_path(&self) -> Option<&Path> {
        self.0.origin.unix_path()
    }

    pub(super) fn set_interval(&self, interval: Duration) {
        *self.0.interval.lock() = interval;
    }

    /// Whether it is a name, which may come to mean other addresses.
    pub(super) fn is_name(&self) -> bool {
        self.0.is_name
    }

    /// Whether that is one of its addresses, as far as is known.
    pub(super) fn has(&self, address: SocketAddr) -> bool {
        let known = self.0.known.load();
        known.as_ref().is_none_or(|known| known.addresses.contains(&address))
    }

    /// Asks again and again, for as long as the server is there, and has its connections closed that
    /// lead elsewhere. While none is open this worker does not ask.
    pub(super) async fn follow(self, server: Weak<Server>) {
        loop {
            let mut answered = pin!(self.0.answered.notified());
            if timeout_at(self.next_query(), &mut answered).await.is_err() {
                // Not held while this waits: a server that nobody else has is to be forgotten.
                let is_in_use = server.upgrade().map(|server| server.is_in_use());
                match is_in_use {
                    Some(true) => {}
                    Some(false) => {
                        let interval = *self.0.interval.lock();
                        tokio::time::sleep(interval).await;
                        continue;
                    }
                    None => return,
                }
                // What was the last answer stays in use for as long as this takes.
                self.refresh_if_stale();
                answered.await;
            }
            match server.upgrade() {
                Some(server) => server.close_idle(Instant::now(), Recall::Any),
                None => return,
            }
        }
    }

    /// When the answer is no longer used unasked.
    fn next_query(&self) -> Instant {
        let until = self.0.known.load().as_ref().and_then(|known| known.until);
        until.unwrap_or_else(|| Instant::now() + *self.0.interval.lock())
    }

    /// The addresses to try.
    ///
    /// # Errors
    /// If the name never resolved.
    pub(crate) async fn lookup(&self) -> io::Result<Resolution> {
        if let Some(known) = &*self.0.known.load() {
            let stale = known.is_stale();
            if stale {
                self.refresh();
            }
            return Ok(Resolution { addresses: known.addresses.clone(), stale });
        }
        Ok(Resolution { addresses: self.renewed().await?, stale: false })
    }

    /// The answer to the query that is under way, or to a new one.
    ///
    /// # Errors
    /// If the name never resolved.
    pub(crate) async fn renewed(&self) -> io::Result<Arc<[SocketAddr]>> {
        let answered = self.0.answered.notified();
        self.refresh();
        answered.await;
        match &*self.0.known.load() {
            Some(known) => Ok(known.addresses.clone()),
            // All that waited get the same error.
            None => Err(self.0.failed.lock().as_ref().map_or_else(
                || io::ErrorKind::NotFound.into(),
                |failed| match failed.raw_os_error() {
                    Some(code) => io::Error::from_raw_os_error(code),
                    None => io::Error::new(failed.kind(), failed.to_string()),
                },
            )),
        }
    }

    fn refresh_if_stale(&self) {
        if self.0.known.load().as_ref().is_none_or(|known| known.is_stale()) {
            self.refresh();
        }
    }

    /// Starts a query, unless one is under way.
    fn refresh(&self) {
        if self.0.refreshing.swap(true, Ordering::AcqRel) {
            return;
        }
        let name = self.0.clone();
        tokio::spawn(async move {
            let found = (name.resolve)(name.origin.clone()).await;
            name.note(found);
            name.refreshing.store(false, Ordering::Release);
            name.answered.notify_waiters();
        });
    }
}

impl CachedName {
    /// Stores an answer. If there is none the earlier one stays in use.
    fn note(&self, found: io::Result<Vec<SocketAddr>>) {
        let store = |addresses: Arc<[SocketAddr]>, time: Duration| {
            let until = Some(Instant::now() + time);
            self.known.store(Some(Arc::new(CachedAnswer { addresses, until })));
        };
        match found {
            Ok(addresses) if !addresses.is_empty() => {
                store(addresses.into(), *self.interval.lock());
            }
            failed => {
                if let Some(known) = &*self.known.load() {
                    store(known.addresses.clone(), RETRY_DELAY);
                }
                *self.failed.lock() = failed.err();
            }
        }
    }
}

#[cfg(test)]
#[path = "resolve/tests.rs"]
mod tests;
