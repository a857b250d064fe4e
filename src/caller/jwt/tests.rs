//! Tokens as issuers make them, and as others do.

mod forgeries;
mod issuer;
mod keys;
mod memory;
mod rotation;

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::config::settings::Secret;
use issuer::Issuer;

/// When all of this happens.
const NOW: u64 = 1_800_000_000;

const ALL: [JwtAlgorithm; 12] = {
    let mut all = [JwtAlgorithm::Hs256; 12];
    let mut at = 0;
    while at < all.len() {
        all[at] = JwtAlgorithm::NAMES[at].1;
        at += 1;
    }
    all
};

fn settings(keys: JwtKeys) -> Jwt {
    let (issuer, audience, leeway) = (None, None, Duration::ZERO);
    Jwt { keys, algorithms: ALL.to_vec(), issuer, audience, leeway, required: false }
}

fn secret(text: &str) -> JwtKeys {
    JwtKeys::Secret(Secret(text.to_owned()))
}

/// A verifier that knows these issuers by a set in a file.
fn knows(issuers: &[&Issuer]) -> Verifier {
    let file = Scratch::new(&issuer::jwks(issuers).to_string());
    Verifier::new(&settings(JwtKeys::JwksFile(file.0.clone()))).expect("usable keys")
}

/// Good for an hour.
fn claims() -> Value {
    json!({ "sub": "anna", "exp": NOW + 3600 })
}

fn subject(verified: &Result<Arc<Claims>, Rejection>) -> Result<String, Rejection> {
    verified.clone().map(|claims| claims.get("sub").unwrap_or_default().into_owned())
}

/// A file that goes with the test.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new(text: &str) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-jwt-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).expect("written");
        Scratch(path)
    }

    fn write(&self, text: &str) {
        std::fs::write(&self.0, text).expect("written");
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
