//! What belongs to one request and ends with it: slots that it holds, charges that wait for its
//! response, and the signals that it shares with its connection.
//!
//! The guard is made with the request and travels with the body of its answer. However the request
//! ends, it is dropped once: slots are released then, and charges that are still open are made. A
//! request that reached its upstream is charged by its response, also if its client has left; if there
//! was no response, it is charged the most that it can cost. One that did not reach its upstream is
//! charged as one whose client left.

use std::mem;
use std::rc::Rc;
use std::sync::Arc;

use http::{HeaderMap, Response, StatusCode};

use super::Gateway;
use super::compiled::{CompiledLimit, NamedBucket};
use super::in_flight::{InFlightSlot, RequestsInFlight};
use super::outcomes::OpenCharges;
use super::signals::{RequestSignals, WaitingMark};
use super::worker_config::WorkerConfig;
use crate::limit::trust::Score;
use crate::limit::{Cost, Policy};
use crate::respond::{Content, Fault};
use crate::store::{AnyStore, DeferredCheck, Store};
use crate::telemetry::CLIENT_GONE;

#[derive(Debug)]
pub struct RequestGuard {
    signals: Rc<RequestSignals>,
    /// Where the configuration bounds how many requests are under way.
    slot: Option<InFlightSlot>,
    /// Only of admitted requests that leave something to be done.
    pending: Option<Box<PendingCharges>>,
}

/// What is done once, whatever becomes of the request.
#[derive(Debug)]
struct PendingCharges {
    gateway: Rc<Gateway>,
    /// The configuration that the request was admitted by.
    config: Rc<WorkerConfig>,
    open: OpenCharges,
}

/// A charge that waits for the response.
#[derive(Debug)]
pub(super) struct DeferredCharge {
    /// What to charge if the response does not say so itself.
    pub charge: DeferredCheck,
    pub cost: Cost,
    /// The score that the request was admitted by.
    pub score: Score,
    /// An index into the limits of the configuration.
    pub limit: usize,
    /// The bucket of a tenant that is charged.
    pub tenant: Option<NamedBucket>,
}

/// What is known of a response.
#[derive(Debug, Clone, Copy)]
enum ResponseHead<'a> {
    Received(StatusCode, &'a HeaderMap),
    /// The upstream has the request, and there will be no response.
    Missing,
}

impl RequestGuard {
    pub(super) fn new(signals: Rc<RequestSignals>) -> Self {
        RequestGuard { signals, slot: None, pending: None }
    }

    /// Counts the request among those under way until it ends.
    ///
    /// # Errors
    /// If there are `max` already.
    pub(super) fn enter(
        &mut self,
        in_flight: &Arc<RequestsInFlight>,
        max: Option<usize>,
    ) -> Result<(), Fault> {
        if let Some(max) = max {
            self.slot = Some(in_flight.enter(max).ok_or(Fault::TooManyRequests)?);
        }
        Ok(())
    }

    pub(super) fn signals(&self) -> &RequestSignals {
        &self.signals
    }

