//! The keys of a request's buckets in a store that several gateways share.
//!
//! A key is written only where it is needed: a request that leases serve, or that is known to be
//! refused, pays for no digest of what its caller has sent. Until then a key is a list of parts, and a
//! check refers to a range of them; those of the usual few checks allocate nothing. How a key is
//! written is in [`key_format`].

use smallvec::SmallVec;

use super::key_format::{self, KeyBuffer};
use crate::limit::key::Part;

/// A value that is longer than this is written at once: its digest is shorter than a copy.
const LONGEST_KEPT: usize = 64;

/// Which parts are those of one key in its [`BucketKeys`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeyRange {
    start: u32,
    end: u32,
}

#[derive(Debug, Clone, Default)]
pub struct BucketKeys<'a> {
    parts: SmallVec<[KeyPart<'a>; 8]>,
    /// What the parts refer to, one behind the other.
    bytes: SmallVec<[u8; 64]>,
}

#[derive(Debug, Clone, Copy)]
enum KeyPart<'a> {
    /// As it is written.
    Known(&'a [u8]),
    /// The same, in [`BucketKeys::bytes`].
    Written(ByteRange),
    /// A value of the request, there too.
    Value(Part, ByteRange),
}

#[derive(Debug, Clone, Copy)]
struct ByteRange {
    start: u32,
    end: u32,
}

/// All keys of a request, to look at.
#[derive(Debug, Clone, Copy)]
pub struct KeysView<'k> {
    parts: &'k [KeyPart<'k>],
    bytes: &'k [u8],
}

/// One key, which is written on demand.
#[derive(Debug, Clone, Copy)]
pub struct BucketKey<'k> {
    /// What it starts with.
    text: &'k [u8],
    parts: &'k [KeyPart<'k>],
    bytes: &'k [u8],
}

impl<'a> BucketKeys<'a> {
    /// Adds a key that starts with `text`; `add_parts` adds its parts.
    ///
    /// # Errors
    /// Those of `add_parts`. What it has added is part of no key then.
    #[inline]
    pub fn add<E>(
        &mut self,
        text: &'a [u8],
        add_parts: impl FnOnce(&mut Self) -> Result<(), E>,
    ) -> Result<KeyRange, E> {
        let start = self.parts.len() as u32;
        self.parts.push(KeyPart::Known(text));
        add_parts(self)?;
        Ok(KeyRange { start, end: self.parts.len() as u32 })
    }

    /// Adds a part to the key that is being added.
    #[inline]
    pub fn part(&mut self, kind: Part, value: &[u8]) {
        let start = self.bytes.len() as u32;
        let is_kept = value.len() <= LONGEST_KEPT;
        if is_kept {
            self.bytes.extend_from_slice(value);
        } else {
            key_format::push_part(&mut self.bytes, kind, value);
        }
        let range = ByteRange { start, end: self.bytes.len() as u32 };
        let part = if is_kept { KeyPart::Value(kind, range) } else { KeyPart::Written(range) };
        self.parts.push(part);
    }

    /// Adds a key that is known as a whole, unless it is empty: then there is none.
    #[inline]
    pub fn add_known(&mut self, key: &'a [u8]) -> KeyRange {
        if key.is_empty() {
            return KeyRange::default();
        }
        let start = self.parts.len() as u32;
        self.parts.push(KeyPart::Known(key));
        KeyRange { start, end: start + 1 }
    }

    /// Adds a copy of a key that was written elsewhere.
    pub fn add_copy(&mut self, key: &[u8]) -> KeyRange {
        let start = self.parts.len() as u32;
        self.push_written(|bytes| bytes.extend_from_slice(key));
        KeyRange { start, end: start + 1 }
    }

    /// Writes a key that is needed more than once.
    pub fn write_at_once(&mut self, key: KeyRange) {
        for index in key.start as usize..key.end as usize {
            if let KeyPart::Value(kind, ByteRange { start, end }) = self.parts[index] {
                let value: SmallVec<[u8; LONGEST_KEPT]> =
                    SmallVec::from_slice(&self.bytes[start as usize..end as usize]);
                let start = self.bytes.len() as u32;
                key_format::push_part(&mut self.bytes, kind, &value);
                let range = ByteRange { start, end: self.bytes.len() as u32 };
                self.parts[index] = KeyPart::Written(range);
            }
        }
    }

    #[inline]
    pub fn view(&self) -> KeysView<'_> {
        KeysView { parts: &self.parts, bytes: &self.bytes }
    }

    fn push_written(&mut self, write: impl FnOnce(&mut SmallVec<[u8; 64]>)) {
        let start = self.bytes.len() as u32;
        write(&mut self.bytes);
        self.parts.push(KeyPart::Written(ByteRange { start, end: self.bytes.len() as u32 }));
    }
}

