//! What a worker remembers.

use std::net::IpAddr;

use super::issuer::Issuer;
use super::*;

fn from(
    cache: &TokenCache,
    verifier: &Verifier,
    token: &str,
    caller: u8,
    now: u64,
) -> Result<Arc<Claims>, Rejection> {
    let caller = IpAddr::from([192, 0, 2, caller]);
    let verified = cache.verify(verifier, token.as_bytes(), caller, || now);
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(verified)
}

fn check(
    cache: &TokenCache,
    verifier: &Verifier,
    token: &str,
    now: u64,
) -> Result<Arc<Claims>, Rejection> {
    from(cache, verifier, token, 1, now)
}

#[test]
fn a_token_costs_one_signature_however_often_it_comes() {
    let issuer = Issuer::p256("k");
    let (verifier, cache) = (knows(&[&issuer]), TokenCache::new(&[7; 16]));
    let token = issuer.token(&claims());
    for second in 0..100 {
        let verified = check(&cache, &verifier, &token, NOW + second);
        assert_eq!(subject(&verified), Ok("anna".to_owned()));
    }
    assert_eq!(verifier.signatures_checked(), 1);
    let other = issuer.token(&json!({ "sub": "berta", "exp": NOW + 9 }));
    let verified = check(&cache, &verifier, &other, NOW);
    assert_eq!(subject(&verified), Ok("berta".to_owned()));
    assert_eq!(verifier.signatures_checked(), 2);
}

#[test]
fn a_remembered_token_ends_with_its_expiry() {
    let issuer = Issuer::p256("k");
    let (verifier, cache) = (knows(&[&issuer]), TokenCache::new(&[7; 16]));
    let token = issuer.token(&json!({ "exp": NOW + 10, "nbf": NOW }));
    let at = |now| check(&cache, &verifier, &token, now).map(|_| ());
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
    let at = |now| check(&cache, &verifier, &token, now).map(|_| ());
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
    let at = |now| check(&cache, &verifier, &token, now).map(|_| ());
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
    let check = |token: &String| check(&cache, &verifier, token, NOW).map(|_| ());
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
    let check = |it: &Verifier| check(&cache, it, &token, NOW).map(|_| ());
    let checked = verifiers.each_ref().map(check);
    assert_eq!(checked, [Ok(()), Err(Rejection::Audience)]);
}

#[test]
fn bad_tokens_push_out_no_good_one() {
    let issuer = Issuer::ed25519("k");
    let (verifier, cache) = (knows(&[&issuer]), TokenCache::new(&[7; 16]));
    let token = issuer.token(&claims());
    assert!(check(&cache, &verifier, &token, NOW).is_ok());
    for number in 0..50_000 {
        assert!(check(&cache, &verifier, &format!("bad {number}"), NOW).is_err());
    }
    assert!(check(&cache, &verifier, &token, NOW).is_ok());
    assert_eq!(verifier.signatures_checked(), 1);
}

/// Tokens of others that name no key.
fn forged(issuer: &Issuer, count: usize) -> Vec<String> {
    let header = json!({ "alg": "ES384" });
    let claims = |number| json!({ "sub": "anna", "exp": NOW + 3600, "jti": number });
    (0..count).map(|number| issuer.sign(&header, &claims(number))).collect()
}

#[test]
fn signatures_that_fail_cost_a_worker_so_much_of_a_second_and_no_more() {
    let known: Vec<Issuer> = (0..8).map(|_| Issuer::p384("k")).collect();
    let verifier = knows(&known.iter().collect::<Vec<_>>());
    let (cache, stranger) = (TokenCache::new(&[7; 16]), Issuer::p384("k"));
    let good: Vec<String> = known.iter().map(|it| it.token(&claims())).collect();
    assert!(check(&cache, &verifier, &good[0], NOW).is_ok());
    let before = verifier.signatures_checked();
    let forged = forged(&stranger, 200);
    let put_off =
        |token: &String| check(&cache, &verifier, token, NOW) == Err(Rejection::OverBudget);
    assert!(forged.iter().filter(|token| put_off(token)).count() > 190);
    let spent = verifier.signatures_checked() - before;
    assert!((8..=32).contains(&spent), "a caller has a few milliseconds, not {spent} signatures");
    // One that is known needs none.
    assert!(check(&cache, &verifier, &good[0], NOW).is_ok());
    // Another caller has a budget of its own, and a valid token takes nothing of it.
    for _ in 0..10 {
        for issuer in &known {
            let fresh = issuer.sign(&json!({ "alg": "ES384" }), &claims());
            assert!(from(&cache, &verifier, &fresh, 2, NOW).is_ok());
        }
    }
    // Each of many callers is heard once, up to a quarter of the worker.
    let before = verifier.signatures_checked();
    for (number, token) in forged.iter().enumerate() {
        let _ = from(&cache, &verifier, token, 10 + (number % 90) as u8, NOW);
    }
    let fresh = verifier.signatures_checked() - before;
    assert!((60..=250_000 / 100).contains(&fresh), "{fresh}");
    // In the next second they have no more than all have together.
    let before = verifier.signatures_checked();
    for (number, token) in forged.iter().enumerate() {
        let _ = from(&cache, &verifier, token, 10 + (number % 90) as u8, NOW + 1);
    }
    assert!(verifier.signatures_checked() - before <= 60);
    // And in the next one there is a new budget.
    assert_eq!(check(&cache, &verifier, &forged[199], NOW + 2).err(), Some(Rejection::Signature));
}
