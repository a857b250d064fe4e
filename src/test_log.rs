//! What is logged while something is done, for unit tests.

use std::io;
use std::sync::{Arc, Mutex};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no test panics while it logs").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lines that this thread logs, without their times.
pub(crate) fn logged(act: impl FnOnce()) -> Vec<String> {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .with_target(false)
        .without_time()
        .finish();
    tracing::subscriber::with_default(subscriber, act);
    let bytes = lines.0.lock().expect("no test panics while it logs");
    String::from_utf8_lossy(&bytes).lines().map(|line| line.trim().to_owned()).collect()
}
