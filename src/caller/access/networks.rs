//! A set of networks that is asked for addresses.
//!
//! Two networks are apart or one lies within the other. Those within others add nothing, and the
//! rest are ranges without overlap, so the only one that can have an address is the last that starts
//! at or before it. Starts and ends are kept apart, and of the starts every 64th once more:
//! bisection first goes through those, which stay in a cache, and then through a few lines of memory
//! that lie together.

use std::cmp::Reverse;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::caller::address::unmapped;

#[derive(Debug, Clone, Default)]
pub struct NetworkSet {
    v4: AddressRanges<u32>,
    v6: AddressRanges<u128>,
}

/// How many ranges lie together.
const GROUP: usize = 64;

/// Sorted, without overlap, ends included; as many ends as starts.
#[derive(Debug, Clone, Default)]
struct AddressRanges<T> {
    /// The first start of each group.
    groups: Box<[T]>,
    starts: Box<[T]>,
    ends: Box<[T]>,
}

impl NetworkSet {
    pub fn contains(&self, ip: IpAddr) -> bool {
        match ip.to_canonical() {
            IpAddr::V4(ip) => self.v4.contains(ip.to_bits()),
            IpAddr::V6(ip) => self.v6.contains(ip.to_bits()),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.v4.starts.is_empty() && self.v6.starts.is_empty()
    }
}

impl FromIterator<IpNet> for NetworkSet {
    fn from_iter<I: IntoIterator<Item = IpNet>>(networks: I) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for network in networks {
            match unmapped(network) {
                IpNet::V4(it) => v4.push((it.network().to_bits(), it.broadcast().to_bits())),
                IpNet::V6(it) => v6.push((it.network().to_bits(), it.broadcast().to_bits())),
            }
        }
        NetworkSet { v4: AddressRanges::new(v4), v6: AddressRanges::new(v6) }
    }
}

impl<T: Copy + Ord> AddressRanges<T> {
    fn new(mut ranges: Vec<(T, T)>) -> Self {
        // Of those that start together the widest comes first.
        ranges.sort_unstable_by_key(|&(start, end)| (start, Reverse(end)));
        let mut last = None;
        ranges.retain(|&(_, end)| {
            let apart = last.is_none_or(|last| end > last);
            if apart {
                last = Some(end);
            }
            apart
        });
        let starts: Box<[T]> = ranges.iter().map(|&(start, _)| start).collect();
        let groups = starts.iter().step_by(GROUP).copied().collect();
        AddressRanges { groups, starts, ends: ranges.iter().map(|&(_, end)| end).collect() }
    }

    fn contains(&self, ip: T) -> bool {
        let before = |starts: &[T]| starts.partition_point(|&start| start <= ip).checked_sub(1);
        let Some(group) = before(&self.groups) else { return false };
        let start = group * GROUP;
        let end = self.starts.len().min(start + GROUP);
        before(&self.starts[start..end]).is_some_and(|at| ip <= self.ends[start + at])
    }
}
