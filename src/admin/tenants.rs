//! `/v1/tenants`: the tree with what is allocated and what is used now, and changing it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

use super::api::{AdminApi, json};
use super::api_error::{ApiError, not_begun, unavailable};
use super::path_parts::percent_decoded;
use super::tenant_view::{TenantPage, TenantView, TenantViews};
use super::{page_size, query, tenant_request};
use crate::gateway::CompiledTenants;
use crate::limit::tenants::{TenantIndex, TenantTree};
use crate::respond::fault::sentence;
use crate::telemetry::{AuditEvent, CallerNames};
use crate::tenants::{
    self, ChangeError, CheckedChange, MergedTenants, RunTimeTenant, SetAside, TenantChange,
    TenantTable,
};

/// How often a change is checked anew because another gateway was faster.
const ATTEMPTS: usize = 5;
/// In which all gateways have heard of what is announced: they look once a second.
const ANNOUNCED: Duration = Duration::from_secs(3);

/// What `/v1/tenants` works on.
#[derive(Debug)]
pub(super) struct TenantsApi {
    table: Arc<TenantTable>,
    served: Mutex<ServedTenants>,
    /// One change after another: each is checked against what the one before has left.
    changing: tokio::sync::Mutex<()>,
}

/// The tree in force.
#[derive(Debug, Clone, Default)]
pub(super) struct ServedTenants {
    pub(super) compiled: Arc<CompiledTenants>,
    pub(super) merged: Arc<MergedTenants>,
}

impl ServedTenants {
    /// What is set aside. A tenant of the file that has the name of such a one stands for both.
    fn set_aside(&self) -> impl Iterator<Item = &SetAside> {
        let in_tree = |it: &&SetAside| self.find(&it.tenant.name).is_some();
        self.merged.set_aside.iter().filter(move |it| !in_tree(it))
    }

    fn find(&self, name: &str) -> Option<TenantIndex> {
        self.compiled.tree().find(name.as_bytes())
    }

    /// A tenant and all below it, with those that are set aside; none if there is no such tenant.
    fn names_under<'s>(&'s self, name: &str) -> Option<Vec<&'s str>> {
        let tree = self.compiled.tree();
        let mut below: HashMap<&str, Vec<&str>> = HashMap::new();
        for it in self.set_aside() {
            let parent = it.tenant.tenant.parent.as_deref().unwrap_or_default();
            below.entry(parent).or_default().push(it.tenant.name.as_str());
        }
        let in_tree = self.find(name).map(|of| tree[of].spec.name.as_str());
        let set_aside =
            || self.set_aside().map(|it| it.tenant.name.as_str()).find(|it| *it == name);
        let first = in_tree.or_else(set_aside)?;
        let mut found = vec![first];
        let mut at = 0;
        while let Some(name) = found.get(at).copied() {
            let children = self.find(name).into_iter().flat_map(|of| tree.children(of));
            found.extend(children.map(|of| tree[of].spec.name.as_str()));
            // Each is below one parent. Taken out, so that a circle of them ends.
            let set_aside = below.remove(name).unwrap_or_default().into_iter();
            found.extend(set_aside.filter(|it| *it != first));
            at += 1;
        }
        Some(found)
    }
}

impl TenantsApi {
    pub(super) fn new(table: Arc<TenantTable>) -> Self {
        TenantsApi { table, served: Mutex::default(), changing: tokio::sync::Mutex::new(()) }
    }

    pub(super) fn serve(&self, compiled: Arc<CompiledTenants>, merged: Option<Arc<MergedTenants>>) {
        *self.served.lock() = ServedTenants { compiled, merged: merged.unwrap_or_default() };
    }

    fn served(&self) -> ServedTenants {
        self.served.lock().clone()
    }
}

/// What is asked for.
#[derive(Debug)]
struct TenantQuery {
    max: usize,
    after: Option<String>,
    under: Option<String>,
}

