//! What operators decide at run time about single callers, and until when.
//!
//! A ruling overrides the numbers of one limit for one key, or lets a caller pass all limits, or
//! keeps it out. Each ends by itself. They are part of the configuration that workers serve, so a
//! request pays nothing for them unless there are some; where gateways share a store, they share
//! these as well (`store::redis::rulings`), and the embedded store keeps them in its snapshot.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ipnet::IpNet;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};

use crate::caller::access::{AccessList, Entry};
use crate::caller::address::unmapped;
use crate::caller::{Access, Addresses};
pub use crate::clock::unix_second as now;
use crate::config;
use crate::limit::adjust::{AdjustError, Numbers};
use crate::limit::spelling::{Forms, Spelled};
use crate::limit::{Limit, Policy};
use crate::route::bare_host;

/// More than anybody decides by hand. Whoever has more callers to tell apart has plans and lists.
pub const MOST: usize = 10_000;

/// One decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ruling {
    #[serde(flatten)]
    pub about: About,
    /// The Unix second at which it ends.
    pub until: u64,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum About {
    /// Other numbers of a limit for one key, in the [spelling](spelled) that its bucket is known by.
    Override {
        limit: String,
        key: String,
        #[serde(flatten)]
        written: Written,
    },
    /// A caller that is never limited, or never gets in.
    Access { action: Action, who: Who, value: String },
}

/// The numbers of an override, as they were written.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Written {
    /// As a configuration has it: `600/minute`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// The burst, or how many at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
    /// So many times as much of everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boost: Option<f64>,
}

/// Why a limit cannot be overridden so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OverrideError {
    #[error("`rate` is not a rate: write one such as \"600/minute\"")]
    Rate,
    #[error(transparent)]
    Numbers(#[from] AdjustError),
    #[error("for the plan {plan:?}: {why}")]
    Plan { plan: String, why: AdjustError },
}

impl Written {
    /// What holds under these numbers for callers who are held to a policy otherwise: the limit's
    /// own, or a plan's. What is left out stays as it is for them.
    ///
    /// # Errors
    /// If it cannot have them.
    pub fn policy(&self, policy: &Policy) -> Result<Policy, OverrideError> {
        let rate = self.rate.as_deref();
        let rate = rate.map(|text| config::rate(text).ok_or(OverrideError::Rate)).transpose()?;
        let numbers = Numbers { rate, burst: self.burst, boost: self.boost };
        Ok(policy.adjusted(&numbers)?)
    }

    /// Whether a limit can have these numbers, for callers of whichever plan.
    ///
    /// # Errors
    /// If it cannot.
    pub fn suits(&self, limit: &Limit) -> Result<(), OverrideError> {
        self.policy(&limit.policy)?;
        for (plan, policy) in &limit.plans {
            if let Err(OverrideError::Numbers(why)) = self.policy(policy) {
                return Err(OverrideError::Plan { plan: plan.clone(), why });
            }
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    Allow,
    Deny,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Who {
    Ip,
    User,
    Client,
}

impl Ruling {
    /// One that has ended, to ask for others about the same.
    #[must_use]
    pub fn about(about: About) -> Self {
        Ruling { about, until: 0, reason: None }
    }

    /// Two rulings about the same are one, and the later one holds.
    #[must_use]
    pub fn id(&self) -> String {
        self.id_with(str::to_owned)
    }

    /// The same, with a caller that is called otherwise.
    #[must_use]
    pub fn id_with(&self, name: impl Fn(&str) -> String) -> String {
        match &self.about {
            About::Override { limit, key, .. } => format!("override/{limit}/{}", name(key)),
            // Whoever is allowed is not denied any more, and the other way round.
            About::Access { who, value, .. } => {
                let who = match who {
                    Who::Ip => "ip",
                    Who::User => "user",
                    Who::Client => "client",
                };
                format!("access/{who}/{}", name(value))
            }
        }
    }

    fn entry(&self) -> Option<(Action, Entry)> {
        let About::Access { action, who, value } = &self.about else { return None };
        let entry = match who {
            Who::Ip => Entry::Network(network(value)?),
            Who::User => Entry::User(value.clone()),
            Who::Client => Entry::Client(value.clone()),
        };
        Some((*action, entry))
    }
}

/// A key of a limit that somebody has written down, as requests have it.
#[must_use]
pub fn spelled(limit: &Limit, key: &str, addresses: &Addresses) -> Option<Spelled> {
    struct AsCounted<'a>(&'a Addresses);
    impl Forms for AsCounted<'_> {
        fn ip(&self, ip: IpAddr) -> IpAddr {
            self.0.counted(ip)
        }

        fn host(&self, host: &str) -> String {
            bare_host(host).into_owned()
        }
    }
    limit.key.spelled(key, &AsCounted(addresses))
}

/// An address, or a network of them.
#[must_use]
pub fn network(text: &str) -> Option<IpNet> {
    let network = text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
    network.map(|network| unmapped(network).trunc())
}

/// The rulings that hold, as they were at some instant.
#[derive(Debug, Clone, Default)]
pub struct Rulings(Vec<Ruling>);

impl Rulings {
    /// Who is let in, and who is not, if anybody is named.
    #[must_use]
    pub fn access(&self) -> Option<Access> {
        let of = |wanted: Action| {
            let entries = self.0.iter().filter_map(Ruling::entry);
            entries.filter(move |(action, _)| *action == wanted).map(|(_, entry)| entry)
        };
        let access = Access {
            allow: AccessList::new(of(Action::Allow)),
            deny: AccessList::new(of(Action::Deny)),
        };
        Some(access).filter(|it| !it.allow.is_empty() || !it.deny.is_empty())
    }

