//! Penalties in pages: the longest first, each with an id that names it at every gateway.

use std::cmp::Reverse;
use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use super::{GuardTable, Penalty, shared_id};
use crate::clock::Micros;
use crate::store::{BucketHasher, BucketId};

/// Gateways that share a store name a penalty alike, whatever secrets they have.
static SHARED: LazyLock<BucketHasher> = LazyLock::new(|| BucketHasher::with_secret(&[0; 16]));

/// What a penalty is named by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PenaltyId(u128);

/// A place in the list of penalties.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PenaltyCursor {
    until: Reverse<Micros>,
    id: PenaltyId,
}

/// Some penalties, the longest first.
#[derive(Debug)]
pub struct PenaltyPage {
    pub penalties: Vec<Penalty>,
    /// Where the next page begins; `None` if there is none.
    pub after: Option<PenaltyCursor>,
}

impl PenaltyId {
    /// Of a key, by its id at this gateway and the name of its counter in a shared store.
    pub(super) fn new(id: BucketId, shared_key: &[u8]) -> Self {
        PenaltyId(if shared_key.is_empty() { id.0 } else { shared_id(&SHARED, shared_key).0 })
    }
}

impl Penalty {
    pub fn public_id(&self) -> PenaltyId {
        PenaltyId::new(self.id, &self.shared_key)
    }
}

impl PenaltyCursor {
    pub(super) fn new(until: Micros, id: PenaltyId) -> Self {
        PenaltyCursor { until: Reverse(until), id }
    }
}

impl GuardTable {
    /// At most so many of those who are warned or blocked, and stand behind a place in the list.
    pub fn penalty_page(
        &self,
        now: Micros,
        after: Option<PenaltyCursor>,
        max: usize,
    ) -> PenaltyPage {
        let mut found: Vec<(PenaltyCursor, BucketId)> = Vec::new();
        for shard in &self.shards {
            let shard = self.locked_at(shard, now);
            found.extend(shard.places(now).filter(|(at, _)| after.is_none_or(|after| *at > after)));
        }
        if found.len() > max {
            found.select_nth_unstable(max);
            found.truncate(max + 1);
        }
        found.sort_unstable();
        let has_more = found.len() > max;
        found.truncate(max);
        let after = found.last().filter(|_| has_more).map(|(at, _)| *at);
        let penalty = |id: BucketId| self.shard(id).lock().penalty(id);
        PenaltyPage { penalties: found.iter().filter_map(|(_, id)| penalty(*id)).collect(), after }
    }
}

impl fmt::Display for PenaltyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for PenaltyId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let written = Some(text).filter(|it| it.len() == 32 && it.bytes().all(is_digit));
        written.and_then(|it| u128::from_str_radix(it, 16).ok()).map(PenaltyId).ok_or(())
    }
}

impl fmt::Display for PenaltyCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.until.0.0, self.id)
    }
}

impl FromStr for PenaltyCursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (until, id) = text.split_once('-').ok_or(())?;
        Ok(PenaltyCursor::new(Micros(until.parse().map_err(|_| ())?), id.parse()?))
    }
}
