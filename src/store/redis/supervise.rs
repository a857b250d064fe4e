//! Watching Redis apart from the requests, and doing without it.
//!
//! The [`breaker`] opens when Redis fails; then [`fallback`] decides, and writes into the [`ledger`]
//! what Redis does not know, and for a moment what replies may not ([`settled_charges`]). The
//! [`supervisor`] brings Redis back after it has shown in a [`recovery_trial`] that it is fast enough,
//! pays the debts ([`payments`]), and waits until the other gateways have paid theirs
//! ([`joint_recovery`]). It finds out that Redis is another one ([`masters`]), or says nothing any more
//! while a payment has to wait ([`silence`]). Beside that it says that this one lives and counts the others ([`heartbeat`],
//! [`census`]), and keeps their overrides and tenants equal ([`overrides`], [`tenants`]). What guards
//! count, what is known of users and who was refused is shared by tasks of their own ([`guards`],
//! [`trust`], [`violations`], by way of [`reporting`]).

pub(super) mod breaker;
pub(super) mod bucket_reports;
pub mod census;
pub(super) mod fallback;
pub(super) mod guards;
pub(super) mod heartbeat;
mod joint_recovery;
pub(super) mod late_budget;
pub(super) mod ledger;
mod masters;
pub(super) mod overrides;
pub(super) mod payments;
pub(super) mod penalty_stream;
pub(super) mod probe;
pub(super) mod recovery_trial;
pub(super) mod reporting;
pub(super) mod settled_charges;
mod shared_hash;
mod silence;
pub(super) mod supervisor;
pub(super) mod tenants;
pub(super) mod trust;
pub(super) mod violations;
