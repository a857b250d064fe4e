//! One lease: units of a bucket that this worker may spend without asking.
//!
//! **Why it never spends what is not outstanding.** `unspent` and `held` together are never more than
//! the grant that Redis knows of, and nothing is spent once the lease has ended here, which it
//! does before it ends there: this worker counts from before it asked, Redis from when it gave. What a
//! call returns is taken out of `unspent` before it is sent. If a reply is lost, the grant may be the
//! old one or a new one, both of which cover what is left here until the old end: it is spent until
//! then, and never reported again.

use std::rc::Rc;

use super::demand::Demand;
use super::timing::{LONGEST_DRY, LeaseTiming};
use crate::clock::Micros;
use crate::limit::lease::{Grant, LeaseReply, LeaseRequest};
use crate::limit::{Policy, Retry, State, Verdict};

#[derive(Debug)]
pub(super) struct Lease {
    /// Tells apart leases of the same bucket that follow each other.
    pub(super) id: u64,
    pub(super) policy: Policy,
    /// The bucket's key in Redis.
    pub(super) key: Rc<[u8]>,
    pub(super) demand: Demand,
    pub(super) phase: Phase,
    /// The bucket has other numbers by now.
    pub(super) is_outdated: bool,
    /// What may be spent.
    unspent: u64,
    /// What was spent for requests that are not decided yet, and may come back.
    held: u64,
    /// How often all that was held was lost: what was held before does not come back.
    pub(super) losses: u64,
    /// The first instant at which nothing may be spent any more, by the clock of this process.
    ends: Micros,
    /// When the window ends that the units are of, by the clock of Redis.
    window_ends: Micros,
    /// What Redis knows to be outstanding. None if there is nothing, or it is not certain.
    grant: Option<Grant>,
    /// It is not certain what Redis knows: what is left here is spent, and not reported.
    is_orphan: bool,
    /// Below this, more is asked for.
    low_water: u64,
    heard: Heard,
    /// The bucket was empty when it was last heard of: it is not asked again before this.
    dry_until: Micros,
    /// There was something, but nothing to take in advance: Redis decides until then.
    unleased_until: Micros,
}

/// When a call was sent and its reply was there, by the clock of this process.
#[derive(Debug, Clone, Copy)]
pub struct CallSpan {
    pub sent: Micros,
    pub received: Micros,
}

/// What was last heard of the bucket.
#[derive(Debug, Clone, Copy, Default)]
struct Heard {
    state: State,
    /// When that was, by the clock of Redis, and when it was heard here.
    now: Micros,
    received: Micros,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Quiet,
    /// It is on the list of those that are asked for next.
    Due,
    /// A call is on its way.
    Asked,
}

/// What a lease says of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spend {
    /// The cost is spent. The bucket as it was last heard of, once it was.
    Spent(LeaseView),
    /// The bucket is empty as far as is known, and is not asked again yet.
    Refused(Retry, LeaseView),
    /// More is being asked for: it is worth waiting for.
    Awaited,
    /// There is no lease that would serve it.
    Unleased,
}

/// A bucket as it was last heard of, without what has been taken of it in advance and is not spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseView {
    pub state: State,
    /// What the clock of Redis shows at the earliest.
    pub now: Micros,
}

impl Lease {
    pub(super) fn new(id: u64, policy: &Policy, key: Vec<u8>, demand: Demand) -> Self {
        Lease {
            id,
            policy: *policy,
            key: key.into(),
            demand,
            phase: Phase::Quiet,
            is_outdated: false,
            unspent: 0,
            held: 0,
            losses: 0,
            ends: Micros(0),
            window_ends: Micros(0),
            grant: None,
            is_orphan: false,
            low_water: 0,
            heard: Heard::default(),
            dry_until: Micros(0),
            unleased_until: Micros(0),
        }
    }

