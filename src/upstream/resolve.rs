//! From a server's host and port to socket addresses.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

use crate::config::settings::Origin;

/// How long the answer for a name is used. Names are asked again only for new connections.
const FRESH: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct Address {
    origin: Origin,
    known: RefCell<Option<Known>>,
}

#[derive(Debug)]
struct Known {
    addresses: Rc<[SocketAddr]>,
    /// `None`: an address, not a name.
    until: Option<Instant>,
}

impl Address {
    #[must_use]
    pub fn new(origin: &Origin) -> Self {
        let literal = origin
            .host
            .parse::<IpAddr>()
            .ok()
            .map(|ip| Known { addresses: [SocketAddr::new(ip, origin.port)].into(), until: None });
        Address { origin: origin.clone(), known: RefCell::new(literal) }
    }

    /// The addresses to try, in order. An answer that cannot be renewed is used further: a name
    /// server's outage should not become ours.
    ///
    /// # Errors
    /// If the name never resolved.
    pub async fn lookup(&self) -> io::Result<Rc<[SocketAddr]>> {
        if let Some(known) = &*self.known.borrow()
            && known.until.is_none_or(|until| Instant::now() < until)
        {
            return Ok(known.addresses.clone());
        }
        let asked = tokio::net::lookup_host((self.origin.host.as_str(), self.origin.port)).await;
        let found = asked.map(|addresses| addresses.collect::<Rc<[_]>>());
        let mut known = self.known.borrow_mut();
        match (found, &*known) {
            (Ok(addresses), _) if !addresses.is_empty() => {
                let until = Some(Instant::now() + FRESH);
                *known = Some(Known { addresses: addresses.clone(), until });
                Ok(addresses)
            }
            (_, Some(stale)) => Ok(stale.addresses.clone()),
            (Ok(_), None) => Err(io::ErrorKind::NotFound.into()),
            (Err(error), None) => Err(error),
        }
    }
}
