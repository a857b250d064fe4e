//! How far the caller of a request is trusted, on routes with a limit that goes by that.

use crate::caller::identity::FoundNames;
use crate::clock::Micros;
use crate::limit::key::Part;
use crate::limit::source::RequestFacts;
use crate::limit::trust::{Score, TrustFacts, age_days};
use crate::store::{BucketId, key_format};

use super::{AcceptedInputs, Planner, RequestHead, RequestPlan, facts};

/// The score of a request's caller, and why it is that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedTrust {
    pub score: Score,
    pub reason: ScoreReason,
    /// The user that the outcome is counted for. `None` if the request has none.
    pub user: Option<BucketId>,
    /// Whether nobody has noted yet that the user has this score.
    pub is_news: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScoreReason {
    /// The record of the client says it.
    ClientRecord,
    /// A claim of the token says it.
    Claim,
    /// It was worked out from these.
    Formula(TrustFacts),
    /// There is no user, and so no trust.
    NoUser,
}

impl PlannedTrust {
    pub(super) fn of(
        planner: Planner<'_>,
        facts: &RequestFacts<'_>,
        found: &FoundNames<'_, '_>,
    ) -> Self {
        let user = found.names.user.as_deref().map(|name| id(planner, name));
        let now = planner.trust.now();
        let known = user.and_then(|user| planner.trust.look_up(user, now));
        let settings = &planner.compiled.settings.trust;
        let claim = |name: &Option<String>| facts.claims?.claim(name.as_deref()?);
        let any_claim = |name: &Option<String>| facts.claims?.any_claim(name.as_deref()?);
        let (score, reason) = if let Some(score) = found.trust {
            (score, ScoreReason::ClientRecord)
        } else if user.is_none() {
            (Score::ZERO, ScoreReason::NoUser)
        } else if let Some(score) = any_claim(&settings.score) {
            (Score::parse(&score), ScoreReason::Claim)
        } else {
            let facts = TrustFacts {
                age_days: claim(&settings.account_created)
                    .map_or(0, |created| age_days(&created, seconds(now))),
                email_verified: claim(&settings.email_verified).is_some_and(|it| it == "true"),
                // Of a user that nobody knows here yet, only what its token says counts.
                sums: known.map(|known| known.sums).unwrap_or_default(),
            };
            (settings.weights.score(&facts), ScoreReason::Formula(facts))
        };
        let is_news = user.is_some() && known.is_none_or(|known| known.score != score);
        PlannedTrust { score, reason, user, is_news }
    }
}

fn seconds(now: Micros) -> u64 {
    now.0 / 1_000_000
}

/// The user's id in the table of this process.
fn id(planner: Planner<'_>, user: &[u8]) -> BucketId {
    let mut id = planner.hasher.start(planner.compiled.trust_prefix);
    id.part(Part::User as u8, user);
    id.finish()
}

impl RequestPlan<'_> {
    /// The name of the user's record in a store that gateways share; empty where there is none. Made on
    /// demand, from the same inputs as the plan.
    pub fn trust_name(
        &self,
        planner: Planner<'_>,
        head: RequestHead<'_, '_>,
        inputs: AcceptedInputs<'_>,
    ) -> Vec<u8> {
        let host = planner.counted_host(&self.route);
        let found = planner.names(&self.route, &facts(head, &host, inputs)).unwrap_or_default();
        let prefix = planner.compiled.settings.store.kind.key_prefix();
        match (prefix, found.names.user.as_deref()) {
            (Some(prefix), Some(user)) => key_format::trust_name(prefix, user),
            _ => Vec::new(),
        }
    }
}
