//! From the file as written to what it means.
//!
//! Each part reads its section of the file, notes what is wrong and goes on with a default, so
//! the settings that come out are only to be used if no error was noted.

mod access;
mod address;
mod balance;
mod breaker;
mod burst;
mod calendar;
pub(crate) mod certificate_dates;
mod claimed_names;
mod client_plans;
mod clients;
mod cost;
mod debt;
mod ejection;
mod env_variable;
mod forwarded_identity;
mod guards;
mod headers;
mod health;
mod host;
mod http2;
mod identity;
mod jwt;
mod key;
mod limits;
mod names;
mod origin;
mod output_file;
mod parsed_key;
mod path;
mod pem_file;
mod plans;
mod policy;
mod rate;
mod redirect_loop;
mod request_source;
mod route_claims;
mod route_conditions;
mod route_target;
mod routes;
mod secret;
mod server;
mod store;
mod strategy;
mod takeover;
mod telemetry;
mod template;
mod tenants;
mod traces;
mod trust;
mod upstream_servers;
mod upstream_tls;
mod upstreams;
mod value_error;
mod when;

use std::path::Path;
use std::sync::Arc;

use super::file::{Reporter, TomlFile};
use super::settings::{Settings, Tenants};
use crate::limit::OnError;
pub(super) use address::UNIX;
pub(super) use clients::clients;
use limits::LimitContext;
pub(super) use limits::is_always_present;
use routes::Definitions;
pub use server::DEFAULT_ADMIN_LISTEN;
pub(super) use server::admin_listen;
pub(super) use upstreams::{USUAL_MAX_AGE, USUAL_RETRIES};

/// `folder` is where the file is.
pub(super) fn settings(file: &TomlFile<'_>, reporter: &Reporter, folder: &Path) -> Settings {
    let mut root = file.root(reporter);
    let clients = clients(&mut root);
    let listeners = server::listeners(root.section("server"), root.section("admin"), folder);
    let certificates = listeners.client_certificates();
    let (identity, known, client_plans) =
        identity::identity(root.section("identity"), clients, certificates);
    listeners.check_proxies(&identity);
    let access = access::access(root.section("access"), known);
    let (mut store, home) = store::store(root.section("store"));
    let respond = server::respond(root.section("respond"));
    let has_proxies = !identity.trusted_proxies.is_empty();
    let telemetry =
        telemetry::telemetry(root.section("telemetry"), home.in_memory.is_none(), has_proxies);
    let (upstreams, upstream_names) = upstreams::upstreams(&mut root, known, folder);
    let context = LimitContext { store: home, identities: known };
    let (files, tenant_names) = tenants::tenants(&mut root, folder, file.is_whole());
    let (mut limits, limit_names, mut tenant_limit, mut asked) =
        limits::limits(&mut root, context, &tenant_names);
    let (guards, guard_names) = guards::guards(&mut root, context, &limit_names, &mut asked);
    let trust = trust::trust(root.section("trust"), known, &limits);
    let defined = Definitions {
        upstreams: &upstream_names,
        limit_names: &limit_names,
        limits: &limits,
        guards: &guard_names,
        tenants: &tenant_names,
        identities: known,
        max_body: listeners.server.max_body,
    };
    let (routes, all) = routes::routes(&mut root, defined);
    when::check_routes(&asked, &routes, all);
    debt::reserve_debts(&mut limits, &routes);
    tenant_limit.costs_after = debt::tenant_costs_after(&tenant_limit, &routes);
    let is_local = |on_error: OnError| on_error == OnError::Local;
    store.has_local_limits = limits.iter().any(|limit| is_local(limit.on_error))
        || (!tenant_names.tree().is_empty() && is_local(tenant_limit.on_error));
    let tenants =
        Arc::new(Tenants { tree: tenant_names.tree().clone(), files, limit: tenant_limit });
    let server::Listeners { server, admin, .. } = listeners;
    let settings = Settings {
        server,
        admin,
        store,
        respond,
        identity,
        access,
        telemetry,
        upstreams,
        limits,
        guards,
        trust,
        tenants,
        routes,
    };
    client_plans.check(&settings, reporter);
    settings
}
