//! What a request says of its user, for limits that go by trust. Routes without one count nothing.

use http::StatusCode;

use super::Gateway;
use super::plan::{AcceptedInputs, PlannedTrust, Planner, RequestHead, RequestPlan};
use crate::trust::UserEvent;

impl Gateway {
    /// Notes which score a user has, if that is news.
    pub(super) fn note_score(
        &self,
        planner: Planner<'_>,
        plan: &RequestPlan<'_>,
        head: RequestHead<'_, '_>,
        inputs: AcceptedInputs<'_>,
    ) {
        if let Some(PlannedTrust { user: Some(user), score, is_news: true, .. }) = plan.trust {
            self.trust.introduce(user, score, || plan.trust_name(planner, head, inputs));
        }
    }

    /// Counts that a request was an offence, and goes on.
    pub(super) fn count_offence(&self, trust: Option<&PlannedTrust>) {
        self.count_event(trust, UserEvent::Violation);
    }

    /// Counts that a request was refused. Its answer says nothing more of the user.
    pub(super) fn count_refusal(&self, trust: &mut Option<PlannedTrust>) {
        self.count_event(trust.take().as_ref(), UserEvent::Violation);
    }

    /// Counts what an answer says of the user.
    pub(super) fn count_answer(&self, trust: Option<&PlannedTrust>, status: StatusCode) {
        if trust.is_some() {
            self.count_event(trust, UserEvent::of_status(status));
        }
    }

    fn count_event(&self, trust: Option<&PlannedTrust>, event: UserEvent) {
        if let Some(user) = trust.and_then(|it| it.user) {
            self.trust.count(user, event);
        }
    }
}
