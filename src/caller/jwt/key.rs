//! One key, and the algorithms it may be used with.

use aws_lc_rs::rsa;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, ParsedPublicKey,
    RsaPublicKeyComponents, VerificationAlgorithm,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, errors};
use serde_json::{Map, Value};

use crate::config::settings::JwtAlgorithm;

/// What is shorter can be broken, and what is longer keeps us busy: in bytes.
const RSA_MODULUS: std::ops::RangeInclusive<usize> = 256..=1024;

#[derive(Debug)]
pub(super) struct VerifyKey {
    /// Its name, by which tokens tell with which key they were signed.
    pub(super) kid: Option<String>,
    key: DecodingKey,
    /// Has the algorithms, never none of them.
    validation: Validation,
    /// What a signature costs that turns out wrong, in microseconds: an estimate.
    pub(super) cost: u32,
}

/// A key's type, which says what it can be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyKind {
    Secret,
    Rsa,
    P256,
    P384,
    Ed25519,
}

impl KeyKind {
    fn algorithms(self) -> &'static [JwtAlgorithm] {
        use JwtAlgorithm::*;
        match self {
            KeyKind::Secret => &[Hs256, Hs384, Hs512],
            KeyKind::Rsa => &[Rs256, Rs384, Rs512, Ps256, Ps384, Ps512],
            KeyKind::P256 => &[Es256],
            KeyKind::P384 => &[Es384],
            KeyKind::Ed25519 => &[EdDsa],
        }
    }

    /// In microseconds, RSA's of the shortest key.
    fn cost(self) -> u32 {
        match self {
            KeyKind::Secret => 2,
            KeyKind::Rsa => 25,
            KeyKind::P256 | KeyKind::Ed25519 => 60,
            KeyKind::P384 => 300,
        }
    }
}

impl VerifyKey {
    /// `None` if there is no algorithm that fits, or nothing secret about it.
    pub(super) fn from_secret(secret: &[u8], accepted: &[JwtAlgorithm]) -> Option<Self> {
        let key = DecodingKey::from_secret(secret);
        if secret.is_empty() { None } else { VerifyKey::new(KeyKind::Secret, key, accepted) }
    }

    /// A public key as X.509 has it, RFC 5280 section 4.1.2.7.
    pub(super) fn from_spki(der: &[u8], accepted: &[JwtAlgorithm]) -> Option<Self> {
        if let Ok(key) = rsa::PublicKey::from_der(der) {
            let RsaPublicKeyComponents { n, e } = RsaPublicKeyComponents::<Vec<u8>>::from(&key);
            return VerifyKey::from_rsa(&n, &e, accepted);
        }
        let curves = [KeyKind::P256, KeyKind::P384, KeyKind::Ed25519];
        curves.into_iter().find_map(|kind| VerifyKey::from_point(kind, der, accepted))
    }

