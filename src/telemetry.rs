//! What can be known about the gateway from outside: metrics, the access log, traces, the audit log,
//! its own log.

mod access_log;
mod audit;
mod caller_names;
mod combined_format;
mod family;
mod line_writer;
pub mod log;
mod log_file;
pub mod meter;
pub mod metrics;
mod page;
mod random_id;
mod request_id;
mod request_record;
mod series;
pub mod traces;
mod user_scores;

pub use audit::{AuditEvent, AuditLog, OpenedTargets};
pub use caller_names::CallerNames;
pub use family::Family;
pub use line_writer::LineWriter;
pub use meter::{
    AccessMeter, AccessOutcome, CLIENT_GONE, Failure, FailureMeter, GuardAction, GuardCounters,
    GuardMeter, LimitCounters, LimitMeter, Outcome, RequestMeter, RouteMeter,
};
pub use metrics::Metrics;
pub use request_id::request_id;
pub use request_record::{RequestRecord, RequestRecorder};
pub use series::SeriesNames;
pub use user_scores::UserScores;
