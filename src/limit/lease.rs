//! Leases: units that a gateway takes out of a shared bucket in advance, to spend them in memory. The
//! twin of `lua/outstanding.lua` and `lua/lease.lua`, and equal to them number for number.
//!
//! What is leased and has not been reported spent or returned is *outstanding*, and the bucket refills
//! only as far as leaves room for it. So at any instant level + outstanding is at most the burst,
//! and what any number of gateways admits in an interval comes from three places: what was left and
//! what was outstanding at its beginning, together no more than the burst, and what has refilled since,
//! no more than rate × t.
//!
//! A lease ends. What is outstanding then counts as spent: lost, and never spent twice, since the
//! gateway has stopped to spend it a little earlier ([`Policy::lease_amount`] and the gateway's side,
//! `store::hybrid`, have the rest).

use smallvec::SmallVec;

use super::fixed_window::Windows;
use super::wire::WireCost;
use super::{Policy, State, Verdict};
use crate::clock::Micros;

/// No lease lasts longer, in microseconds. One that seems to was made before the clock was set back.
pub const LONGEST_LEASE: u64 = 60_000_000;
/// Beyond so many grants of one bucket, two are merged into the later one.
const MOST_GRANTS: usize = 16;

/// What is outstanding until an instant, in what [`Policy::lease_amount`] counts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    pub until: Micros,
    pub amount: u64,
}

/// All grants of one bucket, in the order of their ends.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outstanding(SmallVec<[Grant; 4]>);

/// A shared bucket of which gateways hold leases.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeasedBucket {
    pub state: State,
    pub outstanding: Outstanding,
}

/// What a gateway asks of one bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRequest {
    /// For how many microseconds units are asked for; at most [`LONGEST_LEASE`] × 4 ÷ 5.
    pub life: u64,
    /// The grant that ends with this request.
    pub released: Option<Grant>,
    /// The units of it that go on in the new grant.
    pub kept: u64,
    /// The units of it that were not spent, and are not wanted any more.
    pub returned: u64,
    /// When those were charged.
    pub taken_at: Micros,
    /// These are taken one after another if they fit, up to the first that is enough.
    pub steps: SmallVec<[LeaseStep; 12]>,
}

/// So many units, if so many would pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseStep {
    pub units: u64,
    pub tested: u64,
    /// No further step is wanted then.
    pub is_enough: bool,
}

/// What it gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseReply {
    /// The instant of the exchange, on the store's clock.
    pub now: Micros,
    pub granted: u64,
    /// The new grant, if there is one.
    pub grant: Option<Grant>,
    /// Until when units were given; zero if none were, and none were kept.
    pub until: Micros,
    /// Whether the released grant was still there. If not, nothing of it is kept or returned.
    pub found: bool,
    /// The bucket afterwards.
    pub state: State,
}

impl Policy {
    /// Whether gateways may take units of its buckets in advance. A log and a sliding window give back
    /// what was spent at instants that depend on when it was, and slots are held.
    pub fn is_leasable(&self) -> bool {
        matches!(
            self,
            Policy::TokenBucket(_)
                | Policy::LeakyBucket(_)
                | Policy::RefillBucket(_)
                | Policy::FixedWindow(_)
        )
    }

    /// What comes back in a span of time at the limit's rate, in whole units.
    pub fn sustained(&self, span_us: u64) -> u64 {
        let at_rate = |count: u64, period_us: u64| {
            (u128::from(count) * u128::from(span_us) / u128::from(period_us)) as u64
        };
        match self {
            Policy::TokenBucket(it) => at_rate(it.rate().count(), it.rate().period_us()),
            Policy::LeakyBucket(it) => at_rate(it.rate().count(), it.rate().period_us()),
            Policy::RefillBucket(it) => at_rate(it.amount(), it.every_us()),
            Policy::FixedWindow(it) => match it.windows() {
                Windows::Every(rate) => at_rate(rate.count(), rate.period_us()),
                Windows::Calendar(_) => 0,
            },
            _ => 0,
        }
    }

    /// By what a refill is capped while so many units are outstanding: the time in which they refill, in
    /// microseconds and rounded up, or the units. A window refills nothing before it ends, so there is
    /// nothing to cap.
    pub fn lease_amount(&self, units: u64) -> u64 {
        match self {
            Policy::TokenBucket(it) => it.span(units).as_micros() as u64,
            Policy::LeakyBucket(it) => it.span(units).as_micros() as u64,
            Policy::RefillBucket(_) => units,
            _ => 0,
        }
    }

    /// A cost as the arguments of a check have it.
    pub fn wire_cost(&self, units: u64) -> WireCost {
        let units = self.bounded(units);
        match self {
            Policy::TokenBucket(it) => it.wire_cost(units),
            Policy::LeakyBucket(it) => it.bucket().wire_cost(units),
            _ => WireCost { cost: units, rest: 0 },
        }
    }

    /// The state, refilled no further at an instant than leaves room for so much that is outstanding.
    #[must_use]
    pub fn cap_refill(&self, state: State, at: Micros, amount: u64) -> State {
        match self {
            Policy::TokenBucket(it) => it.cap_refill(state, at, amount),
            Policy::LeakyBucket(it) => it.bucket().cap_refill(state, at, amount),
            Policy::RefillBucket(it) => it.cap_refill(state, at, amount),
            _ => state,
        }
    }
}

impl Outstanding {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn total(&self) -> u64 {
        self.0.iter().map(|grant| grant.amount).sum()
    }

