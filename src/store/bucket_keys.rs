//! The keys of a request's buckets in a store that several gateways share.
//!
//! They lie one after another in one buffer, and a check refers to a range of it: the keys of the
//! usual few checks allocate nothing. How a key is written is in [`key_format`](super::key_format).

use smallvec::SmallVec;

/// Where one key lies in its [`BucketKeys`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeyRange {
    start: u32,
    end: u32,
}

#[derive(Debug, Clone, Default)]
pub struct BucketKeys(SmallVec<[u8; 256]>);

impl BucketKeys {
    /// Writes one key.
    pub fn write<E>(
        &mut self,
        write: impl FnOnce(&mut SmallVec<[u8; 256]>) -> Result<(), E>,
    ) -> Result<KeyRange, E> {
        let start = self.0.len() as u32;
        write(&mut self.0)?;
        Ok(KeyRange { start, end: self.0.len() as u32 })
    }

    /// Copies a key that is already known.
    pub fn push(&mut self, key: &[u8]) -> KeyRange {
        let start = self.0.len() as u32;
        self.0.extend_from_slice(key);
        KeyRange { start, end: self.0.len() as u32 }
    }

    pub fn get(&self, key: KeyRange) -> &[u8] {
        &self.0[key.start as usize..key.end as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(keys: &mut BucketKeys, bytes: &[u8]) -> KeyRange {
        let written = keys.write(|out| {
            out.extend_from_slice(bytes);
            Ok::<_, ()>(())
        });
        written.expect("nothing fails")
    }

    #[test]
    fn each_key_is_found_where_it_was_written() {
        let mut keys = BucketKeys::default();
        let long = [b'x'; 1_000];
        let texts: [&[u8]; 4] = [b"one", b"", b"two", &long];
        let ranges = texts.map(|text| write(&mut keys, text));
        assert_eq!(ranges.map(|range| keys.get(range)), texts);
        assert_eq!(keys.get(KeyRange::default()), b"");
    }

    #[test]
    fn a_key_that_was_given_up_is_part_of_no_other() {
        let mut keys = BucketKeys::default();
        let before = write(&mut keys, b"before");
        let failed = keys.write(|out| {
            out.extend_from_slice(b"half");
            Err("no key")
        });
        assert_eq!(failed, Err("no key"));
        let after = write(&mut keys, b"after");
        assert_eq!([before, after].map(|it| keys.get(it)), [&b"before"[..], b"after"]);
    }
}
