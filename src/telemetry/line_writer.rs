//! JSON lines to a stream or a file, written by a thread of their own.
//!
//! No request waits for a line to be written. If the disk cannot keep up, lines are dropped.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::OFlags;
use serde::Serialize;
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};

use crate::config::settings::LogTarget;

/// Lines that may wait for the disk.
const WAITING_LINES: usize = 16 * 1024;

/// Where lines go.
#[derive(Debug, Clone)]
pub struct LineWriter {
    writer: NonBlocking,
    reopen: Arc<AtomicBool>,
}

impl LineWriter {
    /// Opens the target; `None` if it is off. The guard writes out what is left when it is
    /// dropped, and nothing is written after that.
    ///
    /// # Errors
    /// If the file cannot be opened for appending.
    pub fn open(target: &LogTarget) -> io::Result<Option<(LineWriter, WorkerGuard)>> {
        let reopen = Arc::new(AtomicBool::new(false));
        let target: Box<dyn Write + Send> = match target {
            LogTarget::Off => return Ok(None),
            LogTarget::Stdout => Box::new(io::stdout()),
            LogTarget::Stderr => Box::new(io::stderr()),
            LogTarget::File(path) => Box::new(LogFile {
                file: append(path)?,
                path: path.clone(),
                reopen: reopen.clone(),
            }),
        };
        let builder = NonBlockingBuilder::default().buffered_lines_limit(WAITING_LINES);
        let (writer, guard) = builder.finish(target);
        Ok(Some((LineWriter { writer, reopen }, guard)))
    }

    /// Has the file opened anew before the next line: the old one may have been moved away.
    pub fn reopen(&self) {
        self.reopen.store(true, Ordering::Release);
    }

    pub(super) fn write(&mut self, line: &impl Serialize) {
        if let Ok(mut text) = serde_json::to_vec(line) {
            text.push(b'\n');
            // Lossy on purpose: a full disk must not hold up traffic.
            let _ = self.writer.write(&text);
        }
    }
}

/// The `time` of a line: seconds since 1970, to the millisecond.
pub(super) fn now() -> f64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (time.as_secs_f64() * 1e3).round() / 1e3
}

/// A file that can be replaced while it is written to.
struct LogFile {
    file: File,
    path: PathBuf,
    reopen: Arc<AtomicBool>,
}

fn append(path: &Path) -> io::Result<File> {
    // Opening a pipe that nobody reads would wait for a reader: so it fails. From then on writing
    // may wait, which is this thread's business alone.
    let mut options = OpenOptions::new();
    options.create(true).append(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let file = options.open(path)?;
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    Ok(file)
}

impl Write for LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.reopen.swap(false, Ordering::AcqRel) {
            match append(&self.path) {
                Ok(file) => self.file = file,
                Err(error) => tracing::error!(%error, "cannot reopen {}", self.path.display()),
            }
        }
        self.file.write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
