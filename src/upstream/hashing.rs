//! Consistent hashing: the same key goes to the same server, and when a server is gone only its own
//! keys move.
//!
//! This is weighted rendezvous hashing: each server has a score for each key, and the best one takes
//! it. A server's scores depend on nothing but its own address and weight, so whatever happens to
//! the others, no key moves between two servers that stay. It needs no table, and gateways with the
//! same servers agree, also across restarts.

use std::hash::Hasher as _;

use siphasher::sip::SipHasher13;

use crate::config::settings::Origin;

/// Fixed, so that gateways agree. Who can choose keys can choose one key, too, so a secret would keep
/// nobody from sending everything to one server.
const KEYS: (u64, u64) = (0x7765_6972_2e68_6173, 0x682d_6261_6c61_6e63);

/// What a request is hashed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyDigest(u64);

/// Makes a [`KeyDigest`] of the parts of a key.
#[derive(Debug)]
pub(crate) struct KeyHasher(SipHasher13);

impl KeyHasher {
    pub(crate) fn new() -> Self {
        KeyHasher(SipHasher13::new_with_keys(KEYS.0, KEYS.1))
    }

    /// Parts of different kinds or lengths never make the same key.
    pub(crate) fn part(&mut self, kind: u8, bytes: &[u8]) {
        self.0.write(&[kind]);
        self.0.write(&(bytes.len() as u64).to_le_bytes());
        self.0.write(bytes);
    }

    pub(crate) fn finish(&self) -> KeyDigest {
        KeyDigest(self.0.finish())
    }
}

/// A server's half of its scores.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServerSeed {
    seed: u64,
    weight: f64,
}

impl ServerSeed {
    pub(super) fn new(origin: &Origin, weight: u32) -> Self {
        let mut hasher = KeyHasher::new();
        hasher.part(0, origin.host.as_bytes());
        hasher.part(1, &origin.port.to_be_bytes());
        ServerSeed { seed: hasher.finish().0, weight: f64::from(weight) }
    }

    /// The server with the lowest takes the key. An exponential variable of the server's weight: the
    /// least of several is each one's with a probability proportional to its weight.
    pub(super) fn score(self, key: KeyDigest) -> f64 {
        let mixed = mix(self.seed ^ mix(key.0));
        // 53 bits make a number above 0 and at most 1.
        let unit = ((mixed >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        -unit.ln() / self.weight
    }
}

/// SplitMix64's last step: every bit of the result depends on every bit of the input.
pub(super) fn mix(value: u64) -> u64 {
    let mixed = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: u32) -> KeyDigest {
        let mut hasher = KeyHasher::new();
        hasher.part(1, &number.to_be_bytes());
        hasher.finish()
    }

    fn seed(port: u16, weight: u32) -> ServerSeed {
        ServerSeed::new(&Origin { host: "127.0.0.1".into(), port }, weight)
    }

    fn best(seeds: &[ServerSeed], key: u32) -> usize {
        let score = |at: &usize| seeds[*at].score(digest(key));
        (0..seeds.len()).min_by(|a, b| score(a).total_cmp(&score(b))).unwrap()
    }

    #[test]
    fn keys_are_shared_by_weight() {
        let seeds = [seed(1, 1), seed(2, 3)];
        let second = (0..10_000).filter(|key| best(&seeds, *key) == 1).count();
        assert!((7200..7800).contains(&second), "{second}");
    }

    #[test]
    fn only_the_keys_of_a_server_that_is_gone_move() {
        let all = [seed(1, 1), seed(2, 5), seed(3, 1), seed(4, 2)];
        let without = [all[0], all[2], all[3]];
        let mut moved = 0;
        for key in 0..2000 {
            match best(&all, key) {
                1 => moved += 1,
                before => assert_eq!(best(&without, key), before.saturating_sub(1)),
            }
        }
        assert!(moved > 900, "the largest had most of them: {moved}");
    }

    /// Gateways of other versions and machines have to agree on it.
    #[test]
    fn a_key_has_its_server_for_good() {
        let seeds = [seed(1, 1), seed(2, 1), seed(3, 1)];
        let chosen: Vec<usize> = (0..12).map(|key| best(&seeds, key)).collect();
        assert_eq!(chosen, [0, 0, 1, 1, 0, 1, 1, 0, 0, 0, 1, 2]);
    }
}
