//! Lists of callers that are never limited, or always denied: networks, users and clients, up to
//! hundreds of thousands.
//!
//! Lists are built once, when a configuration is loaded or one of its files has changed, and after
//! that only read. No look-up walks a list: a network is found by bisection, a name by its hash.

pub mod list_file;
pub mod networks;

use std::net::IpAddr;

use hashbrown::HashSet;
use ipnet::IpNet;

pub use list_file::ListFileError;
pub use networks::NetworkSet;

use crate::config::settings;

/// One line of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessEntry {
    Network(IpNet),
    User(String),
    Client(String),
}

/// What the lists say of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessDecision {
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
    networks: NetworkSet,
    users: HashSet<Box<str>>,
    clients: HashSet<Box<str>>,
}

/// Both lists.
#[derive(Debug, Clone, Default)]
pub struct AccessLists {
    pub allow: AccessList,
    pub deny: AccessList,
}

impl AccessList {
    pub fn new(entries: impl IntoIterator<Item = AccessEntry>) -> Self {
        let mut list = AccessList::default();
        let mut networks = Vec::new();
        for entry in entries {
            match entry {
                AccessEntry::Network(network) => networks.push(network),
                AccessEntry::User(name) => _ = list.users.insert(name.into()),
                AccessEntry::Client(name) => _ = list.clients.insert(name.into()),
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
    pub fn load(written: &settings::AccessEntries) -> Result<Self, ListFileError> {
        let networks = written.ip.iter().copied().map(AccessEntry::Network);
        let users = written.user.iter().cloned().map(AccessEntry::User);
        let clients = written.client.iter().cloned().map(AccessEntry::Client);
        let mut entries: Vec<AccessEntry> = networks.chain(users).chain(clients).collect();
        for path in &written.files {
            entries.append(&mut list_file::load(path)?);
        }
        Ok(Self::new(entries))
    }

    pub fn holds_address(&self, ip: IpAddr) -> bool {
        self.networks.contains(ip)
    }

    pub fn holds_user(&self, name: &str) -> bool {
        self.users.contains(name)
    }

    pub fn holds_client(&self, name: &str) -> bool {
        self.clients.contains(name)
    }

    pub fn is_empty(&self) -> bool {
        self.networks.is_empty() && self.users.is_empty() && self.clients.is_empty()
    }
}

impl AccessLists {
    /// # Errors
    /// As [`AccessList::load`].
    pub fn load(written: &settings::Access) -> Result<Self, ListFileError> {
        let (allow, deny) = (AccessList::load(&written.allow)?, AccessList::load(&written.deny)?);
        Ok(AccessLists { allow, deny })
    }

    /// Whether it matters who the user is.
    pub fn names_users(&self) -> bool {
        !self.allow.users.is_empty() || !self.deny.users.is_empty()
    }

    pub fn names_clients(&self) -> bool {
        !self.allow.clients.is_empty() || !self.deny.clients.is_empty()
    }

    /// What the lists say of a caller by all that is known of it.
    pub fn check(&self, ip: IpAddr, user: Option<&str>, client: Option<&str>) -> AccessDecision {
        let user = user.map_or(AccessDecision::Neither, |name| self.check_user(name));
        let client = client.map_or(AccessDecision::Neither, |name| self.check_client(name));
        self.check_address(ip).and(user).and(client)
    }

    /// What they say by the address alone.
    pub fn check_address(&self, ip: IpAddr) -> AccessDecision {
        AccessDecision::new(self.deny.holds_address(ip), || self.allow.holds_address(ip))
    }

    pub fn check_user(&self, name: &str) -> AccessDecision {
        AccessDecision::new(self.deny.holds_user(name), || self.allow.holds_user(name))
    }

    pub fn check_client(&self, name: &str) -> AccessDecision {
        AccessDecision::new(self.deny.holds_client(name), || self.allow.holds_client(name))
    }
}

impl AccessDecision {
    /// What two say together. Denial wins: an entry that allows a caller, however narrow, does not
    /// override one that denies it.
    pub fn and(self, other: AccessDecision) -> AccessDecision {
        use AccessDecision::{Allowed, Denied, Neither};
        match (self, other) {
            (Denied, _) | (_, Denied) => Denied,
            (Allowed, _) | (_, Allowed) => Allowed,
            (Neither, Neither) => Neither,
        }
    }

    fn new(denied: bool, allowed: impl FnOnce() -> bool) -> Self {
        if denied {
            AccessDecision::Denied
        } else if allowed() {
            AccessDecision::Allowed
        } else {
            AccessDecision::Neither
        }
    }
}

#[cfg(test)]
#[path = "access/tests.rs"]
mod tests;
