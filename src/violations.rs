//! Violations: requests that a limit refused, and floods that a guard has noticed.
//!
//! Each is a [`Violation`], which is at once a line of the audit log, an entry of what operators can
//! ask for, and an entry of the stream in Redis. A worker passes them through its
//! [`RecentViolations`], which write the first few of a caller whole and sum up the rest.

mod query;
mod recent;
mod record;
mod ring;

pub use query::{AddressFilter, ViolationPage, ViolationQuery, ViolationView};
pub use recent::{RecentViolations, ViolationKey};
pub use record::{Severity, Violation, ViolationEvent, bounded_name, retry_after_seconds};
pub use ring::{KeptLine, KeptViolation, MAX_KEPT, ViolationId, ViolationRing};
