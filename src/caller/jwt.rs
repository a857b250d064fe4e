//! Signed tokens, RFC 7519: who the caller is, on the word of an issuer whose keys are known.
//!
//! A token that does not verify is no identity, whatever is wrong with it, unless an upstream might
//! read it all the same: one that is [misspelled](is_misspelled) or too long is refused. Each key is
//! used with the algorithms that fit its type, that it says itself, and that the configuration lists:
//! what a token says of its algorithm chooses among these and never adds to them. So a token without
//! a signature, or one whose HMAC was made with a public key, verifies with nothing.
//!
//! A [`Verifier`] is shared by all workers. Each has a [`TokenCache`] in front of it, so that the
//! second request with a token costs a hash and a look-up in place of a signature, and so that tokens
//! that do not verify cost no more than a [budget]. Keys in a file or behind a URL change while
//! requests are served: [`Verifier::refresh_keys`] reads them again.

mod budget;
mod cache;
mod claims;
mod fetch;
mod key;
mod key_set;
mod refresh;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::decode_header;
use jsonwebtoken::errors::ErrorKind;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use smallvec::SmallVec;
use tokio::sync::Notify;

pub use cache::TokenCache;
pub use claims::Claims;
pub use key_set::KeyError;

use crate::config::settings::{Jwt, JwtAlgorithm, JwtKeys};
use claims::ClaimRules;
use key_set::KeySet;
use refresh::RefreshTiming;

/// Longer ones are refused unchecked. Header, claims and signature of a real one take a quarter.
pub const LONGEST: usize = 8 << 10;
/// A token that does not name its key is tried with so many at most: each costs a signature.
const MOST_TRIES: usize = 8;

/// Why a token is no identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    #[error("the token is longer than 8KiB")]
    TooLong,
    #[error("the token is malformed")]
    Malformed,
    #[error("the token demands an extension that is not known")]
    Critical,
    #[error("the token's algorithm is not accepted")]
    Algorithm,
    #[error("the token's key is not known")]
    UnknownKey,
    #[error("the token's signature is wrong")]
    Signature,
    #[error("the token has no valid time of expiry")]
    NoExpiry,
    #[error("the token has expired")]
    Expired,
    #[error("the token is not valid yet")]
    Early {
        /// The second from which it is.
        from: u64,
    },
    #[error("the token has another issuer")]
    Issuer,
    #[error("the token is meant for another audience")]
    Audience,
    /// Nothing is known of it: it may be as good as any.
    #[error("the token could not be checked: too many came that do not verify")]
    OverBudget,
}

/// Tells tokens of known issuers from others.
///
/// Keep it over a reload that leaves its settings as they are: a new one over a URL knows no keys
/// until it has fetched them.
#[derive(Debug)]
pub struct Verifier {
    algorithms: Vec<JwtAlgorithm>,
    rules: ClaimRules,
    source: JwtKeys,
    keys: ArcSwap<KeySet>,
    /// Notified when a token names a key that is not known: it may be a new one.
    wanted: Notify,
    /// Whether the keys could not be had the last time. Locked while they are exchanged.
    failing: Mutex<bool>,
    timing: RefreshTiming,
    signatures: AtomicU64,
}

/// A token that some keys may have signed.
#[derive(Debug)]
struct SigningCandidates {
    keys: Arc<KeySet>,
    /// The places of those that come into question: never none.
    indexes: SmallVec<[usize; MOST_TRIES]>,
    /// Whether it says which one it is.
    names_key: bool,
    has_kid: bool,
}

/// The claims of a token as they were signed.
type Payload = Map<String, Value>;

impl Verifier {
    /// Keys behind a URL are fetched by [`Verifier::refresh_keys`]; until it has them nothing verifies.
    ///
    /// # Errors
    /// If there are no keys that can be used, unless they are behind a URL.
    pub fn new(settings: &Jwt) -> Result<Self, KeyError> {
        let algorithms = &settings.algorithms;
        let keys = match &settings.keys {
            JwtKeys::Secret(secret) => KeySet::from_secret(secret.0.as_bytes(), algorithms)?,
            JwtKeys::Pem(pem) => KeySet::from_pem(pem, algorithms)?,
            JwtKeys::JwksFile(path) => KeySet::from_jwks(&read(path)?, algorithms)?,
            JwtKeys::JwksUrl(_) => KeySet::empty(),
        };
        Ok(Verifier {
            algorithms: algorithms.clone(),
            rules: ClaimRules::new(settings),
            source: settings.keys.clone(),
            keys: ArcSwap::from_pointee(keys),
            wanted: Notify::new(),
            failing: Mutex::new(false),
            timing: RefreshTiming::default(),
            signatures: AtomicU64::new(0),
        })
    }