impl AdminApi {
    /// By name, so that a page goes on where the one before has ended, whatever has changed meanwhile.
    pub(super) async fn list_tenants(&self, query: &str) -> Result<(StatusCode, String), ApiError> {
        let TenantQuery { max, after, under } = parse(query)?;
        let served = self.tenants.served();
        let tree = served.compiled.tree();
        let mut names = match &under {
            None => {
                let of_tree = tree.tenants().iter().map(|it| it.spec.name.as_str());
                of_tree.chain(served.set_aside().map(|it| it.tenant.name.as_str())).collect()
            }
            Some(name) => served.names_under(name).ok_or_else(|| unknown(name))?,
        };
        names.sort_unstable();
        let total = names.len();
        let first = after.map_or(0, |after| names.partition_point(|name| *name <= after.as_str()));
        let page = &names[first..total.min(first + max)];
        let next = page.last().filter(|_| first + page.len() < total);
        let tenants = self.views(&served, page).await;
        let next = next.map(|name| (*name).to_owned());
        Ok((StatusCode::OK, json(&TenantPage { tenants, total, next })))
    }

    pub(super) async fn show_tenant(&self, name: &str) -> Result<(StatusCode, String), ApiError> {
        let served = self.tenants.served();
        let view = self.views(&served, &[name]).await.pop().ok_or_else(|| unknown(name))?;
        Ok((StatusCode::OK, json(&view)))
    }

    pub(super) async fn put_tenant(
        &self,
        name: &str,
        body: &[u8],
        begin_by: Instant,
    ) -> Result<(StatusCode, String), ApiError> {
        let body = tenant_request::read(body).map_err(ApiError::bad_request)?;
        let check = |file: &_, entries: &_| tenants::check_put(file, entries, name, body.clone());
        let (warnings, _) = self.change_tenants(begin_by, check).await?;
        let (names, burst) = (self.caller_names(), body.burst);
        let (tenant, parent) = (names.of(name), body.parent.as_deref().map(|it| names.of(it)));
        let (parent, rate) = (parent.as_deref(), body.rate.as_deref());
        self.audit.record(AuditEvent::TenantSet { tenant: &tenant, parent, rate, burst });
        let served = self.tenants.served();
        let view = self.views(&served, &[name]).await.pop();
        Ok((StatusCode::OK, json(&view.map(|it| it.with_warnings(&warnings)))))
    }

    pub(super) async fn remove_tenant(
        &self,
        name: &str,
        begin_by: Instant,
    ) -> Result<(StatusCode, String), ApiError> {
        let check = |file: &_, entries: &_| tenants::check_removal(file, entries, name);
        let (warnings, served) = self.change_tenants(begin_by, check).await?;
        let tenant = self.caller_names().of(name);
        self.audit.record(AuditEvent::TenantRemoved { tenant: &tenant });
        let view = TenantViews::new(&served, [name.to_owned()]).without_use(&[name]).pop();
        Ok((StatusCode::OK, json(&view.map(|it| it.with_warnings(&warnings)))))
    }

