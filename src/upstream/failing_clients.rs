//! Whose requests have failed in a row.
//!
//! A request may fail for what is in it: servers close connections and reset streams over heads that
//! they do not like, hang up on uploads, crash over one query and take too long for another. None of
//! that can be told from a server that is down, except by requests of others. So failures hold against
//! the clients whose requests have failed, and only once these are several against everybody: one
//! client takes no server from others, and where there is only one, such as a load balancer that names
//! nobody, nothing is lost.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

/// So many clients do not all send what a server cannot bear. One machine has two addresses easily, one
/// of each version of IP.
pub(super) const SEVERAL: usize = 4;
/// Stands for all clients. The key of 255.255.255.255, from which nobody comes.
const EVERYBODY: u64 = u64::MAX;

/// Against whom a failure holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureScope {
    /// Whose request it was: it may have failed for what was in it.
    Client(IpAddr),
    /// No request caused it: no server can be connected to.
    Everybody,
    /// It says nothing of what the next request will meet: it came with another failure, which was counted
    /// for both, or there is another server to go to.
    Nobody,
}

/// The keys of up to [`SEVERAL`] clients, from the first on; zero: none yet.
#[derive(Debug, Default)]
pub(super) struct FailingClients([AtomicU64; SEVERAL]);

impl FailingClients {
    pub(super) fn note(&self, client: IpAddr) {
        let key = key(client);
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        let is_noted = |slot: &AtomicU64| match slot.compare_exchange(0, key, set, get) {
            Ok(_) => true,
            Err(other) => other == key,
        };
        // Slots fill in order: the last is taken only after all before it.
        let _ = self.0.iter().any(is_noted);
    }

    pub(super) fn note_scope(&self, scope: FailureScope) {
        match scope {
            FailureScope::Client(client) => self.note(client),
            FailureScope::Everybody => self.note_everybody(),
            FailureScope::Nobody => {}
        }
    }

    pub(super) fn note_everybody(&self) {
        self.0[SEVERAL - 1].store(EVERYBODY, Ordering::Relaxed);
    }

    /// Whether failures hold against that client.
    pub(super) fn include(&self, client: IpAddr) -> bool {
        self.are_everybody() || self.position(client).is_some()
    }

    /// Where among these clients it stands.
    pub(super) fn position(&self, client: IpAddr) -> Option<usize> {
        let key = key(client);
        self.0.iter().position(|slot| slot.load(Ordering::Relaxed) == key)
    }

    /// Whether they hold against everybody.
    pub(super) fn are_everybody(&self) -> bool {
        let [first @ .., last] = self.0.each_ref().map(|slot| slot.load(Ordering::Relaxed));
        // The last alone is no proof: it may have been taken while the others were cleared.
        last == EVERYBODY || (last != 0 && !first.contains(&0))
    }

    /// What the log adds to what is open or left out: for whom, unless for everybody.
    pub(super) fn for_whom(&self) -> String {
        let is_noted = |slot: &&AtomicU64| slot.load(Ordering::Relaxed) != 0;
        match self.0.iter().filter(is_noted).count() {
            _ if self.are_everybody() => String::new(),
            1 => ", for the one client whose requests failed".to_owned(),
            few => format!(", for the {few} clients whose requests failed"),
        }
    }

    pub(super) fn clear(&self) {
        self.0.iter().for_each(|slot| slot.store(0, Ordering::Relaxed));
    }
}

/// Addresses of one IPv6 network of 64 bits are one client, whatever limits count by: a network is what
/// one machine may have.
fn key(client: IpAddr) -> u64 {
    match client {
        IpAddr::V4(ip) => u64::from(u32::MAX) << 32 | u64::from(ip.to_bits()),
        IpAddr::V6(ip) => ((ip.to_bits() >> 64) as u64).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn failures_of_one_client_hold_against_no_other() {
        let clients = FailingClients::default();
        assert!(!clients.include(ip("::")) && !clients.include(ip("192.0.2.1")));
        for client in ["192.0.2.1", "2001:db8::1", "::"] {
            (0..9).for_each(|_| clients.note(ip(client)));
            assert!(clients.include(ip(client)));
        }
        assert!(clients.include(ip("2001:db8::2")), "of the same network");
        for other in ["192.0.2.2", "2001:db8:0:1::1"] {
            assert!(!clients.include(ip(other)), "{other}");
        }
    }

    #[test]
    fn the_log_says_for_how_many_clients_they_hold_while_these_are_few() {
        let clients = FailingClients::default();
        let said = [1, 1, 2, 3, 4].map(|number| {
            clients.note(ip(&format!("192.0.2.{number}")));
            clients.for_whom()
        });
        let few = ["one client", "one client", "2 clients", "3 clients"];
        let few = few.map(|few| format!(", for the {few} whose requests failed"));
        assert_eq!(said[..4], few);
        assert_eq!(said[4], "");
        clients.clear();
        clients.note(ip("192.0.2.1"));
        clients.note_everybody();
        assert_eq!(clients.for_whom(), "");
    }

    #[test]
    fn failures_of_several_hold_against_everybody() {
        let clients = FailingClients::default();
        for number in 1..=4 {
            assert!(!clients.include(ip("192.0.2.9")));
            clients.note(ip(&format!("192.0.2.{number}")));
        }
        assert!(clients.include(ip("192.0.2.9")));
        clients.clear();
        assert!(!clients.include(ip("192.0.2.1")));
        clients.0[SEVERAL - 1].store(key(ip("192.0.2.4")), Ordering::Relaxed);
        assert!(clients.include(ip("192.0.2.4")) && !clients.include(ip("192.0.2.1")));
        clients.note_everybody();
        assert!(clients.include(ip("192.0.2.1")));
    }
}
