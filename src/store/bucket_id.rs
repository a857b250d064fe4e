//! Names for buckets: 128 bits of SipHash-1-3 under a secret, in place of the key itself.
//!
//! Without the secret, no client can aim at a shard, at an overflow bucket or at another
//! caller's bucket. Every part of a key is preceded by its kind and its length, so that no two
//! lists of parts feed the hash the same bytes. The same secret names the same buckets: keep the
//! hasher across reloads and the buckets stay, keep the secret across restarts and they can.

use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

use siphasher::sip128::{Hasher128 as _, SipHasher13};

/// Names a bucket: a keyed hash over the limit's name, its algorithm and the key's parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BucketId(pub u128);

/// A map by bucket. The name is a keyed hash already, so it is not hashed again.
pub type BucketMap<V> = hashbrown::HashMap<BucketId, V, BuildHasherDefault<NameHasher>>;

/// Takes the low half of a name for its hash.
#[derive(Debug, Clone, Copy, Default)]
pub struct NameHasher(u64);

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        // Not used for names, and right for anything else.
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u128(&mut self, name: u128) {
        self.0 = name as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Makes [`BucketId`]s.
#[derive(Clone)]
pub struct BucketHasher {
    keyed: SipHasher13,
}

/// A bucket's name in the making: one call of [`BucketIdBuilder::part`] for each part of the key.
#[derive(Clone)]
pub struct BucketIdBuilder {
    hasher: SipHasher13,
}

impl BucketHasher {
    /// A hasher with a secret of its own.
    ///
    /// # Errors
    /// If the system has no randomness to give.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut secret = [0; 16];
        getrandom::fill(&mut secret)?;
        Ok(Self::with_secret(&secret))
    }

    /// A hasher that agrees with every other of the same secret.
    pub fn with_secret(secret: &[u8; 16]) -> Self {
        Self { keyed: SipHasher13::new_with_key(secret) }
    }

    /// What another hasher needs to agree with this one. A client that knows it could aim at buckets.
    pub fn secret(&self) -> [u8; 16] {
        self.keyed.key()
    }

    /// What all buckets of a limit start from. A limit that changes its algorithm starts afresh.
    pub fn limit_prefix(&self, name: &str, algorithm: &str) -> u64 {
        let mut hasher = self.keyed;
        hasher.write_usize(name.len());
        hasher.write(name.as_bytes());
        hasher.write(algorithm.as_bytes());
        hasher.finish()
    }

    /// What all buckets of a plan start from that has numbers of its own for the limit.
    pub fn plan_prefix(&self, limit_prefix: u64, plan: &str) -> u64 {
        let mut name = self.start(limit_prefix);
        name.part(0, plan.as_bytes());
        name.finish().0 as u64
    }

    #[inline]
    pub fn start(&self, limit_prefix: u64) -> BucketIdBuilder {
        let mut hasher = self.keyed;
        hasher.write_u64(limit_prefix);
        BucketIdBuilder { hasher }
    }
}

impl BucketIdBuilder {
    /// Adds a part. `kind` tells apart parts that may hold the same bytes, such as a user from a
    /// header and one from a cookie.
    #[inline]
    pub fn part(&mut self, kind: u8, bytes: &[u8]) {
        // Kind and length in one word: no part is as long as 2^56.
        self.hasher.write_u64(u64::from(kind) << 56 | bytes.len() as u64);
        self.hasher.write(bytes);
    }

    #[inline]
    pub fn finish(&self) -> BucketId {
        BucketId(self.hasher.finish128().as_u128())
    }
}

impl fmt::Debug for BucketHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BucketHasher")
    }
}

impl fmt::Debug for BucketIdBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BucketIdBuilder")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(parts: &[(u8, &str)]) -> BucketId {
        let hasher = BucketHasher::with_secret(&[7; 16]);
        let mut name = hasher.start(hasher.limit_prefix("per-user", "token_bucket"));
        for (kind, bytes) in parts {
            name.part(*kind, bytes.as_bytes());
        }
        name.finish()
    }

    #[test]
    fn parts_that_spell_the_same_text_are_different_keys() {
        let lists: [&[(u8, &str)]; 7] = [
            &[],
            &[(1, "")],
            &[(1, "a:bc")],
            &[(1, "a:b"), (1, "c")],
            &[(1, "a"), (1, "b:c")],
            &[(2, "a"), (1, "b:c")],
            &[(1, "a"), (1, "b:c"), (1, "")],
        ];
        for (i, one) in lists.iter().enumerate() {
            for other in &lists[..i] {
                assert_ne!(name(one), name(other), "{one:?} and {other:?}");
            }
        }
    }

    #[test]
    fn a_limit_is_its_name_and_its_algorithm() {
        let hasher = BucketHasher::with_secret(&[7; 16]);
        let one = hasher.limit_prefix("api", "token_bucket");
        assert_eq!(one, hasher.clone().limit_prefix("api", "token_bucket"));
        assert_ne!(one, hasher.limit_prefix("api", "fixed_window"));
        assert_ne!(one, hasher.limit_prefix("apit", "oken_bucket"));
    }

    #[test]
    fn a_hasher_of_the_same_secret_names_the_same_buckets() {
        let secret = *b"0123456789abcdef";
        let one = BucketHasher::with_secret(&secret);
        assert_eq!(one.secret(), secret);
        let other = BucketHasher::with_secret(&one.secret());
        assert_eq!(one.start(1).finish(), other.start(1).finish());
    }

    #[test]
    fn another_secret_names_another_bucket() {
        let one = BucketHasher::with_secret(&[1; 16]);
        let other = BucketHasher::with_secret(&[2; 16]);
        assert_ne!(one.start(1).finish(), other.start(1).finish());
    }
}