    /// Tells the connection that the request waits, for as long as the mark lives.
    pub(super) fn wait(&self) -> WaitingMark<'_> {
        self.signals.wait()
    }

    /// Takes over what an admitted request leaves to be done.
    pub(super) fn keep(
        &mut self,
        gateway: &Rc<Gateway>,
        config: &Rc<WorkerConfig>,
        open: OpenCharges,
    ) {
        if !open.deferred.is_empty() {
            self.signals.expect_charge();
        }
        let (gateway, config) = (gateway.clone(), config.clone());
        self.pending = Some(Box::new(PendingCharges { gateway, config, open }));
    }

    /// Whether charges or slots are left to the guard.
    pub(super) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Whether the upstream has the request, and the client is why there is no response.
    pub(super) fn is_client_failure(&self, fault: Option<&Fault>) -> bool {
        let Some(fault) = fault else { return false };
        self.signals.awaits_charge()
            && (matches!(fault, Fault::Body(_)) || self.signals.client_has_left())
    }

    /// Makes the charges that waited for the response, and says which they were. If the client has
    /// prevented the response, they do not go by the one that stands in for it.
    pub(super) async fn charge(
        &mut self,
        response: &Response<Content>,
        client_failure: bool,
    ) -> Vec<DeferredCheck> {
        let Some(pending) = &mut self.pending else { return Vec::new() };
        let charges = pending.take_charges(match client_failure {
            true => ResponseHead::Missing,
            false => ResponseHead::Received(response.status(), response.headers()),
        });
        self.signals.note_charged();
        if charges.is_empty() {
            return charges;
        }
        AnyStore::charge_uncancellable(&pending.gateway.store, charges).await
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let Some(pending) = &mut self.pending else { return };
        let store = &pending.gateway.store.clone();
        if !pending.open.deferred.is_empty() {
            let gone = StatusCode::from_u16(CLIENT_GONE).unwrap_or(StatusCode::BAD_REQUEST);
            let nothing = HeaderMap::new();
            let charges = pending.take_charges(match self.signals.awaits_charge() {
                true => ResponseHead::Missing,
                false => ResponseHead::Received(gone, &nothing),
            });
            self.signals.note_charged();
            store.charge_detached(&charges);
        }
        let slots = &pending.open.slots;
        if !slots.is_empty() {
            store.release(slots);
            pending.gateway.queues.slots_freed(slots.iter().map(DeferredCheck::bucket));
        }
    }
}

impl PendingCharges {
    /// The charges that waited for the response, now that it is known or given up.
    fn take_charges(&mut self, response: ResponseHead<'_>) -> Vec<DeferredCheck> {
        let (config, deferred) = (&self.config, mem::take(&mut self.open.deferred));
        // After a reload the limit may have other numbers, and its buckets with it.
        let (served, tree) = (self.gateway.config.borrow(), self.gateway.tree.borrow());
        let charge = |deferred: DeferredCharge| {
            if let Some(name) = &deferred.tenant {
                let bucket = deferred.charge.bucket();
                let policy = served.compiled.tenants.policy_of(&tree, name, bucket);
                let policy = *policy.unwrap_or(deferred.charge.policy());
                return deferred.charge(config, policy, response);
            }
            let mut limit = &config.compiled.limits[deferred.limit];
            if !Rc::ptr_eq(config, &served) {
                let prefix = limit.default_variant.prefix;
                let same = |other: &&Arc<CompiledLimit>| other.default_variant.prefix == prefix;
                limit = served.compiled.limits.iter().find(same)?;
            }
            let charge = &deferred.charge;
            let policy = limit.policy_of(charge.limit_prefix(), charge.bucket(), deferred.score);
            let policy = *policy.unwrap_or(charge.policy());
            deferred.charge(config, policy, response)
        };
        deferred.into_iter().filter_map(charge).collect()
    }
}

impl DeferredCharge {
    /// The charge by the numbers that hold by now and what is known of the response. `None` if it
    /// costs nothing.
    fn charge(
        mut self,
        config: &WorkerConfig,
        policy: Policy,
        response: ResponseHead<'_>,
    ) -> Option<DeferredCheck> {
        let counted = config.compiled.limits[self.limit].limit.count.as_ref();
        match response {
            ResponseHead::Received(status, _) if counted.is_some_and(|it| !it.has(status)) => {
                return None;
            }
            ResponseHead::Received(_, headers) => {
                if let Some(cost) = self.cost.of_response(headers, policy.quota()) {
                    self.charge.cost = cost;
                }
            }
            // Or leaving early would be a way to pay less than the work has cost.
            ResponseHead::Missing if self.cost.is_of_response() => {
                self.charge.cost = self.cost.most(policy.quota());
            }
            ResponseHead::Missing => {}
        }
        (self.charge.cost > 0).then(|| self.charge.under(policy))
    }
}
