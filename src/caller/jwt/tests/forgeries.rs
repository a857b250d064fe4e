//! What is no identity.

use proptest::prelude::*;

use super::issuer::{Issuer, encode};
use super::*;

fn rejection(verifier: &Verifier, token: &str) -> Rejection {
    verifier.verify(token.as_bytes(), NOW).expect_err("no identity")
}

#[test]
fn a_token_without_a_signature_is_none() {
    let issuer = Issuer::p256("k");
    let verifier = knows(&[&issuer]);
    let good = issuer.token(&claims());
    assert!(verifier.verify(good.as_bytes(), NOW).is_ok());
    for alg in ["none", "None", "NONE", "nOnE", "", "ES256K", "HS1"] {
        for header in [json!({ "alg": alg }), json!({ "alg": alg, "kid": "k" })] {
            let message = format!("{}.{}", encode(&header), encode(&claims()));
            for token in [format!("{message}."), message.clone(), issuer.sign(&header, &claims())] {
                assert_eq!(rejection(&verifier, &token), Rejection::Malformed, "{header}");
            }
        }
    }
    let (message, _) = good.rsplit_once('.').expect("three parts");
    assert_eq!(rejection(&verifier, &format!("{message}.")), Rejection::Signature);
    assert_eq!(rejection(&verifier, message), Rejection::Malformed);
}

#[test]
fn an_hmac_made_with_the_public_key_is_none() {
    for issuer in [Issuer::rsa("k"), Issuer::p256("k"), Issuer::ed25519("k")] {
        let by_pem = Verifier::new(&settings(JwtKeys::Pem(issuer.pem().into_bytes()))).unwrap();
        let by_jwks = knows(&[&issuer]);
        let jwk = issuer.jwk();
        let modulus = jwk["n"].as_str().or(jwk["x"].as_str()).unwrap_or_default();
        let known = [issuer.pem().into_bytes(), issuer.der(), modulus.as_bytes().to_vec()];
        for public in known {
            let forger = Issuer::secret("k", &public);
            for token in [forger.token(&claims()), forger.nameless(&claims())] {
                assert_eq!(rejection(&by_pem, &token), Rejection::Algorithm);
                assert_eq!(rejection(&by_jwks, &token), Rejection::Algorithm);
            }
        }
        assert_eq!(by_pem.signatures_checked() + by_jwks.signatures_checked(), 0);
    }
}

#[test]
fn an_algorithm_that_is_not_listed_verifies_nothing() {
    let issuer = Issuer::rsa("k");
    let pem = JwtKeys::Pem(issuer.pem().into_bytes());
    let only = |algorithm| Jwt { algorithms: vec![algorithm], ..settings(pem.clone()) };
    let verifier = Verifier::new(&only(JwtAlgorithm::Rs256)).unwrap();
    assert!(verifier.verify(issuer.token(&claims()).as_bytes(), NOW).is_ok());
    let other = issuer.sign(&json!({ "alg": "PS384" }), &claims());
    assert_eq!(rejection(&verifier, &other), Rejection::Algorithm);
    let verifier = Verifier::new(&only(JwtAlgorithm::Ps384)).unwrap();
    assert!(verifier.verify(other.as_bytes(), NOW).is_ok());
    assert_eq!(rejection(&verifier, &issuer.token(&claims())), Rejection::Algorithm);
}

#[test]
fn a_key_is_used_for_what_it_says_itself_and_nothing_else() {
    let issuer = Issuer::rsa("k");
    let with = |name: &str, value: Value| {
        let mut set = issuer::jwks(&[&issuer]);
        set["keys"][0][name] = value;
        let file = Scratch::new(&set.to_string());
        Verifier::new(&settings(JwtKeys::JwksFile(file.0.clone())))
    };
    let verifier = with("alg", json!("PS384")).unwrap();
    assert_eq!(rejection(&verifier, &issuer.token(&claims())), Rejection::Algorithm);
    let pss = issuer.sign(&json!({ "alg": "PS384", "kid": "k" }), &claims());
    assert!(verifier.verify(pss.as_bytes(), NOW).is_ok());
    for (name, value) in [
        ("use", json!("enc")),
        ("key_ops", json!(["encrypt"])),
        ("alg", json!("RSA-OAEP")),
        ("alg", json!("HS256")),
        ("kty", json!("EC")),
        ("n", json!("AQAB")),
        ("n", json!("!")),
        ("e", json!("")),
    ] {
        assert!(matches!(with(name, value.clone()), Err(KeyError::NoKey)), "{name} {value}");
    }
}

#[test]
fn an_expired_or_early_or_undated_token_is_none() {
    let issuer = Issuer::ed25519("k");
    let verifier = knows(&[&issuer]);
    for (dates, expected) in [
        (json!({ "exp": NOW }), Rejection::Expired),
        (json!({ "exp": NOW + 9, "nbf": NOW + 1 }), Rejection::Early { from: NOW + 1 }),
        (json!({ "exp": (NOW + 9).to_string() }), Rejection::NoExpiry),
        (json!({ "exp": null }), Rejection::NoExpiry),
        (json!({}), Rejection::NoExpiry),
        (json!({ "exp": NOW + 9, "nbf": "0" }), Rejection::Malformed),
    ] {
        assert_eq!(rejection(&verifier, &issuer.token(&dates)), expected, "{dates}");
    }
    assert!(verifier.verify(issuer.token(&json!({ "exp": NOW + 1 })).as_bytes(), NOW).is_ok());
}

