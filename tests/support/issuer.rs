//! Issuers of tokens with real keys, and a server that publishes their public halves as an OpenID
//! provider does.

use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::encoding::{AsDer as _, PublicKeyX509Der};
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair, RsaPublicKeyComponents,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::upstream::{Upstream, ok};

#[derive(Debug)]
pub(crate) struct Issuer {
    kid: &'static str,
    key: Pair,
}

#[derive(Debug)]
enum Pair {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
    Ec384(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
    Secret(Vec<u8>),
}

impl Issuer {
    pub(crate) fn rsa(kid: &'static str) -> Issuer {
        Issuer { kid, key: Pair::Rsa(RsaKeyPair::generate(KeySize::Rsa2048).unwrap()) }
    }

    pub(crate) fn p256(kid: &'static str) -> Issuer {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        Issuer { kid, key: Pair::Ec(pair) }
    }

    pub(crate) fn p384(kid: &'static str) -> Issuer {
        let pair = EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).unwrap();
        Issuer { kid, key: Pair::Ec384(pair) }
    }

    pub(crate) fn ed25519(kid: &'static str) -> Issuer {
        Issuer { kid, key: Pair::Ed(Ed25519KeyPair::generate().unwrap()) }
    }

    pub(crate) fn secret(kid: &'static str, secret: &[u8]) -> Issuer {
        Issuer { kid, key: Pair::Secret(secret.to_vec()) }
    }

    /// What its tokens are signed with.
    pub(crate) fn algorithm(&self) -> &'static str {
        match &self.key {
            Pair::Rsa(_) => "RS256",
            Pair::Ec(_) => "ES256",
            Pair::Ec384(_) => "ES384",
            Pair::Ed(_) => "EdDSA",
            Pair::Secret(_) => "HS256",
        }
    }

    /// A token as it should be.
    pub(crate) fn token(&self, claims: &Value) -> String {
        self.sign(&json!({ "typ": "JWT", "alg": self.algorithm(), "kid": self.kid }), claims)
    }

    /// A token with a header of one's choice, signed all the same.
    pub(crate) fn sign(&self, header: &Value, claims: &Value) -> String {
        let message = unsigned(header, claims);
        let signature = self.signature(message.as_bytes());
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn signature(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.key {
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).unwrap();
                signature
            }
            Pair::Ec(pair) | Pair::Ec384(pair) => {
                pair.sign(&random, message).unwrap().as_ref().to_vec()
            }
            Pair::Ed(pair) => pair.sign(message).as_ref().to_vec(),
            Pair::Secret(secret) => {
                hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message).as_ref().to_vec()
            }
        }
    }

    pub(crate) fn jwk(&self) -> Value {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let mut jwk = match &self.key {
            Pair::Rsa(pair) => {
                let RsaPublicKeyComponents { n, e } =
                    RsaPublicKeyComponents::<Vec<u8>>::from(pair.public_key());
                json!({ "kty": "RSA", "n": text(&n), "e": text(&e) })
            }
            Pair::Ec(pair) => {
                // An uncompressed point: a 4, and its two halves.
                let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
                json!({ "kty": "EC", "crv": "P-256", "x": text(x), "y": text(y) })
            }
            Pair::Ec384(pair) => {
                let (x, y) = pair.public_key().as_ref()[1..].split_at(48);
                json!({ "kty": "EC", "crv": "P-384", "x": text(x), "y": text(y) })
            }
            Pair::Ed(pair) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "x": text(pair.public_key().as_ref()) })
            }
            Pair::Secret(_) => panic!("a secret has no public half"),
        };
        jwk["kid"] = self.kid.into();
        jwk["alg"] = self.algorithm().into();
        jwk["use"] = "sig".into();
        jwk
    }

    /// Its public key, in X.509's form.
    pub(crate) fn der(&self) -> Vec<u8> {
        let der: PublicKeyX509Der<'_> = match &self.key {
            Pair::Rsa(pair) => pair.public_key().as_der().unwrap(),
            Pair::Ec(pair) | Pair::Ec384(pair) => pair.public_key().as_der().unwrap(),
            Pair::Ed(pair) => pair.public_key().as_der().unwrap(),
            Pair::Secret(_) => panic!("a secret has no public half"),
        };
        der.as_ref().to_vec()
    }

    pub(crate) fn pem(&self) -> String {
        let text = STANDARD.encode(self.der());
        let lines: Vec<&str> =
            text.as_bytes().chunks(64).map(|it| std::str::from_utf8(it).unwrap()).collect();
        format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", lines.join("\n"))
    }
}

/// The two parts of a token that are signed.
pub(crate) fn unsigned(header: &Value, claims: &Value) -> String {
    let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
    format!("{}.{}", encode(header), encode(claims))
}

/// The time in the unit of tokens.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// The claims of a token of that user, valid for an hour.
pub(crate) fn claims(user: &str) -> Value {
    json!({ "sub": user, "exp": now() + 3600 })
}

/// The header line that carries a token.
pub(crate) fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

pub(crate) fn jwks(issuers: &[&Issuer]) -> String {
    json!({ "keys": issuers.iter().map(|it| it.jwk()).collect::<Vec<_>>() }).to_string()
}

/// Serves a JWK set.
#[derive(Debug)]
pub(crate) struct KeyServer {
    upstream: Upstream,
    answer: Arc<Mutex<Vec<u8>>>,
}

impl KeyServer {
    pub(crate) fn start(issuers: &[&Issuer]) -> KeyServer {
        let answer = Arc::new(Mutex::new(ok(&jwks(issuers))));
        let shared = Arc::clone(&answer);
        let upstream = Upstream::replying(move |request| {
            assert_eq!((&*request.method, &*request.target), ("GET", "/.well-known/jwks.json"));
            shared.lock().unwrap().clone()
        });
        KeyServer { upstream, answer }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/.well-known/jwks.json", self.upstream.address())
    }

    /// Serves the keys of others from here on.
    pub(crate) fn serves(&self, issuers: &[&Issuer]) {
        self.answers(&ok(&jwks(issuers)));
    }

    /// Answers with these bytes from here on.
    pub(crate) fn answers(&self, bytes: &[u8]) {
        *self.answer.lock().unwrap() = bytes.to_vec();
    }

    /// How often it was asked.
    pub(crate) fn asked(&self) -> usize {
        self.upstream.heads()
    }
}
