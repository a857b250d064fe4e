//! An issuer with a real key: makes tokens, and tells its public half in every form there is.

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair as _, RSA_PKCS1_SHA256, RSA_PSS_SHA384, RsaEncoding, RsaKeyPair,
    RsaPublicKeyComponents,
};
use aws_lc_rs::{encoding::PublicKeyX509Der, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

pub(super) struct Issuer {
    pub(super) kid: &'static str,
    key: Pair,
}

enum Pair {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair, &'static str),
    Ed(Ed25519KeyPair),
    Secret(Vec<u8>),
}

impl Issuer {
    pub(super) fn rsa(kid: &'static str) -> Self {
        Issuer { kid, key: Pair::Rsa(RsaKeyPair::generate(KeySize::Rsa2048).expect("a key")) }
    }

    pub(super) fn p256(kid: &'static str) -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key");
        Issuer { kid, key: Pair::Ec(pair, "P-256") }
    }

    pub(super) fn p384(kid: &'static str) -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).expect("a key");
        Issuer { kid, key: Pair::Ec(pair, "P-384") }
    }

    pub(super) fn ed25519(kid: &'static str) -> Self {
        Issuer { kid, key: Pair::Ed(Ed25519KeyPair::generate().expect("a key")) }
    }

    pub(super) fn secret(kid: &'static str, secret: &[u8]) -> Self {
        Issuer { kid, key: Pair::Secret(secret.to_vec()) }
    }

    /// What its tokens are signed with if nobody asks for anything else.
    pub(super) fn algorithm(&self) -> &'static str {
        match &self.key {
            Pair::Rsa(_) => "RS256",
            Pair::Ec(_, "P-384") => "ES384",
            Pair::Ec(..) => "ES256",
            Pair::Ed(_) => "EdDSA",
            Pair::Secret(_) => "HS256",
        }
    }

    /// A token as it should be.
    pub(super) fn token(&self, claims: &Value) -> String {
        self.sign(&json!({ "typ": "JWT", "alg": self.algorithm(), "kid": self.kid }), claims)
    }

    /// A token that does not tell its key.
    pub(super) fn nameless(&self, claims: &Value) -> String {
        self.sign(&json!({ "alg": self.algorithm() }), claims)
    }

    /// A token with a header of one's choice.
    pub(super) fn sign(&self, header: &Value, claims: &Value) -> String {
        let message = format!("{}.{}", encode(header), encode(claims));
        let signature = self.signature(&message, header["alg"].as_str().unwrap_or_default());
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn signature(&self, message: &str, algorithm: &str) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.key {
            Pair::Rsa(pair) => {
                let padding: &dyn RsaEncoding =
                    if algorithm == "PS384" { &RSA_PSS_SHA384 } else { &RSA_PKCS1_SHA256 };
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(padding, &random, message.as_bytes(), &mut signature).expect("signed");
                signature
            }
            Pair::Ec(pair, _) => {
                pair.sign(&random, message.as_bytes()).expect("signed").as_ref().to_vec()
            }
            Pair::Ed(pair) => pair.sign(message.as_bytes()).as_ref().to_vec(),
            Pair::Secret(secret) => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
                hmac::sign(&key, message.as_bytes()).as_ref().to_vec()
            }
        }
    }

    pub(super) fn jwk(&self) -> Value {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let mut jwk = match &self.key {
            Pair::Rsa(pair) => {
                let RsaPublicKeyComponents { n, e } =
                    RsaPublicKeyComponents::<Vec<u8>>::from(pair.public_key());
                json!({ "kty": "RSA", "use": "sig", "n": text(&n), "e": text(&e) })
            }
            Pair::Ec(pair, curve) => {
                let point = &pair.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                json!({ "kty": "EC", "crv": curve, "x": text(x), "y": text(y) })
            }
            Pair::Ed(pair) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "x": text(pair.public_key().as_ref()) })
            }
            Pair::Secret(secret) => json!({ "kty": "oct", "k": text(secret) }),
        };
        jwk["kid"] = self.kid.into();
        jwk
    }

    /// Its public key, in X.509's form.
    pub(super) fn der(&self) -> Vec<u8> {
        let der: PublicKeyX509Der<'_> = match &self.key {
            Pair::Rsa(pair) => pair.public_key().as_der().expect("encoded"),
            Pair::Ec(pair, _) => pair.public_key().as_der().expect("encoded"),
            Pair::Ed(pair) => pair.public_key().as_der().expect("encoded"),
            Pair::Secret(_) => panic!("a secret has no public half"),
        };
        der.as_ref().to_vec()
    }

    pub(super) fn pem(&self) -> String {
        pem("PUBLIC KEY", &self.der())
    }
}

pub(super) fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).map(|it| std::str::from_utf8(it).expect("ASCII")).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

pub(super) fn jwks(issuers: &[&Issuer]) -> Value {
    json!({ "keys": issuers.iter().map(|it| it.jwk()).collect::<Vec<_>>() })
}

pub(super) fn encode(part: &Value) -> String {
    URL_SAFE_NO_PAD.encode(part.to_string())
}
