//! The last violations of this process, for those who ask: a ring of a fixed size.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Violation;

/// How many are kept, here and in the stream that gateways share.
pub const MAX_KEPT: usize = 10_000;

/// Where a violation stands among the others: a millisecond, and a number within it. It is written
/// as the ids of Redis streams are, so one cursor serves for both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct ViolationId(pub u64, pub u64);

impl fmt::Display for ViolationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0, self.1)
    }
}

impl FromStr for ViolationId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (millis, number) = text.split_once('-').ok_or(())?;
        let part = |text: &str| text.parse::<u64>().map_err(|_| ());
        Ok(ViolationId(part(millis)?, part(number)?))
    }
}

/// A violation, and where it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptViolation {
    pub id: ViolationId,
    pub violation: Violation,
}

/// Oldest first, as the lines that were written: these take a third of what values do. They are
/// shared, so that reading them holds up no writer.
#[derive(Debug, Default)]
pub struct ViolationRing {
    kept: VecDeque<KeptLine>,
    last: ViolationId,
}

/// The line of a violation, and where it stands.
#[derive(Debug, Clone)]
pub struct KeptLine {
    id: ViolationId,
    line: Arc<str>,
}

impl KeptLine {
    /// What it says.
    pub fn parse(&self) -> Option<KeptViolation> {
        let violation = serde_json::from_str(&self.line).ok()?;
        Some(KeptViolation { id: self.id, violation })
    }
}

impl ViolationRing {
    /// Adds the line of a violation of that time, in Unix seconds.
    pub fn push(&mut self, time: f64, line: Arc<str>) {
        let millis = (time * 1e3).round() as u64;
        // Ids grow even if the clock is set back.
        self.last = if millis > self.last.0 {
            ViolationId(millis, 0)
        } else {
            ViolationId(self.last.0, self.last.1 + 1)
        };
        self.add(KeptLine { id: self.last, line });
    }

    /// Puts back what an earlier process has kept.
    pub fn restore(&mut self, mut kept: Vec<KeptViolation>) {
        kept.sort_by_key(|it| it.id);
        for KeptViolation { id, violation } in kept {
            self.last = self.last.max(id);
            let line = serde_json::to_string(&violation).unwrap_or_default().into();
            self.add(KeptLine { id, line });
        }
    }

    /// All of them, oldest first.
    pub fn all(&self) -> Vec<KeptLine> {
        self.kept.iter().cloned().collect()
    }

    fn add(&mut self, entry: KeptLine) {
        if self.kept.len() == MAX_KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::violations::ViolationEvent;

    fn push(ring: &mut ViolationRing, time: f64) {
        let event = ViolationEvent::RateLimitExceeded;
        let violation = Violation::new(event, "ann".to_owned(), "token_bucket");
        ring.push(time, serde_json::to_string(&violation).unwrap().into());
    }

    fn kept(ring: &ViolationRing) -> Vec<KeptViolation> {
        ring.all().iter().filter_map(KeptLine::parse).collect()
    }

    #[test]
    fn ids_grow_though_the_clock_stands_still_or_runs_back() {
        let mut ring = ViolationRing::default();
        [5.0, 5.0, 4.0, 6.5].into_iter().for_each(|time| push(&mut ring, time));
        let ids: Vec<String> = kept(&ring).iter().map(|it| it.id.to_string()).collect();
        assert_eq!(ids, ["5000-0", "5000-1", "5000-2", "6500-0"]);
        assert_eq!("5000-2".parse(), Ok(ViolationId(5_000, 2)));
        assert!(["", "5", "5-", "-1-2", "a-b"].iter().all(|it| it.parse::<ViolationId>().is_err()));
    }

    #[test]
    fn the_oldest_go_first_and_what_was_kept_goes_on() {
        let mut ring = ViolationRing::default();
        (0..MAX_KEPT + 5).for_each(|second| push(&mut ring, second as f64));
        let before = kept(&ring);
        assert_eq!((before.len(), before[0].id), (MAX_KEPT, ViolationId(5_000, 0)));
        let mut next = ViolationRing::default();
        next.restore(before.clone());
        assert_eq!(kept(&next), before);
        push(&mut next, 1.0);
        assert!(kept(&next).last().unwrap().id > before.last().unwrap().id);
    }
}
