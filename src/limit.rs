//! What a limit is: a name, a key to count by, and a policy that decides.
//!
//! The policies are pure functions of (state, now, cost); where the states live is the store's
//! business. A [`Check`] is one bucket to charge with one cost; a request has one for each limit
//! that applies to it, and a store decides them together.

pub mod calendar;
pub mod fixed_window;
pub mod key;
pub mod policy;
pub mod rate;
pub mod sliding_window;
pub mod token_bucket;

pub use key::{Key, Missing, Source};
pub use policy::{Policy, Report, Retry, State, Verdict};
pub use rate::Rate;

/// A named limit, as the configuration describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    pub name: String,
    pub key: Key,
    pub policy: Policy,
    /// What one request costs.
    pub cost: u64,
    /// What stands in for a key that the request does not carry.
    pub missing: Missing,
    /// Whether answers may name this limit.
    pub response_headers: bool,
    /// What becomes of requests while the store cannot be asked.
    pub on_error: OnError,
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
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            OnError::Local => "local",
            OnError::Allow => "allow",
            OnError::Deny => "deny",
        }
    }
}
