//! One violation, with every name in it bounded, so that a line has a bounded length.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::clock::{Micros, unix_time};
use crate::limit::Policy;
use crate::limit::guard::GuardStage;

/// As much of a caller's name as is kept: a client may send any length.
const MAX_NAME: usize = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ViolationEvent {
    RateLimitExceeded,
    SlidingWindowLimitExceeded,
    BurstDetectedWarning,
    BurstDetectedBlocked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    Warning,
    Error,
}

/// In the order in which the fields are written. What is not known is left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Violation {
    /// Unix seconds.
    pub time: f64,
    pub event: ViolationEvent,
    pub severity: Severity,
    /// The key as people spell it.
    pub identifier: String,
    /// The algorithm of the limit, or `guard`.
    pub limit_type: Cow<'static, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<String>,
    /// It was only watched, and nothing was refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shadow: bool,
    /// The request was forwarded all the same, marked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub degraded: bool,
    /// The path of the route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// How many requests a guard has counted in its window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_count: Option<u64>,
    /// What a sliding window weighs at that time, and what it may weigh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_count: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u64>,
    /// In seconds; not there if waiting does not help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<f64>,
    /// What the limit had left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// How often more it happened since the lines before: this one sums them up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeated: Option<u64>,
}

impl ViolationEvent {
    /// A limit has refused.
    pub fn exceeded(policy: &Policy) -> Self {
        match policy {
            Policy::SlidingWindow(_) => ViolationEvent::SlidingWindowLimitExceeded,
            _ => ViolationEvent::RateLimitExceeded,
        }
    }

    /// A guard has put a caller on this stage.
    pub fn detected(stage: GuardStage) -> Self {
        match stage {
            GuardStage::Blocked => ViolationEvent::BurstDetectedBlocked,
            GuardStage::Clean | GuardStage::Warned => ViolationEvent::BurstDetectedWarning,
        }
    }

    pub fn severity(self) -> Severity {
        match self {
            ViolationEvent::BurstDetectedBlocked => Severity::Error,
            _ => Severity::Warning,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            ViolationEvent::RateLimitExceeded => "rate_limit_exceeded",
            ViolationEvent::SlidingWindowLimitExceeded => "sliding_window_limit_exceeded",
            ViolationEvent::BurstDetectedWarning => "burst_detected_warning",
            ViolationEvent::BurstDetectedBlocked => "burst_detected_blocked",
        }
    }
}

impl Violation {
    /// One of which nothing is known but what every violation has.
    pub fn new(event: ViolationEvent, identifier: String, limit_type: &'static str) -> Self {
        Violation {
            time: unix_time(),
            event,
            severity: event.severity(),
            identifier,
            limit_type: limit_type.into(),
            limit: None,
            guard: None,
            shadow: false,
            degraded: false,
            endpoint: None,
            route: None,
            ip: None,
            user: None,
            client: None,
            tenant: None,
            plan: None,
            request_count: None,
            estimated_count: None,
            capacity: None,
            retry_after: None,
            tokens: None,
            request_id: None,
            repeated: None,
        }
    }

    /// Whether operators find it among the violations: nobody was turned away by what only watches.
    pub fn is_listed(&self) -> bool {
        !self.shadow && !self.degraded
    }

    /// For how many events it stands.
    pub fn events(&self) -> u64 {
        self.repeated.unwrap_or(1)
    }

    /// The sum of what came after this one, without what was so only at its time.
    pub fn summed_up(&self, repeated: u64) -> Self {
        Violation {
            time: unix_time(),
            repeated: Some(repeated),
            request_count: None,
            estimated_count: None,
            retry_after: None,
            tokens: None,
            request_id: None,
            ..self.clone()
        }
    }

    /// The same with names of a bounded length.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        shorten(&mut self.identifier);
        let names = [
            &mut self.endpoint,
            &mut self.route,
            &mut self.limit,
            &mut self.guard,
            &mut self.user,
            &mut self.client,
            &mut self.tenant,
            &mut self.plan,
        ];
        names.into_iter().flatten().for_each(shorten);
        self
    }
}

/// A name as violations have it.
pub fn bounded_name(mut name: String) -> String {
    shorten(&mut name);
    name
}

fn shorten(name: &mut String) {
    if name.len() > MAX_NAME {
        name.truncate(name.floor_char_boundary(MAX_NAME - '…'.len_utf8()));
        name.push('…');
    }
}

/// How long it is until then in seconds, to the millisecond and rounded up: what comes earlier is
/// refused again.
pub fn retry_after_seconds(until: Micros, now: Micros) -> f64 {
    until.since(now).as_micros().div_ceil(1_000) as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_left_out_and_what_is_written_can_be_read() {
        let mut violation = Violation::new(
            ViolationEvent::SlidingWindowLimitExceeded,
            "ann".to_owned(),
            "sliding_window",
        );
        violation.time = 1.5;
        violation.limit = Some("per-user".to_owned());
        (violation.estimated_count, violation.capacity) = (Some(7), Some(6));
        let text = serde_json::to_string(&violation).unwrap();
        assert_eq!(
            text,
            r#"{"time":1.5,"event":"sliding_window_limit_exceeded","severity":"warning","identifier":"ann","limit_type":"sliding_window","limit":"per-user","estimated_count":7,"capacity":6}"#
        );
        assert_eq!(serde_json::from_str::<Violation>(&text).unwrap(), violation);
    }

    #[test]
    fn names_of_any_length_make_a_line_of_a_bounded_one() {
        let long = || Some("ü\u{1}".repeat(4_000));
        let event = ViolationEvent::BurstDetectedBlocked;
        let mut violation = Violation::new(event, long().unwrap(), "guard");
        violation.user = long();
        violation.client = long();
        violation.tenant = long();
        let line = serde_json::to_string(&violation.bounded()).unwrap();
        // A control character is six bytes in JSON.
        assert!(line.len() < 2_048, "{}", line.len());
        assert!(line.contains('…'));
    }
}
