//! The embedded store as start-up and shutdown see it, with its snapshots: read at the start, written
//! at intervals and at the end.
//!
//! Nothing here ends the gateway or keeps it from starting. A file that cannot be understood may be
//! the only copy of somebody's buckets: it is moved aside, or left alone and nothing is written, but
//! never overwritten.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _, ready};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use super::MemoryStore;
use super::held_slots::{HeldSlots, InheritedSlots};
use super::snapshot::{self, LoadError, Restored, SnapshotExtras};
use crate::clock::Clock;
use crate::config::settings;
use crate::guards::{GuardSharing, Penalty, PenaltyNotice};
use crate::overrides::{Override, OverrideTable};
use crate::store::{AnyStore, BucketHasher, OpenedStore, StoreContext, StoreControl};
use crate::telemetry::AuditLog;
use crate::tenants::{RunTimeTenant, TenantTable};
use crate::trust::{KeptUser, TrustTable};
use crate::violations::{KeptLine, KeptViolation};

/// The embedded store, and its snapshots if it has any.
#[derive(Debug)]
struct MemoryControl {
    store: Arc<MemoryStore>,
    /// The same in a process that names its buckets alike.
    naming: u64,
    /// What the process before this one still holds.
    inherited: InheritedSlots,
    /// `None` if nothing is to be written.
    snapshots: Option<SnapshotSchedule>,
}

/// What writes snapshots, and how often.
#[derive(Debug)]
struct SnapshotSchedule {
    writer: Arc<SnapshotWriter>,
    interval: Duration,
    task: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct SnapshotWriter {
    store: Arc<MemoryStore>,
    secret: [u8; 16],
    overrides: Arc<OverrideTable>,
    tenants: Arc<TenantTable>,
    guards: OnceLock<GuardSharing>,
    /// Has the last violations.
    audit: AuditLog,
    trust: OnceLock<Arc<TrustTable>>,
    path: PathBuf,
    /// Whether the last writing failed. Locked while one is under way, so that there are never two.
    failing: Mutex<bool>,
    /// Another process writes the file now, and knows more.
    handed_over: AtomicBool,
}

/// What was decided about callers, by operators, guards and limits, and what is known of users, as JSON.
#[derive(Debug, Default, Serialize, Deserialize)]
struct KeptDecisions {
    overrides: Vec<Override>,
    #[serde(default)]
    tenants: Vec<RunTimeTenant>,
    #[serde(default)]
    penalties: Vec<PenaltyNotice>,
    #[serde(default)]
    violations: Vec<KeptViolation>,
    #[serde(default)]
    users: Vec<KeptUser>,
}

impl KeptDecisions {
    /// A version without guards wrote a list of overrides.
    fn of(text: &[u8]) -> Self {
        serde_json::from_slice(text).unwrap_or_else(|_| KeptDecisions {
            overrides: serde_json::from_slice(text).unwrap_or_default(),
            ..KeptDecisions::default()
        })
    }
}

/// Opens the embedded store, with the buckets of its snapshot if there is one.
pub(in crate::store) fn open(
    settings: &settings::Store,
    context: StoreContext<'_>,
) -> Result<OpenedStore, getrandom::Error> {
    let opened = open_at(settings, context.audit, Clock::system())?;
    let Opened { control, hasher, overrides, tenants, penalties, users } = opened;
    Ok(OpenedStore { control: Arc::new(control), hasher, overrides, tenants, penalties, users })
}

/// An [`OpenedStore`] whose kind is known.
struct Opened {
    control: MemoryControl,
    hasher: BucketHasher,
    overrides: Arc<OverrideTable>,
    tenants: Arc<TenantTable>,
    penalties: Vec<PenaltyNotice>,
    users: Vec<KeptUser>,
}

fn open_at(
    settings: &settings::Store,
    audit: &AuditLog,
    clock: Clock,
) -> Result<Opened, getrandom::Error> {
    let (restored, wanted) = match &settings.snapshot {
        Some(wanted) => restore(wanted, settings.max_keys, &clock),
        None => (None, None),
    };
    let (store, hasher, decisions) = match restored {
        Some(it) => {
            let decisions = KeptDecisions::of(&it.overrides);
            (it.store, BucketHasher::with_secret(&it.secret), decisions)
        }
        None => {
            let store = MemoryStore::new(settings.max_keys, clock);
            (store, BucketHasher::random()?, KeptDecisions::default())
        }
    };
    let KeptDecisions { overrides: kept, tenants, penalties, violations, users } = decisions;
    let tenants = Arc::new(TenantTable::of(tenants));
    audit.restore_violations(violations);
    let overrides = Arc::new(OverrideTable::default());
    overrides.replace(kept);
    let store = Arc::new(store);
    let snapshots = wanted.map(|wanted| {
        let (path, secret) = (wanted.path.clone(), hasher.secret());
        let writer = Arc::new(SnapshotWriter {
            store: store.clone(),
            secret,
            overrides: overrides.clone(),
            tenants: tenants.clone(),
            guards: OnceLock::new(),
            audit: audit.clone(),
            trust: OnceLock::new(),
            path,
            failing: Mutex::new(false),
            handed_over: AtomicBool::new(false),
        });
        SnapshotSchedule { writer, interval: wanted.interval, task: Mutex::new(None) }
    });
    let naming = hasher.limit_prefix("@naming", "");
    let control = MemoryControl { store, naming, inherited: InheritedSlots::default(), snapshots };
    Ok(Opened { control, hasher, overrides, tenants, penalties, users })
}

/// What there is to restore, and where snapshots are written, if they can be.
fn restore<'a>(
    wanted: &'a settings::Snapshot,
    max_keys: usize,
    clock: &Clock,
) -> (Option<Restored>, Option<&'a settings::Snapshot>) {
    let path = wanted.path.display();
    let damage = match snapshot::load(&wanted.path, max_keys, clock.clone()) {
        Ok(None) => {
            tracing::info!("no snapshot at {path} yet");
            return (None, Some(wanted));
        }
        Ok(Some(restored)) => {
            let buckets = restored.store.buckets();
            let buckets = buckets.own + buckets.overflow;
            let age = clock.now().since(restored.written_at).as_secs();
            tracing::info!(buckets, "snapshot {path} read, written {age} s ago");
            return (Some(restored), Some(wanted));
        }
        Err(LoadError::Damaged(damage)) => damage,
        Err(error @ LoadError::Unreadable(_)) => {
            tracing::warn!(
                "the snapshot {path} {error}; all buckets start full, the file is left alone, and \
                 no snapshots are written until a start can read or no longer finds it"
            );
            return (None, None);
        }
    };
    match snapshot::set_aside(&wanted.path) {
        Ok(aside) => {
            tracing::warn!(
                "the snapshot {path} {damage}; all buckets start full, the file is now {}",
                aside.display()
            );
            (None, Some(wanted))
        }
        Err(error) => {
            tracing::warn!(
                "the snapshot {path} {damage} and cannot be set aside: {error}; all buckets start \
                 full, the file is left alone, and no snapshots are written until a start no \
                 longer finds it"
            );
            (None, None)
        }
    }
}

