//! From bytes to a store. Nothing they say is believed before it is there: tables grow with the
//! bytes that come, so a damaged file takes no more memory than its own length accounts for.

use std::io::{self, Read};

use aws_lc_rs::digest::{Context, SHA256};

use super::{
    CHECKSUM_BYTES, Damage, LoadError, MAGIC, MOST_LOGGED, MOST_OVERRIDES, MOST_SHARDS, Restored,
    VERSION,
};
use crate::clock::{Clock, Micros};
use crate::limit::sliding_log::Log;
use crate::limit::{State, concurrency};
use crate::store::MemoryStore;
use crate::store::memory::overflow::Overflow;
use crate::store::memory::shard::Shard;

/// Reads a whole snapshot. Buckets that have ended by now are dropped. All others are kept, be
/// they more than `max_keys`: nothing live is forgotten, and new keys overflow until some end.
pub(super) fn decode(
    from: impl Read,
    max_keys: usize,
    clock: Clock,
) -> Result<Restored, LoadError> {
    let now = clock.now();
    let mut from = Summed { from, sum: Context::new(&SHA256) };
    if from.bytes()? != MAGIC {
        return Err(Damage::Magic.into());
    }
    match from.u32()? {
        VERSION => {}
        other => return Err(Damage::Version(other).into()),
    }
    let secret = from.bytes()?;
    let written_at = from.instant()?;
    let count = from.u32()?;
    if !(1..=MOST_SHARDS).contains(&count) {
        return Err(Damage::Impossible("the number of shards").into());
    }
    let shards = (0..count).map(|_| shard(&mut from, now)).collect::<Result<Vec<_>, _>>()?;
    let overflow = Overflow::of(shard(&mut from, now)?);
    let overrides = overrides(&mut from)?;
    from.finish()?;
    let store = if shards.iter().all(|shard| shard.len() == 0) {
        // Nothing holds it to the old number of shards.
        MemoryStore { overflow, ..MemoryStore::new(max_keys, clock) }
    } else {
        MemoryStore::of(shards, overflow, max_keys, clock)
    };
    Ok(Restored { store, secret, written_at, overrides })
}

fn overrides(from: &mut Summed<impl Read>) -> Result<Vec<u8>, LoadError> {
    let length = from.u32()?;
    if length > MOST_OVERRIDES {
        return Err(Damage::Impossible("the length of overrides").into());
    }
    let mut overrides = Vec::new();
    for _ in 0..length {
        overrides.extend(from.bytes::<1>()?);
    }
    Ok(overrides)
}

fn shard(from: &mut Summed<impl Read>, now: Micros) -> Result<Shard, LoadError> {
    let mut shard = Shard::new();
    for _ in 0..from.u32()? {
        let tag = from.u64()?;
        let state = State::new(from.instant()?, from.u64()?);
        let log = log(from)?;
        if state.ends_at <= now {
            continue;
        }
        if !shard.put(tag, state) {
            return Err(Damage::Impossible("a bucket that is there twice").into());
        }
        if let Some(log) = log {
            shard.put_log(tag, log);
        }
    }
    Ok(shard)
}

fn log(from: &mut Summed<impl Read>) -> Result<Option<Log>, LoadError> {
    let count = from.u32()?;
    let mut log = Log::default();
    let (mut last, mut sum) = (None, 0);
    for _ in 0..count {
        let (at, cost) = (from.instant()?, from.u64()?);
        // Compared before they are added up: the sum of two wild numbers may not fit.
        if cost == 0 || cost > MOST_LOGGED || sum + cost > MOST_LOGGED {
            return Err(Damage::Impossible("the costs in a log").into());
        }
        if last.is_some_and(|last| last >= at) {
            return Err(Damage::Impossible("the order of a log").into());
        }
        (last, sum) = (Some(at), sum + cost);
        log.push(at, cost);
    }
    Ok((count > 0).then_some(log))
}

/// Sums up what passes.
struct Summed<R> {
    from: R,
    sum: Context,
}

impl<R: Read> Summed<R> {
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], LoadError> {
        let bytes = exactly(&mut self.from)?;
        self.sum.update(&bytes);
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32, LoadError> {
        Ok(u32::from_le_bytes(self.bytes()?))
    }

    fn u64(&mut self) -> Result<u64, LoadError> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }

    /// Later ones would be held slots, or make sums overflow.
    fn instant(&mut self) -> Result<Micros, LoadError> {
        let instant = Micros(self.u64()?);
        if instant >= concurrency::HELD {
            return Err(Damage::Impossible("an instant").into());
        }
        Ok(instant)
    }

    fn finish(mut self) -> Result<(), LoadError> {
        let written: [u8; CHECKSUM_BYTES] = exactly(&mut self.from)?;
        if self.sum.finish().as_ref() != written {
            return Err(Damage::Checksum.into());
        }
        match exactly::<1>(&mut self.from) {
            Err(LoadError::Damaged(Damage::CutOff)) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(Damage::Trailing.into()),
        }
    }
}

fn exactly<const N: usize>(from: &mut impl Read) -> Result<[u8; N], LoadError> {
    let mut bytes = [0; N];
    match from.read_exact(&mut bytes) {
        Ok(()) => Ok(bytes),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(Damage::CutOff.into()),
        Err(error) => Err(error.into()),
    }
}
