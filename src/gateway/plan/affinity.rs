//! What a request is hashed by, where an upstream's servers are chosen by that.
//!
//! It is read as keys of limits are. But no request is refused for it: one that does not have it, or
//! has it twice, goes to whichever server has the least to do.

use crate::config::Settings;
use crate::config::settings::{Balance, Route, Target};
use crate::limit::source::KeyInput;
use crate::limit::{Key, Missing};
use crate::upstream::{KeyDigest, KeyHasher};

/// By what the servers of a route's upstreams are chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteAffinity {
    target: Option<Key>,
    /// Of the upstream for degraded requests.
    degraded: Option<Key>,
}

/// The same of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestAffinity {
    pub target: Option<KeyDigest>,
    pub degraded: Option<KeyDigest>,
}

impl RouteAffinity {
    /// `None` if neither upstream hashes.
    pub fn new(route: &Route, settings: &Settings) -> Option<Self> {
        let key = |target: Option<&Target>| match target {
            Some(Target::Upstream(index)) => match &settings.upstreams[*index].balance {
                Balance::Hash(source) => Some(Key(vec![source.clone()])),
                _ => None,
            },
            _ => None,
        };
        let (target, degraded) = (key(Some(&route.target)), key(route.degrade.as_ref()));
        let hashes = target.is_some() || degraded.is_some();
        hashes.then_some(RouteAffinity { target, degraded })
    }

    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.target.iter().chain(&self.degraded)
    }

    pub(super) fn of(&self, input: &KeyInput<'_>) -> RequestAffinity {
        let digest = |key: &Key| {
            let mut hasher = KeyHasher::new();
            let parts =
                key.parts(input, Missing::Skip, |kind, bytes| hasher.part(kind as u8, bytes));
            parts.ok().map(|()| hasher.finish())
        };
        RequestAffinity {
            target: self.target.as_ref().and_then(digest),
            degraded: self.degraded.as_ref().and_then(digest),
        }
    }
}