    /// The keys of a limit that have other numbers, as they were written.
    pub fn overrides<'a>(&'a self, limit: &str) -> impl Iterator<Item = (&'a str, &'a Written)> {
        self.0.iter().filter_map(move |ruling| match &ruling.about {
            About::Override { limit: name, key, written } if name == limit => {
                Some((key.as_str(), written))
            }
            _ => None,
        })
    }
}

/// All rulings of this process. Clones of what holds are handed out.
#[derive(Debug, Default)]
pub struct Book {
    rulings: Mutex<BTreeMap<String, Ruling>>,
    changed: Notify,
    /// How often what holds has changed, and up to which of these changes it is served.
    changes: AtomicU64,
    served: watch::Sender<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there are {MOST} rulings already: let some end, or use plans and lists")]
pub struct Full;

impl Book {
    /// A book with what somebody has written down. What cannot be read, or has ended, is left out.
    #[must_use]
    pub fn of(text: &[u8]) -> Self {
        let rulings: Vec<Ruling> = serde_json::from_slice(text).unwrap_or_default();
        let book = Book::default();
        book.replace(rulings);
        book
    }

    /// All that hold, written down.
    #[must_use]
    pub fn text(&self) -> Vec<u8> {
        serde_json::to_vec(&self.all()).unwrap_or_default()
    }

    #[must_use]
    pub fn all(&self) -> Vec<Ruling> {
        let now = now();
        self.rulings.lock().values().filter(|it| it.until > now).cloned().collect()
    }

    /// Those that hold, for a configuration to be served with.
    #[must_use]
    pub fn rulings(&self) -> Rulings {
        Rulings(self.all())
    }

    /// # Errors
    /// If there are too many for another one.
    pub fn has_room(&self, id: &str) -> Result<(), Full> {
        let (now, rulings) = (now(), self.rulings.lock());
        let full = rulings.len() >= MOST && !rulings.contains_key(id);
        let full = full && rulings.values().all(|it| it.until > now);
        if full { Err(Full) } else { Ok(()) }
    }

    /// # Errors
    /// If there are too many.
    pub fn put(&self, ruling: Ruling) -> Result<(), Full> {
        let mut rulings = self.rulings.lock();
        let now = now();
        rulings.retain(|_, it| it.until > now);
        let id = ruling.id();
        if rulings.len() >= MOST && !rulings.contains_key(&id) {
            return Err(Full);
        }
        rulings.insert(id, ruling);
        self.note_change();
        Ok(())
    }

    /// False if there was none.
    pub fn remove(&self, id: &str) -> bool {
        let removed = self.rulings.lock().remove(id).is_some();
        self.note_change();
        removed
    }

    fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.changed.notify_one();
    }

    /// A number for what holds now, to say later that it is [served](Book::note_served).
    #[must_use]
    pub fn version(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// What held at that version is what callers are held to.
    pub fn note_served(&self, version: u64) {
        self.served.send_if_modified(|served| {
            let newer = version > *served;
            *served = version.max(*served);
            newer
        });
    }

    /// Resolves when callers are held to what holds now.
    pub async fn is_served(&self) {
        let version = self.version();
        // The sender is here, so it does not go away.
        let _ = self.served.subscribe().wait_for(|served| *served >= version).await;
    }

    #[must_use]
    pub fn get(&self, id: &str) -> Option<Ruling> {
        let now = now();
        self.rulings.lock().get(id).filter(|it| it.until > now).cloned()
    }

    /// Takes over what others who share the store have decided.
    pub fn replace(&self, rulings: impl IntoIterator<Item = Ruling>) {
        let now = now();
        let rulings = rulings.into_iter().filter(|it| it.until > now).take(MOST);
        let rulings: BTreeMap<_, _> = rulings.map(|it| (it.id(), it)).collect();
        let mut held = self.rulings.lock();
        if *held != rulings {
            *held = rulings;
            self.note_change();
        }
    }

    /// Resolves when another set of rulings holds: one was made or taken back, or has ended.
    pub async fn changed(&self) {
        let ends = self.rulings.lock().values().map(|it| it.until).min();
        let ended = async {
            match ends {
                Some(second) => {
                    let left = Duration::from_secs(second.saturating_sub(now()));
                    tokio::time::sleep(left.max(Duration::from_millis(100))).await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.changed.notified() => {}
            () = ended => {
                let now = now();
                self.rulings.lock().retain(|_, it| it.until > now);
            }
        }
    }
}

#[cfg(test)]
mod tests;
