//! What a worker remembers.

use super::issuer::Issuer;
use super::*;

#[test]
fn a_token_costs_one_signature_however_often_it_comes() {
    let issuer = Issuer::p256("k");
    let (verifier, cache) = (knows(&[&issuer]), TokenCache::new(&[7; 16]));
    let token = issuer.token(&claims());
    for second in 0..100 {
        let verified = cache.verify(&verifier, token.as_bytes(), NOW + second);
        assert_eq!(subject(&verified), Ok("anna".to_owned()));
    }
    assert_eq!(verifier.signatures_checked(), 1);
    let other = issuer.token(&json!({ "sub": "berta", "exp": NOW + 9 }));
    let verified = cache.verify(&verifier, other.as_bytes(), NOW);
    assert_eq!(subject(&verified), Ok("berta".to_owned()));
    assert_eq!(verifier.signatures_checked(), 2);
}

#[test]
fn a_remembered_token_ends_with_its_expiry() {
    let issuer = Issuer::p256("k");
    let (verifier, cache) = (knows(&[&issuer]), TokenCache::new(&[7; 16]));
    let token = issuer.token(&json!({ "exp": NOW + 10, "nbf": NOW }));
    let at = |now| cache.verify(&verifier, token.as_bytes(), now).map(|_| ());
    assert_eq!(at(NOW), Ok(()));
    assert_eq!(at(NOW + 9), Ok(()));
    assert_eq!(at(NOW + 10), Err(Rejection::Expired));
    assert_eq!(at(NOW - 1), Err(Rejection::Expired), "for a moment: the clock has stepped back");
    assert_eq!(at(NOW + 20), Err(Rejection::Expired));
}

#[test]
fn a_bad_token_costs_one_signature_in_ten_seconds() {
    let issuer = Issuer::p256("k");
    let (verifier, cache) = (knows(&[&issuer]), TokenCache::new(&[7; 16]));
    let token = Issuer::p256("k").token(&claims());
    let at = |now| cache.verify(&verifier, token.as_bytes(), now).map(|_| ());
    for second in 0..10 {
        assert_eq!(at(NOW + second), Err(Rejection::Signature));
    }
    assert_eq!(verifier.signatures_checked(), 1);
    assert_eq!(at(NOW + 10), Err(Rejection::Signature));
    assert_eq!(verifier.signatures_checked(), 2);
}

#[test]
fn an_early_token_is_believed_from_its_first_second_on() {
    let issuer = Issuer::p256("k");
    let (verifier, cache) = (knows(&[&issuer]), TokenCache::new(&[7; 16]));
    let token = issuer.token(&json!({ "exp": NOW + 99, "nbf": NOW + 3 }));
    let at = |now| cache.verify(&verifier, token.as_bytes(), now).map(|_| ());
    assert_eq!(at(NOW), Err(Rejection::Early { from: NOW + 3 }));
    assert_eq!(at(NOW + 2), Err(Rejection::Early { from: NOW + 3 }));
    assert_eq!(at(NOW + 3), Ok(()));
}

#[test]
fn other_keys_end_all_that_is_remembered() {
    let [one, two] = [Issuer::p256("one"), Issuer::p256("two")];
    let file = Scratch::new(&issuer::jwks(&[&one]).to_string());
    let verifier = Verifier::new(&settings(JwtKeys::JwksFile(file.0.clone()))).unwrap();
    let cache = TokenCache::new(&[7; 16]);
    let [first, second] = [one.token(&claims()), two.token(&claims())];
    let check = |token: &String| cache.verify(&verifier, token.as_bytes(), NOW).map(|_| ());
    assert_eq!((check(&first), check(&second)), (Ok(()), Err(Rejection::UnknownKey)));
    file.write(&issuer::jwks(&[&two]).to_string());
    verifier.reload();
    assert_eq!((check(&first), check(&second)), (Err(Rejection::UnknownKey), Ok(())));
    let signatures = verifier.signatures_checked();
    verifier.reload();
    assert_eq!(check(&second), Ok(()));
    assert_eq!(verifier.signatures_checked(), signatures, "the same keys end nothing");
}

#[test]
fn another_verifier_has_to_see_a_token_itself() {
    let issuer = Issuer::secret("k", b"0123456789abcdef");
    let keys = || settings(secret("0123456789abcdef"));
    let audience = Some(vec!["api".to_owned()]);
    let verifiers =
        [Verifier::new(&keys()).unwrap(), Verifier::new(&Jwt { audience, ..keys() }).unwrap()];
    let cache = TokenCache::new(&[7; 16]);
    let token = issuer.token(&claims());
    let check = |it: &Verifier| cache.verify(it, token.as_bytes(), NOW).map(|_| ());
    let checked = verifiers.each_ref().map(check);
    assert_eq!(checked, [Ok(()), Err(Rejection::Audience)]);
}

#[test]
fn bad_tokens_push_out_no_good_one() {
    let issuer = Issuer::ed25519("k");
    let (verifier, cache) = (knows(&[&issuer]), TokenCache::new(&[7; 16]));
    let token = issuer.token(&claims());
    assert!(cache.verify(&verifier, token.as_bytes(), NOW).is_ok());
    for number in 0..50_000 {
        assert!(cache.verify(&verifier, format!("bad {number}").as_bytes(), NOW).is_err());
    }
    assert!(cache.verify(&verifier, token.as_bytes(), NOW).is_ok());
    assert_eq!(verifier.signatures_checked(), 1);
}
