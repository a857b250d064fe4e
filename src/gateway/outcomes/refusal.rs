//! The answer to a request that one of its limits refused.

use std::mem;

use std::cmp::Reverse;

use http::HeaderMap;
use siphasher::sip::SipHasher13;
use smallvec::SmallVec;

use super::{LimitOutcome, LimitOutcomes};
use crate::clock::Micros;
use crate::respond::rate_headers::retry_at;
use crate::respond::refusal::{self, Refusal, RefusingLimit};
use crate::respond::{Answer, RateHeaders, grpc};

impl<'a> LimitOutcomes<'_, 'a> {
    /// The limits that refused, the one that refuses for longest first.
    pub(crate) fn refusing(&self) -> SmallVec<[LimitOutcome<'a, '_>; 4]> {
        let mut refusing: SmallVec<[LimitOutcome<'a, '_>; 4]> = SmallVec::new();
        refusing.extend(self.iter().filter(LimitOutcome::refuses));
        refusing.sort_by_key(|it| Reverse(it.outcome.refused));
        refusing
    }

    /// The error word of the refusal.
    pub(crate) fn refusal_error(&self, now: Micros) -> &'static str {
        refusal::error(retry_at(self.enforced(), now))
    }

    /// Writes the answer, which has nothing in it yet. `headers` are those of the request; their map
    /// is used again. `jitter` is in thousandths of the wait.
    pub(crate) fn refuse(
        &self,
        rate: RateHeaders,
        now: Micros,
        jitter: u16,
        headers: &mut HeaderMap,
        answer: &mut Answer,
    ) {
        let is_grpc = grpc::is_grpc(headers);
        let refusing = self.refusing();
        let limits = refusing.iter().map(|it| RefusingLimit {
            text: &it.limit.refusal_text,
            policy_text: &it.numbers.text,
            algorithm: it.check.policy.algorithm(),
        });
        let retry_at = retry_at(self.enforced(), now);
        let advertised_at = retry_at.map(|at| self.add_jitter(at, now, jitter));
        let refusal = Refusal { limits, now, retry_at, advertised_at, is_grpc };
        let rate = rate.refusing(advertised_at);
        headers.clear();
        mem::swap(answer.response.headers_mut(), headers);
        refusal.write_to(answer);
        rate.write(self.applied(), answer.response.headers_mut(), &mut answer.fields);
    }

    /// An instant later by up to so many thousandths of the wait. How much follows from the key
    /// alone, so that clients that were refused together do not come back together, and asking
    /// again does not help.
    fn add_jitter(&self, at: Micros, now: Micros, jitter: u16) -> Micros {
        if jitter == 0 {
            return at;
        }
        let Some(LimitOutcome { check, .. }) = self.iter().find(LimitOutcome::refuses) else {
            return at;
        };
        let wait = u128::from(at.0.saturating_sub(now.0));
        // The id of a bucket differs between gateways; its key in a shared store does not.
        let share = match &self.planned.keys.view().get(check.key).text()[..] {
            [] => u128::from(check.bucket.0 as u32),
            key => u128::from(SipHasher13::new().hash(key) as u32),
        };
        Micros(at.0 + (wait * u128::from(jitter) * share / (1_000 << 32)) as u64)
    }
}
