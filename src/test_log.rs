//! What is logged while something is done, for unit tests.

use std::io;
use std::sync::{Arc, LazyLock, Mutex};

use tracing::Dispatch;
use tracing::subscriber::NoSubscriber;

/// While there is one dispatcher only, a place that logs is asked for once and for all by the thread that
/// comes there first. Of a test beside this one that would be a thread where nobody listens.
static ANOTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::new()));

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
    LazyLock::force(&ANOTHER);
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
