//! What an admitted request leaves to be done: charges that wait for its response, and places that
//! it holds until it has ended.
//!
//! Whatever becomes of the request, both happen once. A request that reached its upstream is charged
//! by its response, though its client has left; if it never came to one, it is charged as the dearest
//! there can be. One that did not get there is charged as one whose client left.

use std::mem;
use std::rc::Rc;

use http::{HeaderMap, StatusCode};

use super::Gateway;
use super::live::Live;
use super::rule::Rule;
use crate::caller::Peer;
use crate::limit::Cost;
use crate::store::{AnyStore, Lasting, Store};
use crate::telemetry::CLIENT_GONE;

#[derive(Debug)]
pub struct Dues {
    gateway: Rc<Gateway>,
    /// The configuration that the request was admitted by.
    live: Rc<Live>,
    /// Who knows whether the upstream has the request.
    peer: Rc<Peer>,
    held: Vec<Lasting>,
    later: Vec<Due>,
}

/// A charge that waits for the response.
#[derive(Debug)]
pub struct Due {
    /// What to charge if the response does not say so itself.
    pub charge: Lasting,
    pub cost: Cost,
    /// An index into the limits, for the outcomes that count.
    pub rule: usize,
}

/// What is known of a response.
#[derive(Debug, Clone, Copy)]
enum Heard<'a> {
    Head(StatusCode, &'a HeaderMap),
    /// The upstream has the request, and nothing more will be heard of it.
    Nothing,
}

impl Due {
    /// The charge, now that the response is known or given up.
    fn charge(mut self, live: &Live, heard: Heard<'_>) -> Option<Lasting> {
        let count = live.shared.limits[self.rule].limit.count.as_ref();
        match heard {
            Heard::Head(status, _) if count.is_some_and(|outcomes| !outcomes.has(status)) => {
                return None;
            }
            Heard::Head(_, headers) => {
                if let Some(told) = self.cost.of_response(headers) {
                    self.charge.cost = told;
                }
            }
            // Or leaving early would be a way to pay less than the work has cost.
            Heard::Nothing if self.cost.is_of_response() => self.charge.cost = self.cost.most(),
            Heard::Nothing => {}
        }
        (self.charge.cost > 0).then_some(self.charge)
    }
}

impl Dues {
    #[must_use]
    pub fn new(
        gateway: Rc<Gateway>,
        live: Rc<Live>,
        peer: Rc<Peer>,
        (held, later): (Vec<Lasting>, Vec<Due>),
    ) -> Self {
        if !later.is_empty() {
            peer.expect_charge();
        }
        Dues { gateway, live, peer, held, later }
    }

    /// Whether places are held until the request has ended.
    #[must_use]
    pub fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// Makes the charges that waited for the response, and says which they were.
    pub async fn settle(&mut self, status: StatusCode, headers: &HeaderMap) -> Vec<Lasting> {
        let charges = self.charges(Heard::Head(status, headers));
        self.charge(charges).await
    }

    /// The same where the client has seen to it that there is no response.
    pub async fn settle_unheard(&mut self) -> Vec<Lasting> {
        let charges = self.charges(Heard::Nothing);
        self.charge(charges).await
    }

    async fn charge(&self, charges: Vec<Lasting>) -> Vec<Lasting> {
        if charges.is_empty() {
            return charges;
        }
        AnyStore::owe_surely(&self.gateway.store, charges).await
    }

    fn charges(&mut self, heard: Heard<'_>) -> Vec<Lasting> {
        let (live, later) = (&self.live, mem::take(&mut self.later));
        self.peer.note_charged();
        // The limit may have other numbers by now, and its buckets with it.
        let now = self.gateway.live.borrow().clone();
        let charge = |due: Due| {
            let mut rule = &live.shared.limits[due.rule];
            if !Rc::ptr_eq(live, &now) {
                let same = |other: &&Rule| other.own.prefix == rule.own.prefix;
                rule = now.shared.limits.iter().find(same)?;
            }
            let policy = rule.policy_of(due.charge.limit(), due.charge.bucket());
            let policy = *policy.unwrap_or(due.charge.policy());
            Some(due.charge(live, heard)?.under(policy))
        };
        later.into_iter().filter_map(charge).collect()
    }
}

impl Drop for Dues {
    fn drop(&mut self) {
        if !self.later.is_empty() {
            let gone = StatusCode::from_u16(CLIENT_GONE).unwrap_or(StatusCode::BAD_REQUEST);
            let nothing = HeaderMap::new();
            let charges = self.charges(match self.peer.awaits_charge() {
                true => Heard::Nothing,
                false => Heard::Head(gone, &nothing),
            });
            self.gateway.store.owe_unheard(&charges);
        }
        if !self.held.is_empty() {
            self.gateway.store.release(&self.held);
            self.gateway.queues.freed(self.held.iter().map(Lasting::bucket));
        }
    }
}
