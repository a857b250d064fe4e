//! What a worker remembers of tokens: those that verified, and for a moment those that did not.
//!
//! A token is known by 128 bits of SipHash under a secret of the worker's own, so nobody can make
//! another that is taken for it. An answer holds as long as the token does, and only for the keys
//! that it was found with. Both memories are bounded and kept apart: a flood of bad tokens pushes
//! no good one out.

use std::cell::RefCell;
use std::fmt;
use std::hash::Hasher as _;
use std::net::IpAddr;
use std::sync::Arc;

use hashbrown::HashMap;
use siphasher::sip128::{Hasher128 as _, SipHasher24};
use tokio::sync::Mutex;

use super::budget::{CallerIndex, SignatureBudget};
use super::{Claims, LONGEST, Rejection, SigningCandidates, Verifier};

/// Tokens that verified.
const MOST_GOOD: usize = 8192;
/// Tokens that did not.
const MOST_BAD: usize = 4096;
/// For how many seconds a rejection is repeated without checking again.
const REJECTION_SECONDS: u64 = 10;

/// One worker's memory of tokens.
pub struct TokenCache {
    /// The slower SipHash: this one stands in for a signature.
    keyed: SipHasher24,
    memory: RefCell<TokenMemory>,
    budget: RefCell<SignatureBudget>,
    /// Of the tokens that several keys may have signed, one at a time is tried.
    turn: Mutex<()>,
}

struct TokenMemory {
    generation: u64,
    good: RecentTable<Arc<Claims>>,
    bad: RecentTable<RejectedToken>,
}

#[derive(Clone, Copy)]
struct RejectedToken {
    rejection: Rejection,
    /// From this second on it is looked at again.
    until: u64,
}

impl TokenCache {
    /// A memory whose hashes nobody can foresee who does not know the secret.
    pub fn new(secret: &[u8; 16]) -> Self {
        Self::with_room(secret, MOST_GOOD, MOST_BAD)
    }

    fn with_room(secret: &[u8; 16], good: usize, bad: usize) -> Self {
        let memory =
            TokenMemory { generation: 0, good: RecentTable::new(good), bad: RecentTable::new(bad) };
        TokenCache {
            keyed: SipHasher24::new_with_key(secret),
            memory: RefCell::new(memory),
            budget: RefCell::default(),
            turn: Mutex::new(()),
        }
    }

    /// What [`TokenCache::verify`] has said of a token, if that still holds.
    pub fn recall(
        &self,
        verifier: &Verifier,
        token: &[u8],
        now: u64,
    ) -> Option<Result<Arc<Claims>, Rejection>> {
        if token.len() > LONGEST {
            return Some(Err(Rejection::TooLong));
        }
        let id = self.id(token);
        let mut memory = self.memory.borrow_mut();
        memory.reset_if_keys_changed(verifier.generation());
        if let Some(claims) = memory.good.get(id).filter(|claims| claims.holds_at(now)) {
            return Some(Ok(claims.clone()));
        }
        memory.bad.get(id).filter(|bad| now < bad.until).map(|bad| Err(bad.rejection))
    }

    /// What [`Verifier::verify`] says, or has said, as long as there is a budget for it. `clock` tells
    /// the second since the Unix epoch.
    ///
    /// Other requests wait for one signature at most: the task yields between two, and tokens that take
    /// several are checked one after another.
    ///
    /// # Errors
    /// If the token is no identity, or could not be checked.
    pub async fn verify(
        &self,
        verifier: &Verifier,
        token: &[u8],
        caller: IpAddr,
        clock: impl Fn() -> u64,
    ) -> Result<Arc<Claims>, Rejection> {
        if let Some(known) = self.recall(verifier, token, clock()) {
            return known;
        }
        // Read before the keys are used: an answer of older keys is never kept for newer ones.
        let generation = verifier.generation();
        let verified = match verifier.open(token) {
            Ok(candidates) if candidates.indexes.len() == 1 => {
                self.attempt(verifier, &candidates, token, caller, &clock).await
            }
            Ok(candidates) => {
                let caller_index = self.caller_index(caller);
                if !self.has_budget(&candidates, caller_index, clock()) {
                    return Err(Rejection::OverBudget);
                }
                let _turn = self.turn.lock().await;
                // Another request may have had it checked meanwhile.
                if let Some(known) = self.recall(verifier, token, clock()) {
                    return known;
                }
                self.attempt(verifier, &candidates, token, caller, &clock).await
            }
            Err(rejection) => Err(rejection),
        };
        self.note(self.id(token), &verified, generation, clock());
        verified
    }

