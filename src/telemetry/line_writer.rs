//! JSON lines to a stream or a file, written by a thread of their own.
//!
//! No request waits for a line to be written. If the disk cannot keep up, lines are dropped.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};

use super::log_file::LogFile;
use crate::config::settings::{LogTarget, Rotation};

/// Lines that may wait for the disk.
const WAITING_LINES: usize = 16 * 1024;

/// Where lines go.
#[derive(Debug, Clone)]
pub struct LineWriter {
    writer: NonBlocking,
    reopen: Arc<AtomicBool>,
    /// How many lost lines have been told of.
    lost: usize,
}

impl LineWriter {
    /// Opens the target; `None` if it is off. The guard writes out what is left when it is
    /// dropped, and nothing is written after that.
    ///
    /// # Errors
    /// If the file cannot be opened for appending.
    pub fn open(target: &LogTarget) -> io::Result<Option<(LineWriter, WorkerGuard)>> {
        LineWriter::open_rotating(target, Rotation::default())
    }

    /// The same, with a file that is moved aside when it is full.
    ///
    /// # Errors
    /// If the file cannot be opened for appending.
    pub fn open_rotating(
        target: &LogTarget,
        rotation: Rotation,
    ) -> io::Result<Option<(LineWriter, WorkerGuard)>> {
        let reopen = Arc::new(AtomicBool::new(false));
        let target: Box<dyn Write + Send> = match target {
            LogTarget::Off => return Ok(None),
            LogTarget::Stdout => Box::new(io::stdout()),
            LogTarget::Stderr => Box::new(io::stderr()),
            LogTarget::File(path) => Box::new(LogFile::open(path, rotation, reopen.clone())?),
        };
        let builder = NonBlockingBuilder::default().buffered_lines_limit(WAITING_LINES);
        let (writer, guard) = builder.finish(target);
        Ok(Some((LineWriter { writer, reopen, lost: 0 }, guard)))
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

    /// Writes a line that ends with a line feed, and says how many have been lost since the last.
    pub(super) fn write_line(&mut self, line: &[u8]) -> u64 {
        let _ = self.writer.write(line);
        let lost = self.writer.error_counter().dropped_lines();
        lost.saturating_sub(std::mem::replace(&mut self.lost, lost)) as u64
    }
}
