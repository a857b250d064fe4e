//! The names of a request's buckets, for stores that many gateways share.
//!
//! They lie one after another in one buffer, and a check holds its place in it: naming a bucket
//! allocates nothing for the usual few.

use smallvec::SmallVec;

/// The place of one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Name {
    start: u32,
    end: u32,
}

#[derive(Debug, Clone, Default)]
pub struct Names(SmallVec<[u8; 256]>);

impl Names {
    /// Writes one name.
    pub fn write<E>(
        &mut self,
        write: impl FnOnce(&mut SmallVec<[u8; 256]>) -> Result<(), E>,
    ) -> Result<Name, E> {
        let start = self.0.len() as u32;
        write(&mut self.0)?;
        Ok(Name { start, end: self.0.len() as u32 })
    }

    /// Takes over a name that is there already.
    pub fn push(&mut self, name: &[u8]) -> Name {
        let start = self.0.len() as u32;
        self.0.extend_from_slice(name);
        Name { start, end: self.0.len() as u32 }
    }

    #[must_use]
    pub fn get(&self, name: Name) -> &[u8] {
        &self.0[name.start as usize..name.end as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(names: &mut Names, bytes: &[u8]) -> Name {
        let written = names.write(|out| {
            out.extend_from_slice(bytes);
            Ok::<_, ()>(())
        });
        written.expect("nothing fails")
    }

    #[test]
    fn each_name_is_found_where_it_was_written() {
        let mut names = Names::default();
        let long = [b'x'; 1_000];
        let texts: [&[u8]; 4] = [b"one", b"", b"two", &long];
        let places = texts.map(|text| write(&mut names, text));
        assert_eq!(places.map(|place| names.get(place)), texts);
        assert_eq!(names.get(Name::default()), b"");
    }

    #[test]
    fn a_name_that_was_given_up_is_part_of_no_other() {
        let mut names = Names::default();
        let before = write(&mut names, b"before");
        let failed = names.write(|out| {
            out.extend_from_slice(b"half");
            Err("no key")
        });
        assert_eq!(failed, Err("no key"));
        let after = write(&mut names, b"after");
        assert_eq!([before, after].map(|it| names.get(it)), [&b"before"[..], b"after"]);
    }
}
