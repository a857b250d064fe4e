//! What a limit is: a name, a key to count by, and a policy that decides.
//!
//! The policies are pure functions of (state, now, cost); where the states live is the store's
//! business. A [`Check`](crate::store::Check) is one bucket to charge with one cost; a request has one for each limit
//! that applies to it, and a store decides them together.

pub mod adjust;
pub mod algorithm;
pub mod calendar;
pub mod concurrency;
mod condition;
pub mod cost;
pub mod credentials;
pub mod fixed_window;
pub mod guard;
pub mod key;
pub mod leaky_bucket;
pub mod lease;
pub mod policy;
pub mod rate;
pub mod refill_bucket;
pub mod sliding_log;
pub mod sliding_window;
pub mod source;
pub mod spelling;
pub mod tenants;
pub mod token_bucket;
pub mod trust;
mod value_pattern;
pub mod wire;

use std::time::Duration;

use http::StatusCode;

pub use algorithm::{Algorithm, Report, Retry, State, Verdict};
pub use condition::{Condition, What};
pub use cost::{Cost, CostSource, Outcomes};
pub use key::{Key, Missing};
pub use policy::Policy;
pub use rate::Rate;
pub use source::Source;
pub use value_pattern::ValuePattern;

/// A named limit, as the configuration describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    pub name: String,
    /// For people.
    pub description: Option<String>,
    /// Switched off, it is checked and applies to nothing.
    pub enabled: bool,
    pub key: Key,
    pub policy: Policy,
    /// Whether callers that are trusted have more: see [`trust`].
    pub adaptive: bool,
    /// Other numbers for callers of a plan, by its name.
    pub plans: Vec<(String, Policy)>,
    /// It applies if all of these hold.
    pub when: Vec<Condition>,
    /// What one request costs.
    pub cost: Cost,
    /// Only requests that end like this are charged, once they have ended.
    pub count: Option<Outcomes>,
    pub strategy: Strategy,
    pub mode: Mode,
    /// Other numbers, tried out on the same traffic: counted, never enforced.
    pub candidate: Option<Policy>,
    pub refusal: Refusal,
    /// What stands in for a key that the request does not carry.
    pub missing: Missing,
    /// Whether answers may name this limit.
    pub response_headers: bool,
    /// What becomes of requests while the store cannot be asked.
    pub on_error: OnError,
}

impl Limit {
    /// A limit that leaves everything else at its default.
    pub fn new(name: &str, key: Key, policy: Policy) -> Self {
        Limit {
            name: name.to_owned(),
            description: None,
            enabled: true,
            key,
            policy,
            adaptive: false,
            plans: Vec::new(),
            when: Vec::new(),
            cost: Cost::Fixed(1),
            count: None,
            strategy: Strategy::default(),
            mode: Mode::default(),
            candidate: None,
            refusal: Refusal::default(),
            missing: Missing::Ip,
            response_headers: true,
            on_error: OnError::default(),
        }
    }

    /// Whether what a request costs is charged only once its response is known.
    pub fn charges_later(&self, cost: &Cost) -> bool {
        self.count.is_some() || cost.is_of_response()
    }
}

/// What becomes of a request that a limit does not admit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strategy {
    #[default]
    Reject,
    /// It waits until it would pass, behind those that came before it.
    Queue { max_wait: Duration, max_queue: usize },
    /// It is forwarded all the same, marked, and to another upstream if its route names one.
    Degrade,
}

impl Strategy {
    /// As the configuration calls it.
    pub const fn name(&self) -> &'static str {
        match self {
            Strategy::Reject => "reject",
            Strategy::Queue { .. } => "queue",
            Strategy::Degrade => "degrade",
        }
    }
}

/// Whether a limit acts on what it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    #[default]
    Enforce,
    /// It only counts what it would have done.
    Shadow,
}

/// How a limit words its refusals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub status: StatusCode,
    /// In place of the usual sentence.
    pub message: Option<String>,
}

impl Default for Refusal {
    fn default() -> Self {
        Refusal { status: StatusCode::TOO_MANY_REQUESTS, message: None }
    }
}

/// What a limit does while the store fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    /// This node holds its callers to its share of the limit.
    #[default]
    Local,
    /// The limit does not apply.
    Allow,
    /// The request is answered with 503.
    Deny,
}

impl OnError {
    pub const ALL: [OnError; 3] = [OnError::Local, OnError::Allow, OnError::Deny];

    /// As the configuration and the logs call it.
    pub const fn name(self) -> &'static str {
        match self {
            OnError::Local => "local",
            OnError::Allow => "allow",
            OnError::Deny => "deny",
        }
    }
}
