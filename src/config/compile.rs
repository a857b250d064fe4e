//! From the file as written to what it means.
//!
//! Each part reads its section of the file, notes what is wrong and goes on with a default, so
//! the settings that come out are only to be used if no error was noted.

mod access;
mod address;
mod burst;
mod calendar;
mod clients;
mod cost;
mod debt;
mod env_variable;
mod guards;
mod headers;
mod host;
mod identity;
mod jwt;
mod key;
mod limits;
mod names;
mod origin;
mod output_file;
mod parsed_key;
mod path;
mod plans;
mod policy;
mod rate;
mod request_source;
mod routes;
mod secret;
mod server;
mod store;
mod strategy;
mod telemetry;
mod tenants;
mod trust;
mod upstreams;
mod value_error;
mod when;

use std::path::Path;
use std::sync::Arc;

use super::file::{Reporter, TomlFile};
use super::settings::{Settings, Tenants};
pub(super) use clients::clients;
use limits::LimitContext;
pub(super) use limits::is_always_present;
use routes::Definitions;
pub use server::DEFAULT_ADMIN_LISTEN;
pub(super) use server::admin_listen;

/// `folder` is where the file is.
pub(super) fn settings(file: &TomlFile<'_>, reporter: &Reporter, folder: &Path) -> Settings {
    let mut root = file.root(reporter);
    let clients = clients(&mut root);
    let (identity, known) = identity::identity(root.section("identity"), clients);
    let access = access::access(root.section("access"), known);
    let (server, admin) =
        server::listeners(root.section("server"), root.section("admin"), &identity);
    let (store, home) = store::store(root.section("store"));
    let respond = server::respond(root.section("respond"));
    let telemetry = telemetry::telemetry(root.section("telemetry"), home.in_memory.is_none());
    let (upstreams, upstream_names) = upstreams::upstreams(&mut root);
    let context = LimitContext { store: home, identities: known };
    let (tree, files, tenant_names) = tenants::tenants(&mut root, folder, file.is_whole());
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
    };
    let (routes, all) = routes::routes(&mut root, defined);
    when::check_routes(&asked, &routes, all);
    debt::reserve_debts(&mut limits, &routes);
    tenant_limit.costs_after = debt::tenant_costs_after(&tenant_limit, &routes);
    let tenants = Arc::new(Tenants { tree: Arc::new(tree), files, limit: tenant_limit });
    Settings {
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
    }
}
