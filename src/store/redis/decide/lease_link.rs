//! Taking units of buckets in advance, over a worker's connection: for the store `hybrid`.

use std::rc::Rc;
use std::time::Duration;

use redis::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::refunds::{Charged, Refund};
use super::worker_link::WorkerLink;
use crate::clock;
use crate::limit::lease::LeaseReply;
use crate::store::hybrid::lease_table::{LeaseAsk, StrandedCost};
use crate::store::redis::connect::hash_slot::group_by_hash_slot;
use crate::store::redis::connect::session::Session;
use crate::store::redis::wire::check_args::CallContext;
use crate::store::redis::wire::lease_call::{self, LeaseCall};
use crate::store::redis::wire::reply;
use crate::store::redis::wire::script;

#[derive(Debug, Clone)]
pub(in crate::store) struct LeaseLink {
    link: Rc<WorkerLink>,
    sessions: watch::Receiver<Option<Session>>,
}

impl LeaseLink {
    pub(in crate::store::redis) fn new(link: Rc<WorkerLink>) -> Self {
        let sessions = link.sessions();
        LeaseLink { link, sessions }
    }

    /// Whether the connection is another one than it was the last time: it may lead to another server,
    /// or to one that has lost its data.
    pub(in crate::store) fn is_another(&mut self) -> bool {
        let is_another = self.sessions.has_changed().unwrap_or(false);
        self.sessions.mark_unchanged();
        is_another
    }

    /// Whether Redis is there and decides.
    pub(in crate::store) fn is_usable(&self) -> bool {
        self.link.live_now().is_some()
    }

    /// How long a decision may take.
    pub(in crate::store) fn timeout(&self) -> Duration {
        self.link.shared.timeout
    }

    /// What goes into one call each.
    pub(in crate::store) fn group_by_slot(&self, asks: Vec<LeaseAsk>) -> Vec<Vec<LeaseAsk>> {
        let slot_of = |ask: &LeaseAsk| self.link.shared.slot_of(&ask.key);
        let groups = group_by_hash_slot(asks, slot_of);
        groups.into_iter().map(|group| group.items.into_vec()).collect()
    }

    /// Makes one call, whose buckets are all of one hash slot. `None` if there is no reply in time: then it
    /// is not known what became of it.
    pub(in crate::store) async fn lease(
        &self,
        asks: &[LeaseAsk],
        deadline: Instant,
    ) -> Option<Vec<LeaseReply>> {
        let session = self.link.live_now()?;
        let slot = self.link.shared.slot_of(&asks.first()?.key);
        let calls: Vec<LeaseCall<'_>> = asks.iter().map(LeaseAsk::call).collect();
        let expires = match session {
            Session::Single(_) => self.link.server_clock.get().at(deadline),
            Session::Cluster(_) => None,
        };
        let context = CallContext { deadline: expires, ..self.link.call_context() };
        self.link.shared.calls.inc();
        let command = |form| lease_call::call(&calls, &script::LEASE, form, context);
        let sent = clock::now();
        match session.run(slot, deadline, command).await {
            Ok(Value::BulkString(bytes)) => {
                self.hear_clock(&session, &bytes, sent);
                lease_call::replies(&bytes, &calls).ok().flatten()
            }
            // What fails here fails for decisions, too, which is where it is noticed.
            _ => None,
        }
    }

    /// Every reply begins with the time of the server. On a cluster each has its own.
    fn hear_clock(&self, session: &Session, bytes: &[u8], sent: Instant) {
        if let (Session::Single(_), Some((now, _))) = (session, reply::instant(bytes)) {
            let received = clock::now();
            self.link.shared.clock.steer(now, sent, received);
            let mut clock = self.link.server_clock.get();
            clock.update(now, sent, received);
            self.link.server_clock.set(clock);
        }
    }

    /// Remembers what was heard of a bucket by a call that was sent then, in case Redis fails. It may go
    /// unheard for `max_unheard`.
    pub(in crate::store) fn note(
        &self,
        ask: &LeaseAsk,
        reply: &LeaseReply,
        sent: Instant,
        max_unheard: Duration,
    ) {
        self.link.note_leased(ask.bucket, &ask.policy, reply, sent, max_unheard);
    }

    /// Refunds a cost that was spent from a lease which has ended, for a request that was not admitted.
    pub(in crate::store) fn refund(&self, stranded: StrandedCost) {
        let StrandedCost { key, policy, cost, charged_at } = stranded;
        let slot = self.link.shared.slot_of(&key);
        let charged = Charged { name: key.to_vec(), policy, cost, pair: None };
        self.link.refund(charged_at, Refund { slot, charges: vec![charged] });
    }
}
