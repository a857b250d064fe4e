//! From a server's host and port to socket addresses.
//!
//! There is at most one query for a name at a time, and a request waits for it only if there is no
//! earlier answer: the last one is used until there is another, so an outage of the name server is
//! none of the gateway.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::config::settings::Origin;

/// How long an answer is used before the name is resolved again. Names are resolved only for new
/// connections.
const ANSWER_TTL: Duration = Duration::from_secs(10);
/// When a failed query is repeated, if there is an older answer.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Resolves a name.
type Resolve = fn(Origin) -> Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>>>>;

#[derive(Debug)]
pub(crate) struct ServerAddress(Rc<CachedName>);

#[derive(Debug)]
struct CachedName {
    origin: Origin,
    resolve: Resolve,
    known: RefCell<Option<CachedAnswer>>,
    refreshing: Cell<bool>,
    /// Why there is no answer, for requests that wait for the first.
    failed: RefCell<Option<io::Error>>,
    answered: Notify,
}

#[derive(Debug)]
struct CachedAnswer {
    addresses: Rc<[SocketAddr]>,
    /// `None`: an address, not a name.
    until: Option<Instant>,
}

/// The addresses of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resolution {
    /// To be tried in order.
    pub addresses: Rc<[SocketAddr]>,
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
        let literal = origin.host.parse::<IpAddr>().ok().map(|ip| CachedAnswer {
            addresses: [SocketAddr::new(ip, origin.port)].into(),
            until: None,
        });
        ServerAddress(Rc::new(CachedName {
            origin: origin.clone(),
            resolve,
            known: RefCell::new(literal),
            refreshing: Cell::new(false),
            failed: RefCell::new(None),
            answered: Notify::new(),
        }))
    }

    /// The addresses to try.
    ///
    /// # Errors
    /// If the name never resolved.
    pub(crate) async fn lookup(&self) -> io::Result<Resolution> {
        if let Some(known) = &*self.0.known.borrow() {
            let stale = known.until.is_some_and(|until| until <= Instant::now());
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
    pub(crate) async fn renewed(&self) -> io::Result<Rc<[SocketAddr]>> {
        let answered = self.0.answered.notified();
        self.refresh();
        answered.await;
        match &*self.0.known.borrow() {
            Some(known) => Ok(known.addresses.clone()),
            // All that waited get the same error.
            None => Err(self.0.failed.borrow().as_ref().map_or_else(
                || io::ErrorKind::NotFound.into(),
                |failed| match failed.raw_os_error() {
                    Some(code) => io::Error::from_raw_os_error(code),
                    None => io::Error::new(failed.kind(), failed.to_string()),
                },
            )),
        }
    }

    /// Starts a query, unless one is under way.
    fn refresh(&self) {
        if self.0.refreshing.replace(true) {
            return;
        }
        let name = self.0.clone();
        tokio::task::spawn_local(async move {
            let found = (name.resolve)(name.origin.clone()).await;
            name.note(found);
            name.refreshing.set(false);
            name.answered.notify_waiters();
        });
    }
}

impl CachedName {
    /// Stores an answer. If there is none the earlier one stays in use.
    fn note(&self, found: io::Result<Vec<SocketAddr>>) {
        let mut known = self.known.borrow_mut();
        match found {
            Ok(addresses) if !addresses.is_empty() => {
                let until = Some(Instant::now() + ANSWER_TTL);
                *known = Some(CachedAnswer { addresses: addresses.into(), until });
            }
            failed => {
                if let Some(known) = &mut *known {
                    known.until = Some(Instant::now() + RETRY_DELAY);
                }
                *self.failed.borrow_mut() = failed.err();
            }
        }
    }
}

#[cfg(test)]
#[path = "resolve/tests.rs"]
mod tests;
