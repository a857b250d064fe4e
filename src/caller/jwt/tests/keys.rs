//! Keys in all their forms, and which of them a token is verified with.

use super::issuer::{Issuer, pem};
use super::*;

const SECRET: &str = "0123456789abcdef0123456789abcdef";

fn all() -> [Issuer; 5] {
    [
        Issuer::rsa("rsa"),
        Issuer::p256("p256"),
        Issuer::p384("p384"),
        Issuer::ed25519("ed"),
        Issuer::secret("oct", SECRET.as_bytes()),
    ]
}

#[test]
fn every_kind_of_key_verifies_its_own_tokens() {
    let all = all();
    let verifier = knows(&all.each_ref());
    assert_eq!(verifier.key_count(), 5);
    for issuer in &all {
        for token in [issuer.token(&claims()), issuer.nameless(&claims())] {
            let verified = verifier.verify(token.as_bytes(), NOW);
            assert_eq!(subject(&verified), Ok("anna".to_owned()), "{}", issuer.kid);
        }
    }
    assert_eq!(verifier.signatures_checked(), 10, "no key was tried that does not fit");
}

#[test]
fn a_pem_file_has_public_keys_or_certificates() {
    let all = all();
    for issuer in &all[..4] {
        let keys = JwtKeys::Pem(issuer.pem().into_bytes());
        let verifier = Verifier::new(&settings(keys)).expect("a public key");
        let verified = verifier.verify(issuer.token(&claims()).as_bytes(), NOW);
        assert_eq!(subject(&verified), Ok("anna".to_owned()), "{}", issuer.kid);
    }
    let several: String = all[..4].iter().map(Issuer::pem).collect();
    let verifier = Verifier::new(&settings(JwtKeys::Pem(several.into_bytes()))).unwrap();
    assert_eq!(verifier.key_count(), 4);

    let certified = rcgen::generate_simple_self_signed(["issuer.example".to_owned()]).unwrap();
    let keys = JwtKeys::Pem(certified.cert.pem().into_bytes());
    assert_eq!(Verifier::new(&settings(keys)).unwrap().key_count(), 1);
    let private = certified.signing_key.serialize_pem();
    for wrong in [private, String::new(), "x".to_owned(), pem("PUBLIC KEY", b"")] {
        let keys = JwtKeys::Pem(wrong.clone().into_bytes());
        assert!(Verifier::new(&settings(keys)).is_err(), "{}", wrong.len());
    }
}

#[test]
fn a_secret_is_for_hmac_and_must_be_one() {
    let verifier = Verifier::new(&settings(secret(SECRET))).unwrap();
    let issuer = Issuer::secret("any", SECRET.as_bytes());
    assert!(verifier.verify(issuer.token(&claims()).as_bytes(), NOW).is_ok());
    let other = Issuer::secret("any", b"another").token(&claims());
    assert_eq!(verifier.verify(other.as_bytes(), NOW).unwrap_err(), Rejection::Signature);
    assert!(matches!(Verifier::new(&settings(secret(""))), Err(KeyError::NoKey)));
    let algorithms = vec![JwtAlgorithm::Rs256, JwtAlgorithm::EdDsa];
    let unfit = Verifier::new(&Jwt { algorithms, ..settings(secret(SECRET)) });
    assert!(matches!(unfit, Err(KeyError::NoKey)));
}

#[test]
fn a_named_key_is_the_only_one_that_is_tried() {
    let [one, two] = [Issuer::p256("one"), Issuer::p256("two")];
    let verifier = knows(&[&one, &two]);
    let header = json!({ "alg": "ES256", "kid": "one" });
    let token = two.sign(&header, &claims());
    assert_eq!(verifier.verify(token.as_bytes(), NOW).unwrap_err(), Rejection::Signature);
    assert_eq!(verifier.signatures_checked(), 1);
    let unknown = two.sign(&json!({ "alg": "ES256", "kid": "three" }), &claims());
    assert_eq!(verifier.verify(unknown.as_bytes(), NOW).unwrap_err(), Rejection::UnknownKey);
    assert_eq!(verifier.signatures_checked(), 1);
    assert!(verifier.verify(two.nameless(&claims()).as_bytes(), NOW).is_ok());
}

#[test]
fn a_nameless_token_costs_a_few_signatures_at_most() {
    let issuers: Vec<Issuer> = (0..20).map(|_| Issuer::ed25519("k")).collect();
    let verifier = knows(&issuers.iter().collect::<Vec<_>>());
    let stranger = Issuer::ed25519("k").nameless(&claims());
    assert!(verifier.verify(stranger.as_bytes(), NOW).is_err());
    assert_eq!(verifier.signatures_checked(), MOST_TRIES as u64);
}

#[test]
fn what_a_set_has_besides_keys_of_ours_is_passed_over() {
    let issuer = Issuer::p256("k");
    let mut set = issuer::jwks(&[&issuer]);
    let keys = set["keys"].as_array_mut().expect("a list");
    keys.extend([
        json!({ "kty": "EC", "crv": "P-521", "x": "AA", "y": "AA", "kid": "a" }),
        json!({ "kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "kid": "b" }),
        json!({ "kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA" }),
        json!({ "kty": "OKP", "crv": "X25519", "x": "AA" }),
        json!({ "kty": "OKP", "crv": "Ed25519", "x": "AA" }),
        json!({ "kty": "oct", "k": "" }),
        json!({ "kty": "AKP", "alg": "ML-DSA-44", "pub": "AA" }),
        json!({ "kid": 5 }),
        json!(null),
        json!("key"),
    ]);
    let file = Scratch::new(&set.to_string());
    let verifier = Verifier::new(&settings(JwtKeys::JwksFile(file.0.clone()))).unwrap();
    assert_eq!(verifier.key_count(), 1);
    assert!(verifier.verify(issuer.token(&claims()).as_bytes(), NOW).is_ok());
}

#[test]
fn a_file_without_usable_keys_is_an_error_at_the_start() {
    for text in ["", "{", "[]", "{}", r#"{"keys":{}}"#] {
        let file = Scratch::new(text);
        let started = Verifier::new(&settings(JwtKeys::JwksFile(file.0.clone())));
        assert!(matches!(started, Err(KeyError::NotASet(_))), "{text}");
    }
    let file = Scratch::new(r#"{"keys":[]}"#);
    let started = Verifier::new(&settings(JwtKeys::JwksFile(file.0.clone())));
    assert!(matches!(started, Err(KeyError::NoKey)));
    let started = Verifier::new(&settings(JwtKeys::JwksFile("/nowhere/keys.json".into())));
    assert!(matches!(started, Err(KeyError::Unreadable { .. })));
}

#[test]
fn what_is_printed_of_a_verifier_tells_no_secret() {
    let verifier = Verifier::new(&settings(secret("correct-horse"))).unwrap();
    assert!(!format!("{verifier:?}").contains("correct-horse"));
    let shown = format!("{:?}", knows(&[&Issuer::secret("k", b"correct-horse")]));
    assert!(!shown.contains("correct-horse"));
    assert!(!shown.contains("99, 111, 114"), "nor its bytes");
}
