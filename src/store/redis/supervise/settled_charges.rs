//! What Redis has charged for requests that passed without its answer, while replies may be on their
//! way that do not know of it.
//!
//! Each worker has a connection of its own, so a reply may be heard after what Redis did later. Its
//! state is right for its own instant, and what this node has let pass and Redis charged after that
//! comes on top. A reply in time is heard within `timeout` of its call, so no charge has to be
//! remembered for longer than that. Of a reply that is heard later still it is only told
//! that it may lack something.

use std::time::Duration;

use hashbrown::HashMap;
use tokio::time::Instant;

use crate::clock::Micros;
use crate::store::BucketId;

/// When a reply was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReplyTimes {
    /// Its call was not sent before this.
    pub(crate) sent: Instant,
    /// The instant of the clock of the server that made it.
    pub(crate) at: Micros,
}

#[derive(Debug)]
pub(crate) struct SettledCharges {
    /// At least for so long they are remembered.
    keep: Duration,
    /// Buckets at a time.
    most: usize,
    recent: Generation,
    older: Generation,
    /// When the recent ones began.
    began: Option<Instant>,
    /// Of what was settled until then, some is not remembered.
    complete_since: Option<Instant>,
}

#[derive(Debug, Default)]
struct Generation {
    charges: HashMap<BucketId, Vec<SettledCharge>>,
    /// When the last of them was settled.
    latest: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct SettledCharge {
    cost: u64,
    /// When Redis charged it, if that is known.
    at: Option<Micros>,
    /// When it became known here: what is sent later is decided with it.
    known: Instant,
}

impl SettledCharges {
    pub(crate) fn new(keep: Duration, most: usize) -> Self {
        let (recent, older) = (Generation::default(), Generation::default());
        SettledCharges { keep, most, recent, older, began: None, complete_since: None }
    }

    /// Remembers a charge that Redis has made, at that instant if it is known.
    pub(crate) fn add(&mut self, bucket: BucketId, cost: u64, at: Option<Micros>, known: Instant) {
        self.forget(known);
        if self.recent.charges.len() >= self.most {
            return self.omit(known);
        }
        self.began.get_or_insert(known);
        self.recent.latest = self.recent.latest.max(Some(known));
        let charges = self.recent.charges.entry(bucket).or_default();
        match charges.last_mut() {
            Some(last) if last.at == at => {
                last.cost = last.cost.saturating_add(cost);
                last.known = known;
            }
            _ => charges.push(SettledCharge { cost, at, known }),
        }
    }

    /// Something is charged, or about to be, that is not remembered here.
    pub(crate) fn omit(&mut self, known: Instant) {
        self.complete_since = self.complete_since.max(Some(known));
    }

    /// What of it a reply does not know of.
    pub(crate) fn missing_from(&self, bucket: BucketId, reply: ReplyTimes) -> u64 {
        let generations = [&self.older, &self.recent].into_iter();
        let charges = generations.filter_map(|it| it.charges.get(&bucket)).flatten();
        // Of two at one instant either may be the earlier one.
        let missing = charges.filter(|it| match it.at {
            Some(at) => at >= reply.at,
            None => it.known >= reply.sent,
        });
        missing.fold(0, |sum: u64, it| sum.saturating_add(it.cost))
    }

    /// Whether a reply may lack charges that are no longer remembered.
    pub(crate) fn is_too_old(&self, reply: ReplyTimes) -> bool {
        self.complete_since.is_some_and(|it| it >= reply.sent)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.recent.charges.is_empty() && self.older.charges.is_empty()
    }

    /// Forgets what every reply in time knows by now.
    pub(crate) fn forget(&mut self, now: Instant) {
        let is_over = |since: Option<Instant>| since.is_some_and(|it| now > it + self.keep);
        let are_all_over = is_over(self.recent.latest.max(self.older.latest));
        if !are_all_over && !is_over(self.began) {
            return;
        }
        self.rotate();
        if are_all_over {
            self.rotate();
        }
        self.began = None;
    }

    fn rotate(&mut self) {
        let recent = std::mem::take(&mut self.recent);
        let forgotten = std::mem::replace(&mut self.older, recent);
        self.complete_since = self.complete_since.max(forgotten.latest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEP: Duration = Duration::from_millis(20);

    #[test]
    fn a_reply_lacks_what_was_charged_after_it() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut settled = SettledCharges::new(KEEP, 10);
        settled.add(BucketId(1), 2, Some(Micros(100)), after(5));
        settled.add(BucketId(1), 3, Some(Micros(100)), after(5));
        settled.add(BucketId(1), 8, None, after(6));
        let missing = |bucket, at, sent| {
            let reply = ReplyTimes { at: Micros(at), sent: after(sent) };
            settled.missing_from(BucketId(bucket), reply)
        };
        assert_eq!(missing(1, 99, 0), 13);
        assert_eq!(missing(1, 100, 0), 13, "of two at one instant either may be the earlier");
        assert_eq!(missing(1, 101, 0), 8);
        assert_eq!(missing(1, 101, 7), 0, "it was sent when all was known");
        assert_eq!(missing(2, 99, 0), 0, "another bucket");
    }

    #[test]
    fn it_remembers_for_long_enough_and_says_what_it_has_forgotten() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut settled = SettledCharges::new(KEEP, 10);
        let missing = |settled: &SettledCharges| {
            let reply = ReplyTimes { at: Micros(0), sent: start };
            (settled.missing_from(BucketId(1), reply), settled.is_too_old(reply))
        };
        for ms in 1..=100 {
            settled.add(BucketId(1), 1, None, after(ms));
            let (known, too_old) = missing(&settled);
            assert!(known >= ms.min(20), "{known} at {ms}");
            assert!(known <= 60, "{known} at {ms}");
            assert_eq!(too_old, known < ms);
        }
        settled.forget(after(120));
        assert!(!settled.is_empty());
        settled.forget(after(121));
        assert!(settled.is_empty());
        let too_old = |sent| settled.is_too_old(ReplyTimes { at: Micros(0), sent: after(sent) });
        assert!(too_old(100) && !too_old(101));
    }

    #[test]
    fn it_says_so_if_it_has_no_room() {
        let start = Instant::now();
        let mut settled = SettledCharges::new(KEEP, 1);
        let reply = ReplyTimes { at: Micros(0), sent: start };
        settled.add(BucketId(1), 1, None, start);
        assert!(!settled.is_too_old(reply));
        settled.add(BucketId(2), 1, None, start);
        assert!(settled.is_too_old(reply));
        assert_eq!(settled.missing_from(BucketId(2), reply), 0);
    }
}
