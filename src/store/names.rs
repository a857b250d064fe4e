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

#[derive(Debug, Default)]
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

    #[must_use]
    pub fn get(&self, name: Name) -> &[u8] {
        &self.0[name.start as usize..name.end as usize]
    }
}
