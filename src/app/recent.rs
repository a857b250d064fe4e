//! What was served until a moment ago.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// For how long gateways that share a store may count by different numbers: longer than an override
/// takes to reach all of them.
const TRANSITION: Duration = Duration::from_secs(5);
/// What ends within this is forgotten together. So however often something ends, only few of them
/// are kept, and none for longer than both times.
const TOGETHER: Duration = Duration::from_secs(1);

/// What has ended, each for [`TRANSITION`] after its own end, whatever else ends meanwhile: other
/// workers or gateways may not have heard of it yet.
#[derive(Debug)]
pub(crate) struct RecentlyServed<T> {
    /// The oldest first.
    ended: VecDeque<Ended<T>>,
}

#[derive(Debug)]
struct Ended<T> {
    served: T,
    since: Instant,
    until: Instant,
}

impl<T> RecentlyServed<T> {
    pub(crate) fn new() -> Self {
        RecentlyServed { ended: VecDeque::new() }
    }

    /// Something has ended. `merge` makes one of it and of what ended shortly before.
    pub(crate) fn note(&mut self, served: T, now: Instant, merge: impl FnOnce(T, &T) -> T) {
        let until = now + TRANSITION;
        match self.ended.back_mut().filter(|last| now < last.since + TOGETHER) {
            Some(last) => {
                last.served = merge(served, &last.served);
                last.until = until;
            }
            None => self.ended.push_back(Ended { served, since: now, until }),
        }
    }

    /// When the next of them is to be forgotten.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.ended.front().map(|oldest| oldest.until)
    }

    pub(crate) fn forget(&mut self, now: Instant) {
        self.ended.retain(|it| it.until > now);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.ended.iter().map(|it| &it.served)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Something ends every tenth of a second, which is its number.
    #[test]
    fn each_is_remembered_for_its_time_however_much_else_ends() {
        let (mut recent, begin) = (RecentlyServed::new(), Instant::now());
        let at = |tenths: u32| begin + Duration::from_millis(100) * tenths;
        let merge = |mut newer: Vec<u32>, older: &Vec<u32>| {
            newer.extend(older);
            newer
        };
        for tenths in 0..600 {
            recent.note(vec![tenths], at(tenths), merge);
            recent.forget(at(tenths));
            let known: Vec<u32> = recent.iter().flatten().copied().collect();
            for ended in tenths.saturating_sub(49)..=tenths {
                assert!(known.contains(&ended), "{ended} at {tenths}");
            }
            assert!(known.iter().all(|ended| ended + 60 >= tenths), "{known:?} at {tenths}");
            assert!(recent.iter().count() <= 7);
        }
        let mut ends = 0;
        while let Some(until) = recent.until() {
            recent.forget(until);
            ends += 1;
        }
        assert!(ends <= 7 && recent.iter().next().is_none());
    }
}
