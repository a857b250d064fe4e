//! Answers that Weir makes itself, and the rate headers on those it passes on.

pub(crate) mod answer;
pub(crate) mod blocked;
pub(crate) mod fault;
pub(crate) mod field_name;
pub(crate) mod fields;
pub(crate) mod grpc;
pub(crate) mod rate_headers;
pub(crate) mod refusal;
mod retry_after;
pub(crate) mod route_answer;
pub(crate) mod scratch;
pub(crate) mod structured;

pub(crate) use answer::{Answer, Content};
pub(crate) use fault::Fault;
pub(crate) use field_name::FieldName;
pub(crate) use fields::Fields;
pub(crate) use rate_headers::{Applied, RateHeaders};
pub(crate) use scratch::Scratch;