    /// Reads what stands behind the text of a state: `L1794814089000000:5000 …`, with whatever else is
    /// behind it.
    pub fn parse(text: &str) -> Self {
        let grants = text.strip_prefix('L').unwrap_or_default();
        let grants = grants.split('|').next().unwrap_or_default().split(' ');
        let grant = |text: &str| {
            let (until, amount) = text.split_once(':')?;
            Some(Grant { until: Micros(until.parse().ok()?), amount: amount.parse().ok()? })
        };
        Outstanding(grants.filter_map(grant).collect())
    }

    /// False if it has ended, or was merged with a later one.
    fn release(&mut self, released: Grant) -> bool {
        let is_it = |it: &Grant| it.until == released.until && it.amount >= released.amount;
        let Some(at) = self.0.iter().position(is_it) else { return false };
        self.0[at].amount -= released.amount;
        if self.0[at].amount == 0 {
            self.0.remove(at);
        }
        true
    }

    fn add(&mut self, grant: Grant) {
        let at = self.0.iter().position(|it| it.until >= grant.until).unwrap_or(self.0.len());
        match self.0.get_mut(at) {
            Some(same) if same.until == grant.until => same.amount += grant.amount,
            _ => self.0.insert(at, grant),
        }
        if self.0.len() > MOST_GRANTS {
            let first = self.0.remove(0);
            self.0[0].amount += first.amount;
        }
    }
}

impl LeasedBucket {
    /// Brings the bucket to an instant: grants that have ended count as spent, and it is refilled no
    /// further than what is outstanding leaves room for. True if it had to be clamped.
    pub fn advance(&mut self, policy: &Policy, now: Micros) -> bool {
        let outstanding = self.expire(policy, now);
        let clamped = policy.clamp(self.state, now);
        let was_clamped = clamped != self.state;
        self.state = match outstanding {
            0 => clamped,
            // If that is more than the bucket holds by these numbers, it is empty.
            amount => policy.clamp(policy.cap_refill(clamped, now, amount), now),
        };
        was_clamped
    }

    /// Counts grants that have ended as spent. Returns what is still outstanding.
    fn expire(&mut self, policy: &Policy, now: Micros) -> u64 {
        let Outstanding(grants) = &mut self.outstanding;
        grants.iter_mut().for_each(|it| it.until = it.until.min(Micros(now.0 + LONGEST_LEASE)));
        let mut outstanding = grants.iter().map(|grant| grant.amount).sum();
        let ended = grants.iter().take_while(|grant| grant.until <= now).count();
        for grant in grants.drain(..ended) {
            self.state = policy.cap_refill(self.state, grant.until, outstanding);
            outstanding -= grant.amount;
        }
        outstanding
    }

    /// Decides one cost at an instant, as `lua/decide.lua` does: a refusal leaves the bucket as it is,
    /// unless it had to be clamped.
    pub fn decide(&mut self, policy: &Policy, now: Micros, cost: u64) -> bool {
        let mut next = self.clone();
        let was_clamped = next.advance(policy, now);
        let verdict = policy.evaluate(next.state, now, cost);
        if let Verdict::Admit(charged) = verdict {
            next.state = charged;
        }
        let is_admitted = matches!(verdict, Verdict::Admit(_));
        if was_clamped || is_admitted && cost > 0 {
            *self = next;
        }
        is_admitted
    }

    /// What `lua/lease.lua` does for one bucket.
    pub fn exchange(&mut self, policy: &Policy, now: Micros, asked: &LeaseRequest) -> LeaseReply {
        let mut next = self.clone();
        let was_clamped = next.advance(policy, now);
        if was_clamped && asked.steps.is_empty() {
            // It may be made by numbers that have been replaced: it asks for nothing, and clamps nothing.
            self.expire(policy, now);
        } else {
            *self = next;
        }
        let found = asked.released.is_none_or(|released| {
            let until = released.until.min(Micros(now.0 + LONGEST_LEASE));
            self.outstanding.release(Grant { until, ..released })
        });
        let taken_at = asked.wire_taken_at(policy).unwrap_or(now);
        if asked.returned > 0 && found && !was_clamped {
            self.state = policy.refund(self.state, now, asked.returned, taken_at);
        }
        // A grant that has ended counts as spent, so nothing of it is kept: the bucket may have been full
        // since.
        let mut amount = if found { policy.lease_amount(asked.kept) } else { 0 };
        let mut granted = 0;
        for step in &asked.steps {
            if let Verdict::Admit(_) = policy.evaluate(self.state, now, step.tested)
                && let Verdict::Admit(charged) = policy.evaluate(self.state, now, step.units)
            {
                self.state = charged;
                granted += step.units;
                amount += policy.lease_amount(step.units);
                if step.is_enough {
                    break;
                }
            }
        }
        let mut until = Micros(0);
        if granted > 0 || amount > 0 {
            let quantum = asked.life.div_ceil(4);
            let ends = now.0 + asked.life;
            until = Micros(ends - ends % quantum + quantum);
        }
        let grant = (amount > 0).then_some(Grant { until, amount });
        grant.into_iter().for_each(|grant| self.outstanding.add(grant));
        let state = self.state;
        if state.ends_at <= now && self.outstanding.is_empty() {
            // A full bucket equals none.
            self.state = State::default();
        }
        LeaseReply { now, granted, grant, until, found, state }
    }
}

impl LeaseRequest {
    /// When what is returned was charged, if that matters: what is returned to a bucket is still
    /// outstanding, so it counts as charged now. A window that has passed takes its charges with it.
    pub fn wire_taken_at(&self, policy: &Policy) -> Option<Micros> {
        matches!(policy, Policy::FixedWindow(_)).then_some(self.taken_at)
    }
}

#[cfg(test)]
mod tests;
