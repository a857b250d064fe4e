//! How many connections of a server each worker has for requests that share them, over HTTP/2.
//!
//! A worker opens a second one only where that leaves a slot for the first one of every other: what is under
//! way on a connection may last as long as it likes, so that one that is missing may be missing for good.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The workers of a server that has a limit.
#[derive(Debug, Default)]
pub(super) struct WorkerConnections {
    workers: Mutex<Vec<Worker>>,
}

#[derive(Debug)]
struct Worker {
    /// Signalled when requests wait for idle connections.
    signal: Weak<Notify>,
    connections: ConnectionCount,
}

/// How many shared connections one worker has.
#[derive(Debug, Clone, Default)]
pub(super) struct ConnectionCount(Arc<AtomicUsize>);

/// One of a worker's shared connections, counted until it is dropped.
#[derive(Debug)]
pub(super) struct ConnectionReservation(ConnectionCount);

impl WorkerConnections {
    pub(super) fn add(&self, signal: &Arc<Notify>) -> ConnectionCount {
        let mut workers = self.workers.lock();
        let connections = ConnectionCount::default();
        workers.push(Worker { signal: Arc::downgrade(signal), connections: connections.clone() });
        connections
    }

    /// Signals all workers, or only those with so many shared connections.
    pub(super) fn signal(&self, least: usize) {
        let workers = self.workers.lock();
        let chosen = workers.iter().filter(|it| it.connections.count() >= least);
        chosen.filter_map(|it| it.signal.upgrade()).for_each(|signal| signal.notify_one());
    }

    /// Whether a worker may have one more connection than it needs, of `max` of all. Where there are fewer
    /// than workers, none can be kept for each of them.
    pub(super) fn leave_room(&self, max: usize) -> bool {
        leave_room(&mut self.workers.lock(), max)
    }

    /// The right to one more connection of a worker, if that is its first, or leaves room for those of others.
    pub(super) fn try_reserve(
        &self,
        count: &ConnectionCount,
        is_first: bool,
        max: usize,
    ) -> Option<ConnectionReservation> {
        // Locked, so that no two workers take the last one.
        let mut workers = self.workers.lock();
        (is_first || leave_room(&mut workers, max)).then(|| {
            count.0.fetch_add(1, Ordering::Relaxed);
            ConnectionReservation(count.clone())
        })
    }
}

fn leave_room(workers: &mut Vec<Worker>, max: usize) -> bool {
    // A reload may have had each worker begin anew, and the old ones end after that.
    workers.retain(|it| it.signal.strong_count() > 0);
    let spoken_for: usize = workers.iter().map(|it| it.connections.count().max(1)).sum();
    workers.len() > max || spoken_for < max
}

impl ConnectionCount {
    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for ConnectionReservation {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_has_no_second_connection_that_would_be_the_first_of_another() {
        let connections = WorkerConnections::default();
        let signals = [(); 2].map(|()| Arc::default());
        let [one, other] = signals.each_ref().map(|signal| connections.add(signal));
        let first = connections.try_reserve(&one, true, 2);
        assert!(first.is_some() && !connections.leave_room(2));
        assert!(connections.try_reserve(&one, false, 2).is_none());
        let second = connections.try_reserve(&one, false, 3);
        assert!(second.is_some() && connections.try_reserve(&one, false, 3).is_none());
        let of_other = connections.try_reserve(&other, true, 3);
        assert!(of_other.is_some() && connections.try_reserve(&other, false, 3).is_none());
        drop(first);
        assert!(connections.try_reserve(&other, false, 3).is_some());
    }

    #[test]
    fn nothing_is_kept_for_workers_that_have_ended() {
        let connections = WorkerConnections::default();
        let signals = [(); 4].map(|()| Arc::default());
        let [one, ..] = signals.each_ref().map(|signal| connections.add(signal));
        let first = connections.try_reserve(&one, true, 4);
        assert!(first.is_some() && connections.try_reserve(&one, false, 4).is_none());
        let [_one, _other, ended @ ..] = signals;
        let ended: [Arc<Notify>; 2] = ended;
        drop(ended);
        assert!(connections.try_reserve(&one, false, 4).is_some());
    }

    #[test]
    fn none_is_kept_where_there_are_more_workers_than_connections() {
        let connections = WorkerConnections::default();
        let signals: [Arc<Notify>; 3] = Default::default();
        let [one, ..] = signals.each_ref().map(|signal| connections.add(signal));
        let held = [(); 2].map(|()| connections.try_reserve(&one, false, 2));
        assert!(held.iter().all(Option::is_some));
        drop(signals);
        let signal = Arc::default();
        let one = connections.add(&signal);
        assert!(
            connections.try_reserve(&one, true, 1).is_some(),
            "those that are gone are forgotten"
        );
    }
}
