//! Answers that Weir makes itself, and the rate headers on those it passes on.

pub mod fault;
pub mod rate_headers;
pub mod refusal;
pub mod structured;

pub use fault::Fault;
pub use rate_headers::{Applied, RateHeaders};