    /// A key of a JWK set, RFC 7517 section 4. `None` if it is for something else.
    pub(super) fn from_jwk(jwk: Value, accepted: &[JwtAlgorithm]) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(jwk).ok()?;
        let common = jwk.common;
        let signs = |it: &PublicKeyUse| *it == PublicKeyUse::Signature;
        let verifies = |it: &Vec<KeyOperations>| it.contains(&KeyOperations::Verify);
        if !common.public_key_use.as_ref().is_none_or(signs)
            || !common.key_operations.as_ref().is_none_or(verifies)
        {
            return None;
        }
        // It may say itself what it is to be used with.
        let accepted: Vec<JwtAlgorithm> = match common.key_algorithm {
            None => accepted.to_vec(),
            Some(own) => {
                let own = Algorithm::try_from(own).ok()?;
                accepted.iter().copied().filter(|it| algorithm(*it) == own).collect()
            }
        };
        let bytes = |text: &str| URL_SAFE_NO_PAD.decode(text).ok();
        let key = match &jwk.algorithm {
            AlgorithmParameters::RSA(it) => {
                VerifyKey::from_rsa(&bytes(&it.n)?, &bytes(&it.e)?, &accepted)
            }
            AlgorithmParameters::EllipticCurve(it) => {
                let kind = match it.curve {
                    EllipticCurve::P256 => KeyKind::P256,
                    EllipticCurve::P384 => KeyKind::P384,
                    _ => return None,
                };
                // Uncompressed, SEC 1 section 2.3.3.
                let point = [vec![4], bytes(&it.x)?, bytes(&it.y)?].concat();
                VerifyKey::from_point(kind, &point, &accepted)
            }
            AlgorithmParameters::OctetKeyPair(it) if it.curve == EllipticCurve::Ed25519 => {
                VerifyKey::from_point(KeyKind::Ed25519, &bytes(&it.x)?, &accepted)
            }
            AlgorithmParameters::OctetKey(it) => {
                VerifyKey::from_secret(&bytes(&it.value)?, &accepted)
            }
            _ => None,
        };
        key.map(|key| VerifyKey { kid: common.key_id, ..key })
    }

    fn from_rsa(n: &[u8], e: &[u8], accepted: &[JwtAlgorithm]) -> Option<Self> {
        let zeros = n.iter().take_while(|byte| **byte == 0).count();
        let fits = RSA_MODULUS.contains(&(n.len() - zeros)) && !e.is_empty();
        let key = DecodingKey::from_rsa_raw_components(&n[zeros..], e);
        let key = if fits { VerifyKey::new(KeyKind::Rsa, key, accepted) } else { None };
        // Twice as long a number takes four times as long to multiply.
        let times = u32::try_from(n.len() / 256).unwrap_or(u32::MAX);
        key.map(|key| VerifyKey {
            cost: key.cost.saturating_mul(times.saturating_pow(2).max(1)),
            ..key
        })
    }

    /// A point of a curve, bare or as X.509 has it.
    fn from_point(kind: KeyKind, point: &[u8], accepted: &[JwtAlgorithm]) -> Option<Self> {
        let (curve, key): (&'static dyn VerificationAlgorithm, _) = match kind {
            KeyKind::P256 => (&ECDSA_P256_SHA256_FIXED, DecodingKey::from_ec_der(point)),
            KeyKind::P384 => (&ECDSA_P384_SHA384_FIXED, DecodingKey::from_ec_der(point)),
            KeyKind::Ed25519 => (&ED25519, DecodingKey::from_ed_der(point)),
            KeyKind::Secret | KeyKind::Rsa => return None,
        };
        ParsedPublicKey::new(curve, point).ok()?;
        VerifyKey::new(kind, key, accepted)
    }

    fn new(kind: KeyKind, key: DecodingKey, accepted: &[JwtAlgorithm]) -> Option<Self> {
        let fitting = kind.algorithms().iter().filter(|it| accepted.contains(it));
        let algorithms: Vec<Algorithm> = fitting.map(|it| algorithm(*it)).collect();
        let mut validation = Validation::new(*algorithms.first()?);
        validation.algorithms = algorithms;
        // Its claims are judged by our own clock, and by terms that are the same for all keys.
        validation.validate_exp = false;
        validation.validate_aud = false;
        validation.required_spec_claims.clear();
        Some(VerifyKey { kid: None, key, validation, cost: kind.cost() })
    }

    pub(super) fn fits(&self, algorithm: Algorithm) -> bool {
        self.validation.algorithms.contains(&algorithm)
    }

    /// The claims of a token, if this key has signed it.
    pub(super) fn decode(&self, token: &[u8]) -> errors::Result<Map<String, Value>> {
        decode(token, &self.key, &self.validation).map(|token| token.claims)
    }
}

pub(super) fn algorithm(name: JwtAlgorithm) -> Algorithm {
    match name {
        JwtAlgorithm::Hs256 => Algorithm::HS256,
        JwtAlgorithm::Hs384 => Algorithm::HS384,
        JwtAlgorithm::Hs512 => Algorithm::HS512,
        JwtAlgorithm::Rs256 => Algorithm::RS256,
        JwtAlgorithm::Rs384 => Algorithm::RS384,
        JwtAlgorithm::Rs512 => Algorithm::RS512,
        JwtAlgorithm::Ps256 => Algorithm::PS256,
        JwtAlgorithm::Ps384 => Algorithm::PS384,
        JwtAlgorithm::Ps512 => Algorithm::PS512,
        JwtAlgorithm::Es256 => Algorithm::ES256,
        JwtAlgorithm::Es384 => Algorithm::ES384,
        JwtAlgorithm::EdDsa => Algorithm::EdDSA,
    }
}
