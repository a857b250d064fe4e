//! From a server's host and port to socket addresses.
//!
//! One question for a name is out at a time, and nobody waits for it who has an answer already: the
//! last one serves until there is another, so a name server that is silent is no outage of ours.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::config::settings::Origin;

/// How long the answer for a name is used before it is asked for again. Names are asked only for new
/// connections.
const FRESH: Duration = Duration::from_secs(10);
/// How long after a failure it is tried again, where there is an older answer.
const AGAIN: Duration = Duration::from_secs(1);

/// Asks a name server.
type Resolve = fn(Origin) -> Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>>>>;

#[derive(Debug)]
pub struct Address(Rc<Name>);

#[derive(Debug)]
struct Name {
    origin: Origin,
    resolve: Resolve,
    known: RefCell<Option<Known>>,
    asking: Cell<bool>,
    /// Why there is no answer, for those who wait for the first.
    failed: RefCell<Option<io::Error>>,
    answered: Notify,
}

#[derive(Debug)]
struct Known {
    addresses: Rc<[SocketAddr]>,
    /// `None`: an address, not a name.
    until: Option<Instant>,
}

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// To be tried in order.
    pub addresses: Rc<[SocketAddr]>,
    /// They are an earlier answer, and a new one is on its way.
    pub stale: bool,
}

impl Address {
    #[must_use]
    pub fn new(origin: &Origin) -> Self {
        Address::resolved_by(origin, |origin| {
            Box::pin(async move {
                let asked = tokio::net::lookup_host((origin.host.as_str(), origin.port));
                Ok(asked.await?.collect())
            })
        })
    }

    fn resolved_by(origin: &Origin, resolve: Resolve) -> Self {
        let literal = origin
            .host
            .parse::<IpAddr>()
            .ok()
            .map(|ip| Known { addresses: [SocketAddr::new(ip, origin.port)].into(), until: None });
        Address(Rc::new(Name {
            origin: origin.clone(),
            resolve,
            known: RefCell::new(literal),
            asking: Cell::new(false),
            failed: RefCell::new(None),
            answered: Notify::new(),
        }))
    }

    /// The addresses to try.
    ///
    /// # Errors
    /// If the name never resolved.
    pub async fn lookup(&self) -> io::Result<Found> {
        if let Some(known) = &*self.0.known.borrow() {
            let stale = known.until.is_some_and(|until| until <= Instant::now());
            if stale {
                self.ask();
            }
            return Ok(Found { addresses: known.addresses.clone(), stale });
        }
        Ok(Found { addresses: self.renewed().await?, stale: false })
    }

    /// The answer to the question that is out, or to a new one.
    ///
    /// # Errors
    /// If the name never resolved.
    pub async fn renewed(&self) -> io::Result<Rc<[SocketAddr]>> {
        let answered = self.0.answered.notified();
        self.ask();
        answered.await;
        match &*self.0.known.borrow() {
            Some(known) => Ok(known.addresses.clone()),
            // All who have waited for it hear why.
            None => Err(self.0.failed.borrow().as_ref().map_or_else(
                || io::ErrorKind::NotFound.into(),
                |failed| match failed.raw_os_error() {
                    Some(code) => io::Error::from_raw_os_error(code),
                    None => io::Error::new(failed.kind(), failed.to_string()),
                },
            )),
        }
    }

    /// Sends a question, unless one is out.
    fn ask(&self) {
        if self.0.asking.replace(true) {
            return;
        }
        let name = self.0.clone();
        tokio::task::spawn_local(async move {
            let found = (name.resolve)(name.origin.clone()).await;
            name.note(found);
            name.asking.set(false);
            name.answered.notify_waiters();
        });
    }
}

impl Name {
    /// An answer that cannot be renewed is used further.
    fn note(&self, found: io::Result<Vec<SocketAddr>>) {
        let mut known = self.known.borrow_mut();
        match found {
            Ok(addresses) if !addresses.is_empty() => {
                let until = Some(Instant::now() + FRESH);
                *known = Some(Known { addresses: addresses.into(), until });
            }
            failed => {
                if let Some(known) = &mut *known {
                    known.until = Some(Instant::now() + AGAIN);
                }
                *self.failed.borrow_mut() = failed.err();
            }
        }
    }
}

#[cfg(test)]
#[path = "resolve/tests.rs"]
mod tests;
