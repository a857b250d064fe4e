//! The handshakes of a worker that are under way. There is room for so many; others wait for theirs,
//! and one that is slow gives way to them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::listen::control::ConnectionControl;

/// At once, by one worker. A handshake holds some tens of KiB.
const MAX_PENDING: usize = 1024;
/// A client that means well is done by then.
const SLOW: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(in crate::listen) struct PendingHandshakes {
    /// In the order in which they began.
    pending: RefCell<BTreeMap<u64, PendingHandshake>>,
    /// How many have begun.
    begun: Cell<u64>,
    /// Told of each that has ended.
    freed: Notify,
}

#[derive(Debug)]
struct PendingHandshake {
    began: Instant,
    connection: Rc<ConnectionControl>,
}

/// Held while a handshake is under way.
#[derive(Debug)]
pub(in crate::listen) struct HandshakeSlot {
    all: Rc<PendingHandshakes>,
    number: u64,
}

/// What came of asking for a slot.
enum Room {
    Free(HandshakeSlot),
    /// The oldest was ended for it.
    Taken(HandshakeSlot),
    /// All are young, and the oldest is slow from then on.
    FullUntil(Instant),
}

impl PendingHandshakes {
    /// Resolves when there is room for another. `on_slow` is called for each that was ended for it.
    pub(in crate::listen) async fn begin(
        self: &Rc<Self>,
        connection: &Rc<ConnectionControl>,
        on_slow: impl Fn(),
    ) -> HandshakeSlot {
        loop {
            match self.begin_at(connection, Instant::now(), MAX_PENDING) {
                Room::Free(slot) => return slot,
                Room::Taken(slot) => {
                    on_slow();
                    return slot;
                }
                Room::FullUntil(slow) => {
                    let _ = tokio::time::timeout_at(slow, self.freed.notified()).await;
                }
            }
        }
    }

    fn begin_at(
        self: &Rc<Self>,
        connection: &Rc<ConnectionControl>,
        now: Instant,
        max: usize,
    ) -> Room {
        let mut pending = self.pending.borrow_mut();
        let mut given_way = false;
        if pending.len() >= max
            && let Some(oldest) = pending.first_entry()
        {
            let slow = oldest.get().began + SLOW;
            if now < slow {
                return Room::FullUntil(slow);
            }
            oldest.remove().connection.abort();
            given_way = true;
        }
        let number = self.begun.get();
        self.begun.set(number + 1);
        pending.insert(number, PendingHandshake { began: now, connection: connection.clone() });
        let slot = HandshakeSlot { all: self.clone(), number };
        if given_way { Room::Taken(slot) } else { Room::Free(slot) }
    }
}

impl Drop for HandshakeSlot {
    fn drop(&mut self) {
        self.all.pending.borrow_mut().remove(&self.number);
        self.all.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_slow_handshake_gives_way_and_a_young_one_does_not() {
        let all = Rc::new(PendingHandshakes::default());
        let control = Rc::new(ConnectionControl::default());
        let now = Instant::now();
        let begin = |at| all.begin_at(&control, at, 2);
        let Room::Free(first) = begin(now) else { panic!("the first has room") };
        let Room::Free(second) = begin(now) else { panic!("the second has room") };
        assert!(matches!(begin(now + SLOW / 2), Room::FullUntil(at) if at == now + SLOW));
        let Room::Taken(third) = begin(now + SLOW) else { panic!("the first is slow") };
        assert_eq!(all.pending.borrow().len(), 2);
        // Its own end takes nothing from anybody.
        drop(first);
        assert_eq!(all.pending.borrow().len(), 2);
        drop((second, third));
        assert!(all.pending.borrow().is_empty());
    }

    #[tokio::test]
    async fn whoever_finds_no_room_waits_for_it() {
        let all = Rc::new(PendingHandshakes::default());
        let control = Rc::new(ConnectionControl::default());
        let slow = std::cell::Cell::new(0);
        let begin = || all.begin(&control, || slow.set(slow.get() + 1));
        let mut held = Vec::new();
        for _ in 0..MAX_PENDING {
            held.push(begin().await);
        }
        let waiting = begin();
        let ending = async {
            tokio::task::yield_now().await;
            held.pop();
        };
        let (next, ()) = tokio::join!(waiting, ending);
        assert_eq!(slow.get(), 0);
        // Nobody ends by itself.
        let last = begin().await;
        assert_eq!(slow.get(), 1);
        drop((next, last, held));
        assert!(all.pending.borrow().is_empty());
    }
}
