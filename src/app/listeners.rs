//! The data listeners of a run: bound at the start, and configured anew by reloads.
//!
//! Which addresses are listened on takes a restart to change. Everything else that is said of an
//! address holds for new connections as soon as it is read.

use std::sync::Arc;

use super::AppError;
use super::inherited::InheritedSockets;
use crate::clock::unix_second;
use crate::config::certificate_dates::{NEAR_EXPIRY, date};
use crate::config::settings::{self, ListenAddress, ServerCertificate};
use crate::listen::address_count::AddressCounts;
use crate::listen::listener::Listener;
use crate::listen::socket::ListeningSocket;
use crate::telemetry::Metrics;

/// How often certificates that are about to end are logged.
const EXPIRY_LOG_INTERVAL: u64 = 24 * 60 * 60;

#[derive(Debug)]
pub(crate) struct DataListeners {
    listeners: Vec<BoundListener>,
    /// What is served for them now.
    served: Vec<settings::Listener>,
    /// How many connections each address has with all of them.
    pub(super) address_counts: Arc<AddressCounts>,
    expiry_logged: u64,
}

#[derive(Debug)]
struct BoundListener {
    /// As the configuration has it, where any port may do.
    configured: ListenAddress,
    listener: Arc<Listener>,
}

/// A socket, and what holds for its connections.
pub(super) type OpenListener = (ListeningSocket, Arc<Listener>);

impl DataListeners {
    /// Binds all of them that nobody has passed, and puts the addresses that they have got into the settings.
    ///
    /// # Errors
    /// If one cannot be bound.
    pub(super) fn bind(
        server: &mut settings::Server,
        inherited: &mut InheritedSockets,
    ) -> Result<(Vec<OpenListener>, Self), AppError> {
        let (mut open, mut listeners) = (Vec::new(), Vec::new());
        for settings in &mut server.listen {
            let configured = settings.address.clone();
            let bound = match inherited.take(&configured) {
                Some(socket) => Ok(socket),
                None => ListeningSocket::bind(&configured),
            };
            let bound = bound.and_then(|socket| Ok((socket.bound_address(&configured)?, socket)));
            let (address, socket) = bound.map_err(|source| AppError::Bind {
                address: configured.clone(),
                key: "server.listen",
                source,
            })?;
            settings.address = address;
            let listener = Arc::new(Listener::new(settings));
            open.push((socket, listener.clone()));
            listeners.push(BoundListener { configured, listener });
        }
        let all = DataListeners {
            listeners,
            served: server.listen.clone(),
            address_counts: Arc::default(),
            // The start itself has warned.
            expiry_logged: unix_second(),
        };
        Ok((open, all))
    }

    /// Serves by other settings, and puts into them what holds for the addresses that are bound.
    pub(super) fn configure(&mut self, server: &mut settings::Server) {
        let mut left: Vec<Option<settings::Listener>> =
            std::mem::take(&mut server.listen).into_iter().map(Some).collect();
        let mut next = self.served.clone();
        for (bound, next) in self.listeners.iter().zip(&mut next) {
            let same = |it: &&mut Option<settings::Listener>| {
                it.as_ref().is_some_and(|it| is_same(&it.address, &bound.configured))
            };
            if let Some(found) = left.iter_mut().find(same).and_then(Option::take) {
                let address = bound.listener.address.clone();
                *next = settings::Listener { address, ..found };
            }
        }
        server.listen = next.clone();
        self.serve(next);
    }

    /// The same for settings that have the bound addresses, all of them and in their order.
    pub(super) fn serve(&mut self, served: Vec<settings::Listener>) {
        for (bound, settings) in self.listeners.iter().zip(&served) {
            bound.listener.configure(settings);
        }
        self.served = served;
    }

    /// Says in metrics when certificates end.
    pub(super) fn show_certificates(&self, metrics: &Metrics) {
        metrics.set_certificates(self.certificates().map(|it| (it.name.as_str(), it.not_after)));
    }

    /// Logs the certificates that are about to end, once a day.
    pub(super) fn log_expiry(&mut self) {
        let now = unix_second();
        if now.saturating_sub(self.expiry_logged) < EXPIRY_LOG_INTERVAL {
            return;
        }
        self.expiry_logged = now;
        for certificate in self.certificates() {
            let (name, end) = (&certificate.name, certificate.not_after);
            if end < now.cast_signed() {
                tracing::error!("the certificate {name} has expired on {}", date(end));
            } else if end - now.cast_signed() < NEAR_EXPIRY {
                tracing::warn!("the certificate {name} expires on {}", date(end));
            }
        }
    }

    fn certificates(&self) -> impl Iterator<Item = &ServerCertificate> {
        self.served.iter().filter_map(|it| it.tls.as_ref()).flat_map(|tls| &tls.certificates)
    }
}

/// Whether two entries are for the same socket.
fn is_same(one: &ListenAddress, other: &ListenAddress) -> bool {
    match (one, other) {
        (ListenAddress::Unix { path: one, .. }, ListenAddress::Unix { path: other, .. }) => {
            one == other
        }
        _ => one == other,
    }
}
