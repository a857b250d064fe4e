//! What a configuration is served with besides its own file: the keys that tokens are verified with,
//! the lists of allowed and denied callers, the files that it names, and overrides.

use std::sync::Arc;

use tokio::task::AbortHandle;

use super::watched_files::WatchedFiles;
use crate::caller::AccessLists;
use crate::caller::access::ListFileError;
use crate::caller::jwt::{KeyError, Verifier};
use crate::config::settings::{self, Settings};
use crate::gateway::ExternalSnapshot;
use crate::limit::tenants::TenantTree;
use crate::overrides::OverrideTable;
use crate::tenants::{self, MergedTenants, TenantTable};

#[derive(Debug, thiserror::Error)]
pub(crate) enum ExternalError {
    #[error("tokens cannot be verified: {0}")]
    Keys(#[from] KeyError),
    #[error(transparent)]
    List(#[from] ListFileError),
}

/// What is in use, and what it was made from.
#[derive(Debug)]
pub(crate) struct ExternalState {
    tokens: Option<TokenVerification>,
    access: Option<Arc<AccessLists>>,
    run_time: RunTimeState,
    /// The tenants of the configuration with those of run time, as they were last put together.
    merged: Option<MergedAt>,
    /// All files that the configuration names, whether they have become part of the settings or of
    /// this.
    pub(crate) files: WatchedFiles,
}

/// What operators decide while the gateway runs.
#[derive(Debug, Clone)]
pub(crate) struct RunTimeState {
    pub(crate) overrides: Arc<OverrideTable>,
    pub(crate) tenants: Arc<TenantTable>,
}

/// What of it has changed how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunTimeVersion {
    overrides: u64,
    tenants: u64,
}

impl RunTimeState {
    pub(crate) fn version(&self) -> RunTimeVersion {
        let RunTimeState { overrides, tenants } = self;
        let (overrides, tenants) = (overrides.changes().version(), tenants.changes().version());
        RunTimeVersion { overrides, tenants }
    }

    /// Says that all workers serve what held at that version.
    pub(crate) fn note_served(&self, version: RunTimeVersion) {
        self.overrides.changes().note_served(version.overrides);
        self.tenants.changes().note_served(version.tenants);
    }

    /// Resolves when something else holds.
    pub(crate) async fn changed(&self) {
        tokio::select! {
            () = self.overrides.changed() => {}
            () = self.tenants.changes().changed() => {}
        }
    }
}

#[derive(Debug)]
struct MergedAt {
    version: u64,
    file: Arc<TenantTree>,
    merged: Arc<MergedTenants>,
    /// What it becomes once all that is announced holds.
    announced: Option<Arc<TenantTree>>,
}

#[derive(Debug)]
struct TokenVerification {
    settings: settings::Jwt,
    verifier: Arc<Verifier>,
    /// Keeps its keys up to date.
    refresher: Option<AbortHandle>,
}

impl Drop for TokenVerification {
    fn drop(&mut self) {
        if let Some(refresher) = &self.refresher {
            refresher.abort();
        }
    }
}

impl ExternalState {
    /// # Errors
    /// If there are no keys to verify tokens with, or a list cannot be read.
    pub(crate) fn load(settings: &Settings, run_time: RunTimeState) -> Result<Self, ExternalError> {
        let files = WatchedFiles::of(settings);
        let access = AccessLists::load(&settings.access)?;
        let access = Some(access).filter(|it| !it.allow.is_empty() || !it.deny.is_empty());
        let tokens = settings.identity.jwt.as_ref().map(TokenVerification::new).transpose()?;
        let access = access.map(Arc::new);
        Ok(ExternalState { tokens, access, run_time, merged: None, files })
    }

    /// The same for another configuration, to [take over](ExternalState::replace_with).
    ///
    /// # Errors
    /// As [`ExternalState::load`].
    pub(crate) fn load_next(&self, settings: &Settings) -> Result<Self, ExternalError> {
        let jwt = settings.identity.jwt.as_ref();
        let same = self.tokens.as_ref().map(|tokens| &tokens.settings) == jwt;
        let mut bare = settings.clone();
        if same {
            bare.identity.jwt = None;
        }
        Self::load(&bare, self.run_time.clone())
    }

    /// Goes on with what was made for another configuration. Tokens are verified as before if nothing
    /// was said about them: keys behind a URL would have to be fetched anew.
    pub(crate) fn replace_with(&mut self, mut next: Self, settings: &Settings) {
        let jwt = settings.identity.jwt.as_ref();
        if self.tokens.as_ref().map(|tokens| &tokens.settings) == jwt {
            next.tokens = self.tokens.take();
        }
        next.merged = self.merged.take();
        *self = next;
        self.start_key_refresh();
    }

    /// Keeps the keys up to date by a task on the current runtime.
    pub(crate) fn start_key_refresh(&mut self) {
        if let Some(tokens) = self.tokens.as_mut().filter(|tokens| tokens.refresher.is_none()) {
            let kept = tokio::spawn(tokens.verifier.clone().refresh_keys());
            tokens.refresher = Some(kept.abort_handle());
        }
    }

    pub(crate) fn run_time(&self) -> &RunTimeState {
        &self.run_time
    }

    /// The tenants that hold with this configuration, if some of them were made at run time.
    fn tenants(&mut self, file: &Arc<TenantTree>) -> Option<&MergedAt> {
        let version = self.run_time.tenants.changes().version();
        let same = |it: &&MergedAt| it.version == version && Arc::ptr_eq(&it.file, file);
        if self.merged.as_ref().is_some_and(|it| same(&it)) {
            return self.merged.as_ref();
        }
        let entries = self.run_time.tenants.state().tenants;
        if entries.is_empty() {
            self.merged = None;
            return None;
        }
        let merged = Arc::new(tenants::merge(file, &entries));
        let last = self.merged.take().map(|it| it.merged).unwrap_or_default();
        for it in merged.set_aside.iter().filter(|it| last.fault(&it.tenant.name).is_none()) {
            tracing::warn!(
                "the tenant {:?} of run time is set aside: {}",
                it.tenant.name,
                it.fault
            );
        }
        let announced = tenants::with_announced(&entries);
        let announced = announced.map(|entries| tenants::merge(file, &entries).tree);
        self.merged = Some(MergedAt { version, file: file.clone(), merged, announced });
        self.merged.as_ref()
    }

    /// What the gateway needs of it, to serve these settings.
    pub(crate) fn snapshot(&mut self, settings: &Settings) -> ExternalSnapshot {
        let merged = self.tenants(&settings.tenants.tree);
        let announced_tenants = merged.and_then(|it| it.announced.clone());
        let tenants = self.merged.as_ref().map(|it| it.merged.clone());
        let verifier = self.tokens.as_ref().map(|tokens| tokens.verifier.clone());
        ExternalSnapshot {
            verifier,
            access: self.access.clone(),
            overrides: self.run_time.overrides.overrides(),
            tenants,
            announced_tenants,
        }
    }
}

impl TokenVerification {
    fn new(settings: &settings::Jwt) -> Result<Self, KeyError> {
        let verifier = Arc::new(Verifier::new(settings)?);
        Ok(TokenVerification { settings: settings.clone(), verifier, refresher: None })
    }
}