    /// What a token says, if it can be believed at this second since the Unix epoch. However long
    /// that takes: [`TokenCache::verify`] has a budget.
    ///
    /// # Errors
    /// If it cannot: then it says nothing.
    pub fn verify(&self, token: &[u8], now: u64) -> Result<Arc<Claims>, Rejection> {
        let candidates = self.open(token)?;
        for index in &candidates.indexes {
            match self.signed(&candidates, *index, token) {
                Err(Rejection::Signature) => {}
                signed => return self.rules.read(signed?, now).map(Arc::new),
            }
        }
        self.note_no_signer(&candidates);
        Err(Rejection::Signature)
    }

    /// The keys that may have signed a token, in the order in which to try them.
    ///
    /// # Errors
    /// If it is no identity, whichever key has signed it.
    fn open(&self, token: &[u8]) -> Result<SigningCandidates, Rejection> {
        if token.len() > LONGEST {
            return Err(Rejection::TooLong);
        }
        let header = decode_header(token).map_err(|_| Rejection::Malformed)?;
        // RFC 7515 section 4.1.11: a token with an extension that is not understood must be rejected.
        if header.crit.is_some() {
            return Err(Rejection::Critical);
        }
        let accepted = self.algorithms.iter().any(|it| key::algorithm(*it) == header.alg);
        if !accepted {
            return Err(Rejection::Algorithm);
        }
        let keys = self.keys.load_full();
        let mut known = keys.named(header.kid.as_deref()).peekable();
        if known.peek().is_none() {
            // It may be a new one.
            self.wanted.notify_one();
            return Err(Rejection::UnknownKey);
        }
        let fitting = known.filter(|index| keys.key(*index).fits(header.alg));
        let indexes: SmallVec<[usize; MOST_TRIES]> = fitting.take(MOST_TRIES).collect();
        if indexes.is_empty() {
            return Err(Rejection::Algorithm);
        }
        let names_key =
            header.kid.is_some() && indexes.iter().all(|it| keys.key(*it).kid.is_some());
        Ok(SigningCandidates { keys, indexes, names_key, has_kid: header.kid.is_some() })
    }

    /// What a token says, if one of the keys has signed it.
    ///
    /// # Errors
    /// If this one has not, or what it has signed are no claims.
    fn signed(
        &self,
        candidates: &SigningCandidates,
        index: usize,
        token: &[u8],
    ) -> Result<Payload, Rejection> {
        self.signatures.fetch_add(1, Ordering::Relaxed);
        candidates.keys.key(index).decode(token).map_err(|error| match error.kind() {
            ErrorKind::InvalidSignature => Rejection::Signature,
            _ => Rejection::Malformed,
        })
    }

    /// None of a token's keys has signed it.
    fn note_no_signer(&self, candidates: &SigningCandidates) {
        // Without a name, a new key cannot be told from a forgery.
        if !candidates.has_kid {
            self.wanted.notify_one();
        }
    }

    /// A number that is another one whenever the keys are, here or in any other verifier.
    pub fn generation(&self) -> u64 {
        self.keys.load().generation
    }

    /// How many keys there are to verify with. None: nothing verifies.
    pub fn key_count(&self) -> usize {
        self.keys.load().len()
    }

    /// How many signatures were checked so far.
    pub fn signatures_checked(&self) -> u64 {
        self.signatures.load(Ordering::Relaxed)
    }
}

/// Whether a word of a header would be read as a token, signed or not: it begins with the three parts
/// of one, and some readers pass over what follows.
pub fn is_token(word: &[u8]) -> bool {
    let mut dots = memchr::memchr_iter(b'.', word).skip(1);
    let Some(_second) = dots.next() else { return false };
    let end = dots.next().unwrap_or(word.len());
    decode_header(&word[..end]).is_ok()
}

/// Whether it looks like a token, and is not in the one spelling of RFC 7515, section 2: three parts
/// in base64url without padding, unused bits zero. Decoders differ in what else they read: some know
/// both alphabets, pass over what is in neither, or drop a letter that makes no byte.
pub fn is_misspelled(token: &[u8]) -> bool {
    let mut parts = token.split(|byte| *byte == b'.');
    match parts.clone().count() {
        3 => parts.any(|part| URL_SAFE_NO_PAD.decode(part).is_err()),
        _ => is_token(token),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, KeyError> {
    let unreadable = |source| KeyError::Unreadable { path: path.to_owned(), source };
    key_set::read(path).map_err(unreadable)
}
