//! How many requests the process has under way, for `max_requests`.
//!
//! A request counts from its head to the end of its answer or of its tunnel, also while it waits in a
//! queue. One for all workers: the number that is configured is exact.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug, Default)]
pub struct RequestsInFlight(AtomicUsize);

/// The place of one request, until it is dropped.
#[derive(Debug)]
#[must_use = "the request counts only while this lives"]
pub struct InFlightSlot(Arc<RequestsInFlight>);

impl RequestsInFlight {
    /// A place for one more request; none if there are `max` already.
    pub fn enter(self: &Arc<Self>, max: usize) -> Option<InFlightSlot> {
        let more = |now: usize| (now < max).then_some(now + 1);
        // The number alone is shared, so no order between other memory is needed.
        let entered = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        entered.is_ok().then(|| InFlightSlot(self.clone()))
    }
}

impl Drop for InFlightSlot {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_never_more_than_the_maximum() {
        let in_flight = Arc::new(RequestsInFlight::default());
        let mut held: Vec<InFlightSlot> = (0..3).filter_map(|_| in_flight.enter(3)).collect();
        assert_eq!(held.len(), 3);
        assert!(in_flight.enter(3).is_none());
        held.pop();
        assert!(in_flight.enter(3).is_some(), "a place came back");
        // A smaller maximum after a reload holds for what comes next.
        assert!(in_flight.enter(1).is_none());
        drop(held);
        assert!(in_flight.enter(1).is_some());
    }

    #[test]
    fn threads_together_have_no_more_than_the_maximum() {
        let in_flight = Arc::new(RequestsInFlight::default());
        let entered: usize = std::thread::scope(|scope| {
            let enter = || (0..100).filter_map(|_| in_flight.enter(50)).collect::<Vec<_>>();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(enter)).collect();
            let held: Vec<_> = threads.into_iter().map(|it| it.join().expect("no panic")).collect();
            held.iter().map(Vec::len).sum()
        });
        assert_eq!(entered, 50);
        assert_eq!(in_flight.0.load(Ordering::Relaxed), 0);
    }
}
