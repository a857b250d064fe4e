//! What a configuration is served with besides its own file: the keys that tokens are verified with,
//! the lists of allowed and denied callers, files of clients and tenants, and overrides.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::task::AbortHandle;

use crate::caller::AccessLists;
use crate::caller::access::{self, FileStamp, ListFileError};
use crate::caller::jwt::{KeyError, Verifier};
use crate::config::settings::{self, Settings};
use crate::gateway::ExternalSnapshot;
use crate::limit::tenants::TenantTree;
use crate::overrides::OverrideTable;
use crate::tenants::{self, MergedTenants, TenantTable};

/// A list that never rests, because somebody adds to it all the time, is read after so many polls.
const MAX_POLLS_WAITED: u32 = 5;

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
    /// The state of all files when they were read, when they were last accepted or given up on, and
    /// when they were last polled.
    read: Vec<Option<FileStamp>>,
    lists: Vec<Option<FileStamp>>,
    polled: Vec<Option<FileStamp>>,
    /// For how many polls a change has waited to be read.
    polls_waited: u32,
    settings: settings::Access,
    run_time: RunTimeState,
    /// The tenants of the configuration with those of run time, as they were last put together.
    merged: Option<MergedAt>,
    /// Files of clients and of tenants. They have become part of the settings, and are only watched
    /// here.
    files: Vec<PathBuf>,
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
        let (clients, tenants) = (&settings.identity.clients_files, &settings.tenants.files);
        let files: Vec<PathBuf> = clients.iter().chain(tenants).cloned().collect();
        let lists = stamps(&settings.access, &files);
        let access = AccessLists::load(&settings.access)?;
        let access = Some(access).filter(|it| !it.allow.is_empty() || !it.deny.is_empty());
        let tokens = settings.identity.jwt.as_ref().map(TokenVerification::new).transpose()?;
        let settings = settings.access.clone();
        let access = access.map(Arc::new);
        Ok(ExternalState {
            tokens,
            access,
            read: lists.clone(),
            polled: lists.clone(),
            lists,
            polls_waited: 0,
            settings,
            run_time,
            merged: None,
            files,
        })
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

    /// Whether a list says something else than when it was read.
    pub(crate) fn lists_changed(&self) -> bool {
        stamps(&self.settings, &self.files) != self.lists
    }

    /// Whether a list has changed since it was read, and has come to rest: a file that is rewritten in
    /// place is empty first and incomplete then, and a `deny` list must not be in force like that.
    pub(crate) fn poll_lists(&mut self) -> bool {
        let now = stamps(&self.settings, &self.files);
        let rests = now == self.polled;
        self.polls_waited = if now == self.lists { 0 } else { self.polls_waited + 1 };
        self.polled = now;
        self.polls_waited > 0 && (rests || self.polls_waited > MAX_POLLS_WAITED)
    }

    /// Whether the lists are those that were read, and not given up on.
    pub(crate) fn lists_are_as_read(&self) -> bool {
        stamps(&self.settings, &self.files) == self.read
    }

    /// Takes the lists for read as they are now: what is wrong with them has been logged.
    pub(crate) fn accept_lists_as_seen(&mut self) {
        self.lists = stamps(&self.settings, &self.files);
        self.polls_waited = 0;
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

/// The state of all files that are watched.
fn stamps(access: &settings::Access, files: &[PathBuf]) -> Vec<Option<FileStamp>> {
    let files = files.iter().map(|path| FileStamp::of(path));
    access::stamps(access).into_iter().chain(files).collect()
}

impl TokenVerification {
    fn new(settings: &settings::Jwt) -> Result<Self, KeyError> {
        let verifier = Arc::new(Verifier::new(settings)?);
        Ok(TokenVerification { settings: settings.clone(), verifier, refresher: None })
    }
}
