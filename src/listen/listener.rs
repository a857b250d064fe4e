//! A listener as its connections see it: what holds for them now.
//!
//! What a reload may change is swapped as a whole. A connection goes by what holds when it begins, so
//! nothing of a reload reaches one that is open.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;

use super::tls::{SessionTickets, server_config};
use crate::config::settings::{self, ListenAddress};

#[derive(Debug)]
pub(crate) struct Listener {
    /// With the port that it has got.
    pub(crate) address: ListenAddress,
    current: ArcSwap<ListenerConfig>,
    tickets: Mutex<Option<SessionTickets>>,
}

/// What holds for new connections.
#[derive(Debug)]
pub(crate) struct ListenerConfig {
    settings: settings::Listener,
    /// `None`: in the clear.
    pub(crate) tls: Option<Arc<rustls::ServerConfig>>,
    /// Whether trusted proxies have to say whom they speak for.
    pub(crate) proxy_protocol: bool,
}

impl Listener {
    /// `settings` has the address that it is bound to.
    pub(crate) fn new(settings: &settings::Listener) -> Self {
        let tickets = Mutex::new(None);
        let config = ListenerConfig::new(settings, &tickets);
        let address = settings.address.clone();
        Listener { address, current: ArcSwap::from_pointee(config), tickets }
    }

    /// As clients would write it.
    pub(crate) fn url(&self) -> String {
        match (&self.address, self.current().tls.is_some()) {
            (ListenAddress::Unix { .. }, _) => self.address.to_string(),
            (_, true) => format!("https://{}", self.address),
            (_, false) => format!("http://{}", self.address),
        }
    }

    pub(crate) fn current(&self) -> Guard<Arc<ListenerConfig>> {
        self.current.load()
    }

    /// New connections go by other settings. Those of TLS that are the same stay what they are.
    pub(crate) fn configure(&self, settings: &settings::Listener) {
        if self.current().settings != *settings {
            self.current.store(Arc::new(ListenerConfig::new(settings, &self.tickets)));
        }
    }
}

impl ListenerConfig {
    fn new(settings: &settings::Listener, tickets: &Mutex<Option<SessionTickets>>) -> Self {
        let tls = settings.tls.as_ref().map(|tls| {
            let mut tickets = tickets.lock();
            let kept = SessionTickets::kept_or_new(tickets.take(), tls);
            let config = server_config(tls, &kept, settings.http2);
            *tickets = Some(kept);
            Arc::new(config)
        });
        ListenerConfig { settings: settings.clone(), tls, proxy_protocol: settings.proxy_protocol }
    }
}
