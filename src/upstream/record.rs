//! What is known of one connection to a server, from its opening to its end.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::Instant;

use super::slots::{ConnectionSlot, UrgentClaim};

#[derive(Debug)]
pub(crate) struct ConnectionRecord {
    /// Where it leads, if the server has a name that may come to mean something else.
    pub(super) address: Option<SocketAddr>,
    expires: Option<Instant>,
    slot: Option<ConnectionSlot>,
}

impl ConnectionRecord {
    /// `number` tells connections apart: those that were opened together do not all end together.
    pub(super) fn new(
        address: Option<SocketAddr>,
        max_age: Option<Duration>,
        slot: Option<ConnectionSlot>,
        number: u64,
    ) -> Self {
        let earlier = |age: Duration| age.mul_f64((number % 64) as f64 / 640.0);
        let expires = max_age.map(|age| Instant::now() + (age - earlier(age)));
        ConnectionRecord { address, expires, slot }
    }

    /// Whether it is too old to be used again.
    #[inline]
    pub(super) fn is_expired(&self, now: Instant) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    /// It takes requests again.
    pub(super) fn note_taken_back(&self) {
        if let Some(slot) = &self.slot {
            slot.release_claim();
        }
    }

    pub(super) fn has_slot(&self) -> bool {
        self.slot.is_some()
    }

    /// Claims to be one of those that are too many since a reload. If it is, it has to go.
    pub(super) fn claim_recall(&self) -> bool {
        self.slot.as_ref().is_some_and(ConnectionSlot::claim_recall)
    }

    /// Its connection was retired because requests of other workers wait.
    pub(super) fn note_retired_for(&self, claim: UrgentClaim) {
        claim.hold_until_free(self.slot.as_ref());
    }

    /// The same for a server that `is_limited` in their number. One that was opened before it was so is too
    /// many as well.
    #[inline]
    pub(super) fn claim_excess(&self, is_limited: impl FnOnce() -> bool) -> bool {
        match &self.slot {
            Some(slot) => slot.claim_recall(),
            None => is_limited(),
        }
    }
}