    /// Tries one key after the other.
    async fn attempt(
        &self,
        verifier: &Verifier,
        candidates: &SigningCandidates,
        token: &[u8],
        caller: IpAddr,
        clock: impl Fn() -> u64,
    ) -> Result<Arc<Claims>, Rejection> {
        let caller_index = self.caller_index(caller);
        if !self.has_budget(candidates, caller_index, clock()) {
            return Err(Rejection::OverBudget);
        }
        for (tried, index) in candidates.indexes.iter().enumerate() {
            if tried > 0 {
                tokio::task::yield_now().await;
            }
            match verifier.signed(candidates, *index, token) {
                Err(Rejection::Signature) => {}
                signed => return verifier.rules.read(signed?, clock()).map(Arc::new),
            }
        }
        // Charged only if none has signed it.
        let (now, mut budget) = (clock(), self.budget.borrow_mut());
        for index in &candidates.indexes {
            budget.spend(now, caller_index, *index, candidates.keys.key(*index).cost);
        }
        verifier.note_no_signer(candidates);
        Err(Rejection::Signature)
    }

    fn has_budget(&self, candidates: &SigningCandidates, caller: CallerIndex, now: u64) -> bool {
        let keys = candidates.indexes.iter().copied();
        self.budget.borrow_mut().allows(now, caller, keys, candidates.names_key)
    }

    fn caller_index(&self, caller: IpAddr) -> CallerIndex {
        CallerIndex::of(caller, |bytes| self.id(bytes))
    }

    fn note(&self, id: u128, verified: &Result<Arc<Claims>, Rejection>, generation: u64, now: u64) {
        let mut memory = self.memory.borrow_mut();
        if memory.generation != generation {
            return;
        }
        match verified {
            Ok(claims) => memory.good.insert(id, claims.clone()),
            Err(Rejection::OverBudget) => {}
            Err(rejection) => {
                memory.good.remove(id);
                let until = match rejection {
                    Rejection::Early { from } => now.saturating_add(REJECTION_SECONDS).min(*from),
                    _ => now.saturating_add(REJECTION_SECONDS),
                };
                memory.bad.insert(id, RejectedToken { rejection: *rejection, until });
            }
        }
    }

    fn id(&self, token: &[u8]) -> u128 {
        let mut hasher = self.keyed;
        hasher.write(token);
        hasher.finish128().as_u128()
    }
}

/// Without the secret, and without what callers are called.
impl fmt::Debug for TokenCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenCache")
    }
}

impl TokenMemory {
    fn reset_if_keys_changed(&mut self, generation: u64) {
        if self.generation != generation {
            self.generation = generation;
            self.good.clear();
            self.bad.clear();
        }
    }
}

/// A bounded table in two halves. What is asked for moves to the younger one; when that is full
/// it becomes the older, and what nobody has asked for since is forgotten.
struct RecentTable<T> {
    half: usize,
    young: HashMap<u128, T>,
    old: HashMap<u128, T>,
}

impl<T> RecentTable<T> {
    fn new(most: usize) -> Self {
        RecentTable { half: most / 2, young: HashMap::new(), old: HashMap::new() }
    }

    fn get(&mut self, id: u128) -> Option<&T> {
        if !self.old.is_empty()
            && let Some(value) = self.old.remove(&id)
        {
            self.insert(id, value);
        }
        self.young.get(&id)
    }

    fn insert(&mut self, id: u128, value: T) {
        if self.young.len() >= self.half && !self.young.contains_key(&id) {
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
        }
        self.young.insert(id, value);
    }

    fn remove(&mut self, id: u128) {
        self.young.remove(&id);
        self.old.remove(&id);
    }

    fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_stays_and_what_is_not_goes() {
        let mut recent = RecentTable::new(8);
        for id in 0..1000_u128 {
            recent.insert(id, id);
            assert_eq!(recent.get(0), Some(&0), "after {id}");
            assert!(recent.young.len() + recent.old.len() <= 8, "after {id}");
        }
        assert_eq!(recent.get(1), None);
        assert_eq!(recent.get(999), Some(&999));
        recent.remove(999);
        recent.remove(0);
        assert!(recent.get(999).is_none() && recent.get(0).is_none());
    }

    #[test]
    fn each_worker_knows_tokens_by_names_of_its_own() {
        let [one, other] = [TokenCache::new(&[1; 16]), TokenCache::new(&[2; 16])];
        assert_eq!(one.id(b"token"), one.id(b"token"));
        assert_ne!(one.id(b"token"), other.id(b"token"));
        assert_ne!(one.id(b"token"), one.id(b"token."));
    }
}
