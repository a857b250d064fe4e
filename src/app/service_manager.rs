//! What systemd is told (`sd_notify`), if it has started the process; otherwise nobody is.

use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::{interval, timeout};

use crate::listen::worker::Worker;

/// The gateway serves. After a takeover it is the main process of its unit.
pub(super) fn ready(took_over: bool) {
    let own = took_over.then(|| NotifyState::MainPid(std::process::id()));
    let states = own.into_iter().chain([NotifyState::Ready, NotifyState::Status("serving")]);
    notify(&states.collect::<Vec<_>>());
}

/// A configuration is being read. `Type=notify-reload` asks for the time with it.
pub(super) fn reloading() {
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        notify(&[NotifyState::Reloading, now]);
    }
}

/// It has been read, and is served or not.
pub(super) fn reloaded(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

pub(super) fn stopping(status: &str) {
    notify(&[NotifyState::Stopping, NotifyState::Status(status)]);
}

/// Another process is the unit's main one. Only the main process may say so, unless the unit lets all.
pub(super) fn handed_over(pid: u32) {
    // A process of another namespace has no number here.
    if pid != 0 {
        notify(&[NotifyState::MainPid(pid)]);
    }
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the service manager was not told");
    }
}

/// Tells the service manager's watchdog that main thread and workers go on, if it wants to know.
pub(super) fn start_watchdog(workers: &Arc<Vec<Worker>>) {
    let Some(period) = sd_notify::watchdog_enabled().filter(|it| !it.is_zero()) else { return };
    let workers = workers.clone();
    tokio::spawn(async move {
        let mut due = interval((period / 2).max(Duration::from_millis(1)));
        loop {
            due.tick().await;
            // A worker that has ended has nothing to add up, and answers so at once.
            let flushed = futures_util::future::join_all(workers.iter().map(Worker::flush));
            match timeout(period / 4, flushed).await {
                Ok(_) => notify(&[NotifyState::Watchdog]),
                Err(_) => tracing::warn!("a worker does not answer: the watchdog is not told"),
            }
        }
    });
}