    /// Spends a cost if it is there. `Awaited` means that more has to be asked for.
    #[inline]
    pub(super) fn spend(&mut self, cost: u64, now: Micros) -> Spend {
        if cost <= self.unspent && now < self.ends {
            self.unspent -= cost;
            return Spend::Spent(self.view(now));
        }
        if now < self.unleased_until {
            return Spend::Unleased;
        }
        if now < self.dry_until && cost > 0 {
            let view = self.view(now);
            return Spend::Refused(self.retry(cost, view), view);
        }
        Spend::Awaited
    }

    /// Gives back what was just spent.
    pub(super) fn unspend(&mut self, cost: u64) {
        self.unspent += cost;
        self.demand.remove(cost);
    }

    /// Whether more should be asked for, though there is some left.
    #[inline]
    pub(super) fn is_low(&self, now: Micros) -> bool {
        self.unspent < self.low_water && now >= self.dry_until.max(self.unleased_until)
    }

    /// Whether there is nothing, and nothing was ever given: requests are better decided by Redis.
    pub(super) fn is_new(&self) -> bool {
        self.heard.now == Micros(0)
    }

    pub(super) fn view(&self, now: Micros) -> LeaseView {
        let unspent = if self.is_live(now) { self.unspent + self.held } else { 0 };
        let (state, now) = (self.heard.state, self.redis_time(now));
        LeaseView { state: self.policy.refund(state, now, unspent, now), now }
    }

    /// Redis has told of the bucket beside this lease.
    pub(super) fn hear(&mut self, view: LeaseView, received: Micros) {
        if view.now > self.heard.now {
            self.heard = Heard { state: view.state, now: view.now, received };
        }
    }

    /// What the clock of Redis shows at an instant here, at the earliest.
    pub(super) fn redis_time(&self, now: Micros) -> Micros {
        let Heard { now: heard_at, received, .. } = self.heard;
        Micros(heard_at.0 + now.0.saturating_sub(received.0))
    }

    /// When a cost may pass again, as far as is known: not before the bucket is asked for again.
    fn retry(&self, cost: u64, view: LeaseView) -> Retry {
        let asked_again = Retry::At(self.redis_time(self.dry_until));
        match self.policy.evaluate(view.state, view.now, cost) {
            Verdict::Refuse(retry) => retry.max(asked_again),
            Verdict::Admit(_) => asked_again,
        }
    }

    /// What was just spent may come back.
    pub(super) fn hold(&mut self, cost: u64) {
        self.held += cost;
    }

    /// A request for which a cost was held has been decided.
    pub(super) fn conclude(&mut self, cost: u64, admitted: bool) {
        self.held -= cost;
        if !admitted {
            self.unspent += cost;
        }
    }

    /// Whether what is held can come back here: after the end it is lost.
    pub(super) fn is_live(&self, now: Micros) -> bool {
        now < self.ends
    }

    pub(super) fn is_dry(&self, now: Micros) -> bool {
        self.unspent == 0 && now < self.dry_until
    }

    pub(super) fn unspent(&self) -> u64 {
        self.unspent
    }

    pub(super) fn unspent_or_held(&self) -> u64 {
        self.unspent + self.held
    }

    /// Whether what is left of it goes back.
    pub(super) fn is_unwanted(&self) -> bool {
        self.is_outdated || self.demand.is_idle()
    }

    /// Whether it can be forgotten: nothing is left of it, here or in Redis.
    pub(super) fn is_over(&self, now: Micros) -> bool {
        let spent = self.unspent + self.held == 0 || now >= self.ends;
        self.phase != Phase::Asked && spent && self.grant.is_none()
    }

    /// Whether it ends before the next ticks are over.
    pub(super) fn ends_soon(&self, now: Micros, timing: LeaseTiming) -> bool {
        self.grant.is_some() && now.0 + 2 * timing.tick >= self.ends.0
    }

    /// Whether there is far more than is asked for.
    pub(super) fn is_too_much(&self) -> bool {
        self.unspent > self.demand.per_interval().max(1).saturating_mul(12)
    }

