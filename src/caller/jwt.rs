//! Signed tokens, RFC 7519: who the caller is, on the word of an issuer whose keys are known.
//!
//! A token that does not verify is no identity, whatever is wrong with it. Each key is used with
//! the algorithms that fit its type, that it says itself, and that the configuration lists: what a
//! token says of its algorithm chooses among these and never adds to them. So a token without a
//! signature, or one whose HMAC was made with a public key, verifies with nothing.
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

/// Longer ones are refused unseen. Header, claims and signature of a real one take a quarter.
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

/// Whether a word of a header would be read as a token, signed or not.
pub fn is_token(word: &[u8]) -> bool {
    let dots = word.iter().filter(|byte| **byte == b'.').count();
    dots == 2 && word.len() <= LONGEST && decode_header(word).is_ok()
}

/// Whether it has the three parts of a token, and one of them is not in the one spelling of RFC 7515,
/// section 2: base64url without padding, unused bits zero. Some decoders take others for the same:
/// they know both alphabets, and pass over what is in neither.
pub fn is_misspelled(token: &[u8]) -> bool {
    let letter = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+/-_".contains(byte);
    let letters = |part: &[u8]| part.iter().filter(letter).count();
    let parts = || token.split(|byte| *byte == b'.');
    // One that is cut off is no signature to anybody: those of RSA, HMAC and most curves have a
    // multiple of 16 bytes, those of P-521 have 132.
    let is_signature = |part: &[u8]| {
        let bytes = letters(part) * 6 / 8;
        bytes > 0 && (bytes.is_multiple_of(16) || bytes == 132)
    };
    parts().count() == 3
        && parts().all(|part| letters(part) % 4 != 1)
        && parts().nth(2).is_some_and(is_signature)
        && parts().any(|part| URL_SAFE_NO_PAD.decode(part).is_err())
}

fn read(path: &Path) -> Result<Vec<u8>, KeyError> {
    let unreadable = |source| KeyError::Unreadable { path: path.to_owned(), source };
    key_set::read(path).map_err(unreadable)
}