    /// Makes a change that fits to all tenants there are, and waits until it is served. Returns what
    /// is warned of, and what was served before. It is given up only while it is certain that nothing
    /// has been stored.
    async fn change_tenants(
        &self,
        begin_by: Instant,
        check: impl Fn(&Arc<TenantTree>, &[RunTimeTenant]) -> Result<CheckedChange, ChangeError>,
    ) -> Result<(Vec<String>, ServedTenants), ApiError> {
        let TenantsApi { table, changing, .. } = &self.tenants;
        let alone = timeout_at(begin_by, changing.lock()).await;
        let _alone = alone.map_err(|_| not_begun())?;
        // Other gateways may have made what this one does not know of yet.
        let mut up_to_date = false;
        // What all gateways have had the time to hear of.
        let mut announced: Option<RunTimeTenant> = None;
        for _ in 0..ATTEMPTS {
            if Instant::now() >= begin_by {
                return Err(not_begun());
            }
            let state = table.state();
            let checked = match check(&self.settings().tenants.tree, &state.tenants) {
                Ok(checked) => checked,
                Err(error) if up_to_date || !error.depends_on_others() => {
                    return Err(refused(error));
                }
                Err(_) => {
                    self.store.refresh_tenants(table).await.map_err(unavailable)?;
                    self.wait_for(table.changes()).await;
                    up_to_date = true;
                    continue;
                }
            };
            let (mark, before) = (state.mark.as_deref(), self.tenants.served());
            if let Some(entry) = self.announcement(&state.tenants, &checked.change)
                && (announced.as_ref() != Some(&entry) || !state.tenants.contains(&entry))
            {
                let change = TenantChange::Set(Box::new(entry.clone()));
                let stored = self.store.change_tenant(table, &change, mark).await;
                self.wait_for(table.changes()).await;
                if stored.map_err(unavailable)? {
                    tokio::time::sleep(ANNOUNCED).await;
                    announced = Some(entry);
                }
                up_to_date = true;
                continue;
            }
            let stored = self.store.change_tenant(table, &checked.change, mark).await;
            self.wait_for(table.changes()).await;
            if stored.map_err(unavailable)? {
                return Ok((checked.warnings, before));
            }
            up_to_date = true;
        }
        let why = "Others change tenants at the same time. Ask again.";
        Err(ApiError::new(StatusCode::CONFLICT, "conflict", why))
    }

    /// What other gateways have to know before they hear of a change, if there are any.
    fn announcement(
        &self,
        tenants: &[RunTimeTenant],
        change: &TenantChange,
    ) -> Option<RunTimeTenant> {
        let settings = self.settings();
        let (file, limit) = (&settings.tenants.tree, &settings.tenants.limit);
        let shared = self.store.gateways() > 1;
        shared.then(|| tenants::announcement(file, limit, tenants, change)).flatten()
    }

    /// Tenants with what they use now, if the store tells it. Names that are unknown are left out.
    async fn views(&self, served: &ServedTenants, names: &[&str]) -> Vec<TenantView> {
        let views = TenantViews::new(served, self.table_names());
        match self.store.bucket_reports(&views.buckets(names)).await {
            Ok(reports) => views.of(names, &mut reports.into_iter()),
            Err(_) => views.without_use(names),
        }
    }

    /// Whether the tree that holds has a tenant of this name.
    pub(super) fn is_tenant(&self, name: &str) -> bool {
        self.tenants.served.lock().find(name).is_some()
    }

    /// Those that were made at run time.
    fn table_names(&self) -> Vec<String> {
        self.tenants.table.state().tenants.into_iter().map(|it| it.name).collect()
    }

    fn caller_names(&self) -> CallerNames {
        CallerNames { hashed: self.settings().telemetry.hash_keys }
    }
}

fn unknown(name: &str) -> ApiError {
    let shown: String = name.chars().take(128).collect();
    ApiError::new(StatusCode::NOT_FOUND, "no_route", format!("There is no tenant {shown:?}."))
}

fn refused(error: ChangeError) -> ApiError {
    let (status, name) = match &error {
        ChangeError::Invalid(why) => return ApiError::bad_request(why.as_str()),
        ChangeError::Unknown => (StatusCode::NOT_FOUND, "no_route"),
        ChangeError::DefinedInFile(_) => (StatusCode::CONFLICT, "defined_in_file"),
        ChangeError::HasChildren { .. } => (StatusCode::CONFLICT, "has_children"),
        ChangeError::DoesNotFit(_) => (StatusCode::CONFLICT, "does_not_fit"),
        ChangeError::Full => (StatusCode::INSUFFICIENT_STORAGE, "overloaded"),
    };
    ApiError::new(status, name, sentence(&error.to_string()))
}

fn parse(text: &str) -> Result<TenantQuery, ApiError> {
    let mut query = TenantQuery { max: page_size::DEFAULT, after: None, under: None };
    for (name, value) in query::parameters(text, &["max", "after", "under"])? {
        let value = percent_decoded(value)?;
        match name {
            "max" => query.max = page_size::parse(&value)?,
            "after" => query.after = Some(value),
            _ => query.under = Some(value),
        }
    }
    Ok(query)
}
