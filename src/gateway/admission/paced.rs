//! Waiting for one's turn in a `leaky_bucket`, and the room that is kept for it while the store
//! decides.

use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::super::outcomes::LimitOutcomes;
use super::super::pacing::{PacedCheck, PacedChecks, PacingReservation};
use super::super::queues::{DepthCount, QueueRejection};
use super::super::{Gateway, RequestGuard};
use crate::clock;
use crate::limit::Policy;

/// A limit in whose queue there is no room.
pub(super) struct FullQueue {
    /// An index into the checks.
    pub check: usize,
    pub rejection: QueueRejection,
}

impl Gateway {
    /// Keeps room in the queues of paced limits.
    ///
    /// # Errors
    /// If a limit has none, whatever the store says: after a stall the store counts requests as gone
    /// that still wait here.
    pub(super) fn reserve_pacing(
        &self,
        limits: &LimitOutcomes<'_, '_>,
    ) -> Result<SmallVec<[PacingReservation<'_>; 1]>, FullQueue> {
        let mut reservations = SmallVec::new();
        if !limits.planned.paces || !self.queues.pacing.is_used() {
            return Ok(reservations);
        }
        let now = clock::cached_now();
        for (index, check) in limits.planned.checks.iter().enumerate() {
            let Policy::LeakyBucket(policy) = *check.policy else { continue };
            if !check.enforced || !check.spends || check.cost > policy.burst() {
                continue;
            }
            let paced = PacedCheck { bucket: check.bucket, policy, cost: check.cost };
            let reserved = self.queues.pacing.reserve(&paced, now);
            reservations.extend(reserved.map_err(|wait| FullQueue {
                check: index,
                rejection: QueueRejection::TooLate(now + wait),
            })?);
        }
        Ok(reservations)
    }

    /// Has an admitted request wait its turn, if one of its limits lets them go one by one. Returns
    /// when that was, or `None` if there was nothing to wait for.
    pub(in crate::gateway) async fn pace(
        &self,
        guard: &RequestGuard,
        limits: &LimitOutcomes<'_, '_>,
        decided_at: Instant,
    ) -> Option<Instant> {
        let pacing = &self.queues.pacing;
        let (limit, delay) = match limits.pacing_delay() {
            Some(delayed) => delayed,
            // By the bucket it need not wait, but after a stall others may still be before it.
            None => {
                let (limit, _) = limits.paced().next().filter(|_| pacing.is_used())?;
                let buckets = limits.paced().map(|(_, paced)| paced.bucket);
                pacing.has(buckets, clock::now()).then_some((limit, Duration::ZERO))?
            }
        };
        let _waiting = guard.wait();
        let _depth = DepthCount::new(&limit.queue_depth);
        let paced: PacedChecks = limits.paced().map(|(_, paced)| paced).collect();
        pacing.join(decided_at + delay, paced).leave().await;
        Some(clock::now())
    }
}