    /// What to ask of Redis: to go on, with more, or to return what nobody wants.
    pub(super) fn request(&mut self, now: Micros, timing: LeaseTiming) -> LeaseRequest {
        self.phase = Phase::Asked;
        if now >= self.ends {
            // Redis may have counted it as spent.
            self.forget();
        }
        let (mut returned, returns) = (0, self.is_unwanted());
        if returns {
            returned = self.unspent;
        } else if self.is_too_much() {
            returned = self.unspent.saturating_sub(self.demand.per_interval().saturating_mul(3));
        }
        let has_grants = self.policy.lease_amount(1) > 0;
        let is_certain = !self.is_orphan && (self.grant.is_some() || !has_grants);
        if !is_certain {
            // What Redis does not know of cannot be returned.
            returned = 0;
        }
        self.unspent -= returned;
        let kept = if is_certain { self.unspent + self.held } else { 0 };
        let steps = match returns {
            true => smallvec::SmallVec::new(),
            false => self.demand.steps(&self.policy, kept, timing),
        };
        let (released, taken_at) = (self.grant, self.heard.now);
        LeaseRequest { life: timing.life, released, kept, returned, taken_at, steps }
    }

    /// Takes over what was given.
    pub(super) fn apply(
        &mut self,
        asked: &LeaseRequest,
        reply: &LeaseReply,
        times: CallSpan,
        timing: LeaseTiming,
    ) {
        self.phase = Phase::Quiet;
        let CallSpan { sent, received } = times;
        let LeaseReply { now, granted, grant, found, state, .. } = *reply;
        let is_kept = match self.policy {
            // Units of a window are worth nothing in the next.
            Policy::FixedWindow(_) => state.ends_at == self.window_ends,
            _ => found && asked.released.is_some(),
        };
        if !is_kept || self.is_orphan {
            self.forget();
        }
        self.is_orphan = false;
        self.unspent += granted;
        self.window_ends = state.ends_at;
        self.grant = grant;
        let mut span = timing.life;
        if let Policy::FixedWindow(_) = self.policy {
            span = state.ends_at.0.saturating_sub(now.0);
        }
        self.ends = Micros(sent.0 + LeaseTiming::surely_within(span));
        self.low_water = self.unspent / 4;
        self.heard = Heard { state, now, received };
        (self.dry_until, self.unleased_until) = (Micros(0), Micros(0));
        if granted == 0 && !self.is_unwanted() {
            self.unleased_until = Micros(received.0 + timing.sync);
        }
        if let Verdict::Refuse(retry) = self.policy.evaluate(state, now, 1) {
            let wait = match retry {
                Retry::At(at) => at.0.saturating_sub(now.0),
                Retry::Never => 0,
            };
            // Others may return what they have taken in advance, so that is not believed for long.
            let wait = wait.min(LONGEST_DRY);
            let wait = wait.max(self.demand.wait_near_limit(&self.policy, timing));
            (self.dry_until, self.unleased_until) = (Micros(received.0 + wait), Micros(0));
        }
    }

    /// It is not certain any more what Redis knows of it: see the top of the file.
    pub(super) fn orphan(&mut self) {
        (self.grant, self.low_water, self.is_orphan) = (None, 0, true);
    }

    /// There will be no reply to a question: Redis decides for a while, and shows what is wrong.
    pub(super) fn lose_reply(&mut self, now: Micros, timing: LeaseTiming) {
        self.phase = Phase::Quiet;
        self.orphan();
        self.leave_to_redis(now, timing);
    }

    /// Nobody waits for this lease for an interval. What is left of it is spent first.
    pub(super) fn leave_to_redis(&mut self, now: Micros, timing: LeaseTiming) {
        self.unleased_until = Micros(now.0 + timing.sync);
    }

    /// What was left is lost, and so is all that was held.
    fn forget(&mut self) {
        (self.unspent, self.held, self.grant) = (0, 0, None);
        self.losses += 1;
    }
}