impl<'k> KeysView<'k> {
    pub fn get(self, key: KeyRange) -> BucketKey<'k> {
        let parts = &self.parts[key.start as usize..key.end as usize];
        BucketKey { text: &[], parts, bytes: self.bytes }
    }

    /// The same with every key written, in the same places.
    pub fn written(self) -> BucketKeys<'static> {
        let mut written = BucketKeys::default();
        for part in self.parts {
            written.push_written(|bytes| part.write(self.bytes, bytes));
        }
        written
    }
}

impl KeyPart<'_> {
    fn write(&self, bytes: &[u8], out: &mut impl KeyBuffer) {
        let of = |range: ByteRange| &bytes[range.start as usize..range.end as usize];
        match *self {
            KeyPart::Known(text) => out.extend_from_slice(text),
            KeyPart::Written(range) => out.extend_from_slice(of(range)),
            KeyPart::Value(kind, range) => key_format::push_part(out, kind, of(range)),
        }
    }
}

impl<'k> BucketKey<'k> {
    /// A key that is known as a whole.
    pub fn known(text: &'k [u8]) -> Self {
        BucketKey { text, parts: &[], bytes: &[] }
    }

    pub fn write(&self, out: &mut impl KeyBuffer) {
        out.extend_from_slice(self.text);
        self.parts.iter().for_each(|part| part.write(self.bytes, out));
    }

    pub fn text(&self) -> SmallVec<[u8; 128]> {
        let mut text = SmallVec::new();
        self.write(&mut text);
        text
    }

    pub fn to_vec(&self) -> Vec<u8> {
        let mut text = Vec::new();
        self.write(&mut text);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(keys: &mut BucketKeys<'static>, parts: &[(Part, &[u8])]) -> KeyRange {
        let added = keys.add(b"weir:limit", |keys| {
            parts.iter().for_each(|(kind, value)| keys.part(*kind, value));
            Ok::<_, ()>(())
        });
        added.expect("nothing fails")
    }

    /// As they are written without waiting.
    fn text(parts: &[(Part, &[u8])]) -> Vec<u8> {
        let mut text = b"weir:limit".to_vec();
        parts.iter().for_each(|(kind, value)| key_format::push_part(&mut text, *kind, value));
        text
    }

    #[test]
    fn each_key_is_written_as_its_parts_are() {
        let mut keys = BucketKeys::default();
        let long = [b'x'; 1_000];
        let lists: [&[(Part, &[u8])]; 5] = [
            &[(Part::Ip, &[192, 0, 2, 1])],
            &[],
            &[(Part::Header, b"one"), (Part::Route, b"api"), (Part::Absent, b"")],
            &[(Part::User, &long), (Part::Plan, b"two")],
            &[(Part::Cookie, &long[..LONGEST_KEPT])],
        ];
        let ranges = lists.map(|parts| add(&mut keys, parts));
        let written = keys.view().written();
        for (range, parts) in ranges.into_iter().zip(lists) {
            assert_eq!(keys.view().get(range).to_vec(), text(parts));
            assert_eq!(written.view().get(range).to_vec(), text(parts));
            keys.write_at_once(range);
            assert_eq!(keys.view().get(range).text()[..], text(parts));
        }
        assert_eq!(keys.view().get(KeyRange::default()).to_vec(), b"");
    }

    #[test]
    fn key_that_is_known_is_written_as_it_is() {
        let mut keys = BucketKeys::default();
        let (known, copied) = (keys.add_known(b"weir:tenants:a"), keys.add_copy(b"weir:@guard:b"));
        assert_eq!(keys.view().get(known).to_vec(), b"weir:tenants:a");
        assert_eq!(keys.view().get(copied).to_vec(), b"weir:@guard:b");
        assert_eq!(BucketKey::known(b"weir:c").to_vec(), b"weir:c");
    }

    #[test]
    fn a_key_that_was_given_up_is_part_of_no_other() {
        let mut keys = BucketKeys::default();
        let before = add(&mut keys, &[(Part::Route, b"before")]);
        let failed = keys.add(b"half", |keys| {
            keys.part(Part::Route, b"half");
            Err("no key")
        });
        assert_eq!(failed, Err("no key"));
        let after = add(&mut keys, &[(Part::Route, b"after")]);
        assert_eq!(keys.view().get(before).to_vec(), b"weir:limit:rbefore");
        assert_eq!(keys.view().get(after).to_vec(), b"weir:limit:rafter");
    }
}
