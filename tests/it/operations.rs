//! Running a gateway: command line, configuration, admin listener, logs, restarts.

mod access_log;
mod admin;
mod admin_token;
mod audit_log;
mod caller_names;
mod cli;
mod control_plane;
mod dashboard;
mod health_command;
mod lifecycle;
pub(crate) mod overrides;
mod reload;
mod snapshot;
mod tenant_changes;
mod tenant_files;
mod tenant_growth;
mod tenants;
mod violations;
