//! What a limit can do: how it counts, what it charges, what becomes of requests over it.

mod abuse_example;
mod algorithms;
mod charges_after_disconnect;
mod concurrency;
mod costs;
mod deferred_charges;
mod degrade;
mod drain;
pub(crate) mod exactness;
mod guarded_requests;
pub(crate) mod guards;
mod limit_options;
mod oauth_example;
mod penalties;
mod plans;
mod queue;
mod queue_admission;
mod queue_limit_changes;
mod queue_overrides;
mod queue_rate;
mod request_costs;
mod shadow;
mod soak;
mod stalled_gateway;
mod tenant_charges;
pub(crate) mod tenants;
pub(crate) mod trust;
