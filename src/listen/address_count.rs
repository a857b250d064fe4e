//! How many connections each address has, over all workers: what `max_connections_per_ip` bounds.
//!
//! An address is in the table only while it has a connection, so the table is never larger than the
//! number of those.

use std::hash::BuildHasher as _;
use std::net::IpAddr;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashMap};
use parking_lot::Mutex;

const PARTS: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct AddressCounts {
    hasher: DefaultHashBuilder,
    parts: [Mutex<HashMap<IpAddr, usize>>; PARTS],
}

/// One connection of an address, for as long as it is held.
#[derive(Debug)]
pub(crate) struct AddressSlot {
    counts: Arc<AddressCounts>,
    ip: IpAddr,
}

impl AddressCounts {
    /// `None`: the address has as many as it may have.
    pub(crate) fn enter(self: &Arc<Self>, ip: IpAddr, most: usize) -> Option<AddressSlot> {
        let mut part = self.part(ip).lock();
        let count = part.entry(ip).or_insert(0);
        if *count >= most {
            if *count == 0 {
                part.remove(&ip);
            }
            return None;
        }
        *count += 1;
        Some(AddressSlot { counts: self.clone(), ip })
    }

    fn part(&self, ip: IpAddr) -> &Mutex<HashMap<IpAddr, usize>> {
        &self.parts[self.hasher.hash_one(ip) as usize % PARTS]
    }
}

impl Drop for AddressSlot {
    fn drop(&mut self) {
        let mut part = self.counts.part(self.ip).lock();
        if let Some(count) = part.get_mut(&self.ip) {
            *count -= 1;
            if *count == 0 {
                part.remove(&self.ip);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_together_hold_no_more_than_the_bound_and_leave_nothing() {
        let counts = Arc::new(AddressCounts::default());
        let (one, other) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let _other = counts.enter(other, 1).unwrap();
        let held: Vec<AddressSlot> = std::thread::scope(|scope| {
            let enter = || (0..50).filter_map(|_| counts.enter(one, 7)).collect::<Vec<_>>();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(enter)).collect();
            threads.into_iter().flat_map(|it| it.join().unwrap()).collect()
        });
        assert_eq!(held.len(), 7);
        assert!(counts.enter(other, 1).is_none());
        drop(held);
        assert!(counts.enter(one, 1).is_some());
        let left: usize = counts.parts.iter().map(|it| it.lock().len()).sum();
        assert_eq!(left, 1);
    }
}