#[test]
fn a_token_for_another_audience_or_of_another_issuer_is_none() {
    let issuer = Issuer::secret("k", b"0123456789abcdef0123456789abcdef");
    let keys = secret("0123456789abcdef0123456789abcdef");
    let (iss, aud) = (Some(vec!["https://a".to_owned()]), Some(vec!["api".to_owned()]));
    let verifier = Verifier::new(&Jwt { issuer: iss, audience: aud, ..settings(keys) }).unwrap();
    let token =
        |iss: &str, aud: Value| issuer.token(&json!({ "exp": NOW + 9, "iss": iss, "aud": aud }));
    assert!(verifier.verify(token("https://a", json!(["x", "api"])).as_bytes(), NOW).is_ok());
    let wrong = rejection(&verifier, &token("https://a", json!("web")));
    assert_eq!(wrong, Rejection::Audience);
    assert_eq!(rejection(&verifier, &token("https://a/", json!("api"))), Rejection::Issuer);
}

#[test]
fn a_token_that_was_changed_is_none() {
    let issuer = Issuer::p256("k");
    let verifier = knows(&[&issuer]);
    let token = issuer.token(&claims());
    let parts: Vec<&str> = token.split('.').collect();
    let other = encode(&json!({ "sub": "root", "exp": NOW + 3600 }));
    let swapped = [parts[0], &other, parts[2]].join(".");
    assert_eq!(rejection(&verifier, &swapped), Rejection::Signature);
    let stranger = Issuer::p256("k").token(&claims());
    assert_eq!(rejection(&verifier, &stranger), Rejection::Signature);
}

#[test]
fn a_key_in_the_token_itself_is_not_believed() {
    let (issuer, forger) = (Issuer::p256("k"), Issuer::p256("forged"));
    let verifier = knows(&[&issuer]);
    let header = json!({ "alg": "ES256", "jwk": forger.jwk(), "jku": "http://127.0.0.1:1/" });
    assert_eq!(rejection(&verifier, &forger.sign(&header, &claims())), Rejection::Signature);
}

#[test]
fn a_token_that_demands_what_is_not_known_is_none() {
    let issuer = Issuer::p256("k");
    let header = json!({ "alg": "ES256", "crit": ["b64"], "b64": false });
    let token = issuer.sign(&header, &claims());
    assert_eq!(rejection(&knows(&[&issuer]), &token), Rejection::Critical);
}

#[test]
fn a_token_is_no_longer_than_it_may_be() {
    let issuer = Issuer::ed25519("k");
    let verifier = knows(&[&issuer]);
    let long = |length: usize| issuer.token(&json!({ "exp": NOW + 9, "sub": "a".repeat(length) }));
    assert!(verifier.verify(long(5000).as_bytes(), NOW).is_ok());
    assert_eq!(rejection(&verifier, &long(LONGEST)), Rejection::TooLong);
    let deep = format!("{}{}", "[".repeat(3000), "]".repeat(3000));
    let deep = base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, deep);
    let token = format!("{}.{deep}.AA", encode(&json!({ "alg": "EdDSA" })));
    assert_eq!(rejection(&verifier, &token), Rejection::Signature);
}

fn any_verifier() -> Verifier {
    knows(&[&Issuer::p256("a"), &Issuer::ed25519("b"), &Issuer::secret("c", b"secret")])
}

proptest! {
    #[test]
    fn garbage_is_no_identity(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let verifier = any_verifier();
        prop_assert!(verifier.verify(&bytes, NOW).is_err());
    }

    #[test]
    fn what_looks_like_a_token_is_no_identity(
        alg in prop::sample::select(&["HS256", "ES256", "EdDSA", "RS256", "none", "x"]),
        kid in prop::option::of("[abc]"),
        claims in "\\PC{0,40}",
        signature in "[A-Za-z0-9_.-]{0,90}",
    ) {
        let verifier = any_verifier();
        let header = match kid {
            Some(kid) => json!({ "alg": alg, "kid": kid }),
            None => json!({ "alg": alg }),
        };
        let token = format!("{}.{}.{signature}", encode(&header), encode(&Value::from(claims)));
        prop_assert!(verifier.verify(token.as_bytes(), NOW).is_err());
    }

    #[test]
    fn a_token_with_one_byte_changed_is_no_identity(at in 0_usize..10_000, byte in any::<u8>()) {
        let issuer = Issuer::ed25519("k");
        let verifier = knows(&[&issuer]);
        let mut token = issuer.token(&claims()).into_bytes();
        let at = at % token.len();
        prop_assume!(token[at] != byte);
        token[at] = byte;
        prop_assert!(verifier.verify(&token, NOW).is_err());
    }
}
