//! What can be known about the gateway from outside: metrics, the access log, the audit log, its
//! own log.

pub mod access_log;
pub mod audit;
pub mod lines;
pub mod log;
pub mod meter;
pub mod metrics;
pub mod names;
pub mod series;

pub use access_log::Entry;
pub use audit::{Audit, Event};
pub use lines::Lines;
pub use meter::{
    AccessMeter, Admittance, CLIENT_GONE, Failure, FailureMeter, LimitCounters, LimitMeter, Meter,
    Outcome, RouteMeter,
};
pub use metrics::Metrics;
pub use names::CallerNames;
pub use series::Series;
