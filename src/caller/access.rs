//! Who is never limited, and who never gets in: networks, users and clients, by the hundred thousand.
//!
//! Lists are built once, when a configuration is loaded or one of its files has changed, and after
//! that only asked. No question walks a list: a network is found by bisection, a name by its hash.

pub mod file;
pub mod networks;

use std::net::IpAddr;

use hashbrown::HashSet;
use ipnet::IpNet;

pub use file::{FileError, Stamp};
pub use networks::Networks;

use crate::config::settings;

/// One line of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    Network(IpNet),
    User(String),
    Client(String),
}

/// What the lists say of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// No limit applies.
    Allowed,
    /// There is nothing for it here.
    Denied,
    /// A caller like any other.
    Neither,
}

/// Callers by their network, or by their exact name.
#[derive(Debug, Clone, Default)]
pub struct AccessList {
    networks: Networks,
    users: HashSet<Box<str>>,
    clients: HashSet<Box<str>>,
}

/// Both lists.
#[derive(Debug, Clone, Default)]
pub struct Access {
    pub allow: AccessList,
    pub deny: AccessList,
}

impl AccessList {
    #[must_use]
    pub fn new(entries: impl IntoIterator<Item = Entry>) -> Self {
        let mut list = AccessList::default();
        let mut networks = Vec::new();
        for entry in entries {
            match entry {
                Entry::Network(network) => networks.push(network),
                Entry::User(name) => _ = list.users.insert(name.into()),
                Entry::Client(name) => _ = list.clients.insert(name.into()),
            }
        }
        list.networks = networks.into_iter().collect();
        list.users.shrink_to_fit();
        list.clients.shrink_to_fit();
        list
    }

    /// What the configuration names itself, and what its files do.
    ///
    /// # Errors
    /// If a file cannot be read, or has a line that is no entry: half a list is none.
    pub fn load(written: &settings::AccessEntries) -> Result<Self, FileError> {
        let networks = written.ip.iter().copied().map(Entry::Network);
        let users = written.user.iter().cloned().map(Entry::User);
        let clients = written.client.iter().cloned().map(Entry::Client);
        let mut entries: Vec<Entry> = networks.chain(users).chain(clients).collect();
        for path in &written.files {
            entries.append(&mut file::load(path)?);
        }
        Ok(Self::new(entries))
    }

    /// Whether one of these is in it.
    #[must_use]
    pub fn holds(&self, ip: IpAddr, user: Option<&str>, client: Option<&str>) -> bool {
        self.networks.contains(ip)
            || user.is_some_and(|name| self.users.contains(name))
            || client.is_some_and(|name| self.clients.contains(name))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.networks.is_empty() && self.users.is_empty() && self.clients.is_empty()
    }
}

impl Access {
    /// # Errors
    /// As [`AccessList::load`].
    pub fn load(written: &settings::Access) -> Result<Self, FileError> {
        let (allow, deny) = (AccessList::load(&written.allow)?, AccessList::load(&written.deny)?);
        Ok(Access { allow, deny })
    }

    /// Whether it matters who the user is.
    #[must_use]
    pub fn names_users(&self) -> bool {
        !self.allow.users.is_empty() || !self.deny.users.is_empty()
    }

    #[must_use]
    pub fn names_clients(&self) -> bool {
        !self.allow.clients.is_empty() || !self.deny.clients.is_empty()
    }

    /// Whoever is denied by anything is denied: an entry that allows a caller, however narrow, does
    /// not take back one that keeps it out.
    #[must_use]
    pub fn judge(&self, ip: IpAddr, user: Option<&str>, client: Option<&str>) -> Verdict {
        if self.deny.holds(ip, user, client) {
            Verdict::Denied
        } else if self.allow.holds(ip, user, client) {
            Verdict::Allowed
        } else {
            Verdict::Neither
        }
    }
}

/// The state of every file that the lists are made from, in order. Take it before they are loaded:
/// if it differs later, they are to be loaded again.
#[must_use]
pub fn stamps(written: &settings::Access) -> Vec<Option<Stamp>> {
    let files = written.allow.files.iter().chain(&written.deny.files);
    files.map(|path| Stamp::of(path)).collect()
}

#[cfg(test)]
#[path = "access/tests.rs"]
mod tests;
