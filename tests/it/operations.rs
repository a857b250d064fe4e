//! Running a gateway: command line, configuration, admin listener, logs, restarts.

mod access_log;
mod admin;
mod admin_token;
mod audit_log;
mod caller_names;
mod certificates;
mod cli;
mod control_plane;
mod dashboard;
mod health_command;
mod lifecycle;
mod no_gap;
#[cfg(feature = "otlp")]
mod otlp;
pub(crate) mod overrides;
mod reload;
mod snapshot;
mod systemd;
mod takeover;
mod tenant_changes;
mod tenant_files;
mod tenant_growth;
mod tenants;
mod traces;
mod unwritable_log;
mod violations;
