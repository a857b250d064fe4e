//! The control thread: where files are read and configurations compiled.
//!
//! A large configuration takes a second to read, check and compile. So it is done on a thread that
//! neither accepts connections nor answers health checks. Old configurations are dropped here, too.

use std::io;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::background;
use super::external::RunTimeState;
use super::reload::Reloader;
use crate::config::watch::FileWatcher;

/// How often the files that the configuration names are polled: lists, clients, tenants,
/// certificates. A change is read at the second poll that finds it.
const FILE_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The main thread's handle on it.
#[derive(Debug)]
pub(super) struct ControlThread {
    reloads: Sender<()>,
    thread: JoinHandle<()>,
}

impl ControlThread {
    /// # Errors
    /// If the thread or its runtime cannot be had.
    pub(super) fn start(
        reloader: Reloader,
        file: Option<PathBuf>,
        run_time: RunTimeState,
    ) -> io::Result<Self> {
        // One waiting reload stands for all that are requested meanwhile.
        let (reloads, asked) = channel(1);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread =
            std::thread::Builder::new().name("weir-control".to_owned()).spawn(move || {
                background::lower_priority();
                runtime.block_on(serve(reloader, file, &run_time, asked));
                // A name look-up may still occupy a blocking thread.
                runtime.shutdown_background();
            })?;
        Ok(ControlThread { reloads, thread })
    }

    /// Reads the file again, whether it has changed or not. Does not wait for it.
    pub(super) fn reload(&self) {
        if let Err(TrySendError::Closed(())) = self.reloads.try_send(()) {
            tracing::error!("nothing is reloaded any more: the control thread has ended");
        }
    }

    /// Ends the thread once it has finished what it is at. The logs are closed with it.
    pub(super) fn stop(self) {
        drop(self.reloads);
        if self.thread.join().is_err() {
            tracing::error!("the control thread has panicked");
        }
    }
}

async fn serve(
    mut reloader: Reloader,
    file: Option<PathBuf>,
    run_time: &RunTimeState,
    mut asked: Receiver<()>,
) {
    reloader.start();
    let mut watch = file.and_then(watch_file);
    // The file may have changed between its first reading and the start of the watch.
    reloader.reload_if_changed();
    let mut look = tokio::time::interval(FILE_POLL_INTERVAL);
    loop {
        let changed = async {
            match &mut watch {
                Some(watch) => watch.changed().await,
                None => std::future::pending().await,
            }
        };
        let until = reloader.transition_until();
        let transition_over = async {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            reload = asked.recv() => match reload {
                Some(()) => reloader.reload(),
                None => return,
            },
            () = changed => reloader.reload_if_changed(),
            _ = look.tick() => {
                reloader.read_changed_files();
                reloader.drop_unused();
            }
            () = run_time.changed() => reloader.apply_run_time().await,
            () = transition_over => reloader.end_transition(),
        }
    }
}

fn watch_file(path: PathBuf) -> Option<FileWatcher> {
    FileWatcher::new(&path)
        .inspect_err(|error| {
            tracing::warn!(%error, "changes of {} are not noticed; send SIGHUP to reload", path.display());
        })
        .ok()
}