impl StoreControl for MemoryControl {
    fn kind(&self) -> &'static str {
        "memory"
    }

    fn worker_store(self: Arc<Self>) -> AnyStore {
        AnyStore::Memory(self.store.clone())
    }

    fn local_buckets(&self) -> &MemoryStore {
        &self.store
    }

    fn share_guards(&self, sharing: GuardSharing) {
        if let Some(snapshots) = &self.snapshots {
            let _ = snapshots.writer.guards.set(sharing);
        }
    }

    fn share_trust(&self, trust: &Arc<TrustTable>) {
        if let Some(snapshots) = &self.snapshots {
            let _ = snapshots.writer.trust.set(trust.clone());
        }
    }

    fn start(self: Arc<Self>) -> BoxFuture<'static, ()> {
        if let Some(snapshots) = &self.snapshots {
            snapshots.start();
        }
        ready(()).boxed()
    }

    fn keep(&self) -> BoxFuture<'_, ()> {
        async {
            if let Some(snapshots) = &self.snapshots {
                snapshots.writer.clone().write().await;
            }
        }
        .boxed()
    }

    fn hand_over(&self) {
        if let Some(snapshots) = &self.snapshots {
            snapshots.writer.handed_over.store(true, Ordering::Release);
        }
    }

    fn held_slots(&self) -> Option<HeldSlots> {
        Some(self.store.held_slots(self.naming))
    }

    fn inherit_slots(&self, held: Option<&HeldSlots>) {
        if !self.inherited.replace(&self.store, self.naming, held) {
            tracing::debug!(
                "the slots that the gateway before this one holds are not counted here"
            );
        }
    }

    fn leave(&self) -> BoxFuture<'_, ()> {
        async {
            if let Some(snapshots) = &self.snapshots {
                snapshots.finish().await;
            }
        }
        .boxed()
    }
}

impl SnapshotSchedule {
    /// Writes one now, which shows at once whether that is possible, and then one each interval. Has
    /// to be called on a runtime.
    fn start(&self) {
        let (writer, interval) = (self.writer.clone(), self.interval);
        let task = tokio::spawn(async move {
            let mut due = tokio::time::interval(interval);
            due.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                due.tick().await;
                writer.clone().write().await;
            }
        });
        *self.task.lock() = Some(task);
    }

    /// Writes the last one.
    async fn finish(&self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
        self.writer.clone().write().await;
    }
}

impl SnapshotWriter {
    /// A disk may block for long, so this runs on the pool for blocking work.
    async fn write(self: Arc<Self>) {
        let written = tokio::task::spawn_blocking(move || self.write_now()).await;
        if let Err(error) = written {
            tracing::error!(%error, "no snapshot was written");
        }
    }

    fn penalties(&self) -> Vec<PenaltyNotice> {
        let Some(sharing) = self.guards.get() else { return Vec::new() };
        let penalties = sharing.table.penalties(self.store.clock().now());
        penalties.iter().map(Penalty::kept).collect()
    }

    /// Logs only the first of several failures in a row.
    fn write_now(&self) {
        let mut failing = self.failing.lock();
        if self.handed_over.load(Ordering::Acquire) {
            return;
        }
        let kept = KeptDecisions {
            overrides: self.overrides.all(),
            tenants: self.tenants.state().tenants,
            penalties: self.penalties(),
            violations: self.audit.violations().iter().filter_map(KeptLine::parse).collect(),
            users: self.trust.get().map(|trust| trust.kept()).unwrap_or_default(),
        };
        let text = serde_json::to_vec(&kept).unwrap_or_default();
        let extras = SnapshotExtras { secret: &self.secret, overrides: &text };
        match snapshot::save(&self.store, extras, &self.path) {
            Ok(buckets) => {
                tracing::debug!(buckets, "snapshot written");
                if std::mem::take(&mut *failing) {
                    tracing::info!("snapshots are written again");
                }
            }
            Err(error) if !*failing => {
                *failing = true;
                tracing::warn!("{error}; the snapshot before stays, and the next is tried in time");
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
