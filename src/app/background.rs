//! Threads whose work can wait for that of requests.

/// How much less of a busy processor they get, as `nice` counts it: a third of what a worker has.
const NICENESS: i32 = 5;

/// Lets others go first on the calling thread. On Linux, niceness is of a thread and not of a process.
///
/// A worker that wakes to answer is then run at once, however long a scrape or a reload has still to go
/// on the same processor.
pub(super) fn lower_priority() {
    if let Err(error) = rustix::process::nice(NICENESS) {
        tracing::debug!(%error, "the priority of a background thread stays as it is");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_stands_back_and_the_others_do_not() {
        let own = || rustix::process::getpriority_process(None).unwrap();
        let before = own();
        let lowered = std::thread::spawn(move || {
            lower_priority();
            own()
        });
        assert_eq!(lowered.join().unwrap(), (before + NICENESS).min(19));
        assert_eq!(own(), before);
    }
}
