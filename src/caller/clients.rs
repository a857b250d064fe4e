//! Callers with API keys, which are known by their hashes alone.
//!
//! A key is looked up by its SHA-256. There is no salt, so that one look-up finds it among any
//! number of clients, and no slow hash, as every request pays for it: this is safe for keys that
//! cannot be guessed, and [`hash_key`] takes no others. The time that a look-up takes tells at
//! most about hashes, of which nobody can get back to a key.

use std::collections::HashMap;
use std::fmt::Write as _;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use smallvec::SmallVec;

pub use crate::config::settings::Client;

/// What comes before the digits of a hash.
const SCHEME: &str = "sha256:";
/// What the keys that [`new_key`] makes start with, so that leaked ones can be searched for.
pub const PREFIX: &str = "weir_";
/// The shortest key that is hashed, in characters.
pub const SHORTEST: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the key has fewer than 16 characters: its hash has no salt, which is safe only for long random keys"
)]
pub struct ShortKey;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HashError {
    #[error("does not start with `sha256:`")]
    Scheme,
    #[error("does not have 64 hexadecimal digits after `sha256:`")]
    Digits,
}

/// All clients, by their keys.
#[derive(Debug, Default)]
pub struct Clients {
    clients: Vec<Client>,
    /// Where those are whose hashes begin with these bytes: hardly ever more than one.
    by_hash: HashMap<[u8; 8], SmallVec<[u32; 2]>>,
    /// All of them, in the order of their ids.
    by_id: Box<[u32]>,
}

impl Clients {
    /// Of two with the same key the first counts.
    pub fn new(clients: Vec<Client>) -> Self {
        let mut by_hash: HashMap<_, SmallVec<_>> = HashMap::with_capacity(clients.len());
        for (index, client) in (0..).zip(&clients) {
            by_hash.entry(beginning(&client.key_hash)).or_default().push(index);
        }
        let mut by_id: Box<[u32]> = (0..clients.len() as u32).collect();
        by_id.sort_unstable_by(|a, b| clients[*a as usize].id.cmp(&clients[*b as usize].id));
        Clients { clients, by_hash, by_id }
    }

    /// The client whose key this is.
    pub fn find(&self, key: &[u8]) -> Option<&Client> {
        if self.clients.is_empty() {
            return None;
        }
        let hash = sha256(key);
        let candidates = self.by_hash.get(&beginning(&hash))?.iter();
        let mut candidates = candidates.filter_map(|index| self.clients.get(*index as usize));
        candidates.find(|it| verify_slices_are_equal(&it.key_hash, &hash).is_ok())
    }

    /// The client that is called so: for names that were verified otherwise than by a key.
    pub fn named(&self, id: &[u8]) -> Option<&Client> {
        let id_of = |index: &u32| self.clients[*index as usize].id.as_bytes();
        let found = self.by_id.binary_search_by(|index| id_of(index).cmp(id)).ok()?;
        self.clients.get(self.by_id[found] as usize)
    }

    /// Whether some record says how far its client is trusted.
    pub fn has_trust(&self) -> bool {
        self.clients.iter().any(|client| client.trust.is_some())
    }

    pub fn len(&self) -> usize {
        self.clients.len()
    }

    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }
}

/// The hash of a key, as a configuration has it: `sha256:` and 64 digits.
///
/// # Errors
/// If the key is so short that it could be found by trying.
pub fn hash_key(key: &str) -> Result<String, ShortKey> {
    if key.chars().count() < SHORTEST {
        return Err(ShortKey);
    }
    let mut text = SCHEME.to_owned();
    for byte in sha256(key.as_bytes()) {
        // Writing into a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

/// The bytes of a hash as [`hash_key`] writes it.
///
/// # Errors
/// If it is written in another way.
pub fn parse_hash(text: &str) -> Result<[u8; 32], HashError> {
    let digits = text.strip_prefix(SCHEME).ok_or(HashError::Scheme)?.as_bytes();
    let digits: &[u8; 64] = digits.try_into().map_err(|_| HashError::Digits)?;
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16).ok_or(HashError::Digits);
        *byte = (digit(0)? << 4 | digit(1)?) as u8;
    }
    Ok(hash)
}

/// A key that nobody can guess.
///
/// # Errors
/// If the system has no randomness to give.
pub fn new_key() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)))
}

pub(super) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}

fn beginning(hash: &[u8; 32]) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&hash[..8]);
    bytes
}

#[cfg(test)]
mod tests;
