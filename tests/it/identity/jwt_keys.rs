//! The keys that verify tokens: read again when they change, kept when they cannot be fetched.

use std::time::Duration;

use serde_json::json;

use super::jwt::{beside, counts_users, from, known, once, wait_known, with};
use crate::support::issuer::{bearer, claims, jwks, now};
use crate::support::{
    Issuer, KeyServer, Response, Scratch, Weir, get_with, wait_at_most, wait_until,
};

#[test]
fn a_file_of_keys_is_read_again_when_it_changes() {
    let [one, two] = [Issuer::rsa("one"), Issuer::p256("two")];
    let weir = beside("jwks.json", &jwks(&[&one]), "jwks_file = \"jwks.json\"");
    counts_users(&weir, &one, "one");
    let token = two.token(&claims("anna"));
    assert!(!known(&weir, &token));
    let file = weir.directory().join("jwks.json");
    std::fs::write(&file, "{").unwrap();
    wait_until("the fault is told", || weir.output().contains("known so far stay"));
    assert!(known(&weir, &one.token(&claims("anna"))), "a broken file takes no identity");
    std::fs::write(&file, jwks(&[&two])).unwrap();
    wait_known(&weir, &token);
    assert!(!known(&weir, &one.token(&claims("anna"))), "its key is gone");
}

#[test]
fn new_key_at_the_url_is_found_and_a_removed_one_is_dropped() {
    let [one, two] = [Issuer::rsa("one"), Issuer::p256("two")];
    let server = KeyServer::start(&[&one]);
    let weir = from(&server, "");
    let [first, second] = [&one, &two].map(|issuer| issuer.token(&claims("anna")));
    wait_known(&weir, &first);
    assert!(!known(&weir, &second));
    server.serves(&[&one, &two]);
    wait_known(&weir, &second);
    assert!(known(&weir, &first), "both are served for a while");
    server.serves(&[&two]);
    wait_until("the old key is gone", || !known(&weir, &first));
    assert!(known(&weir, &second));
}

#[test]
fn a_token_that_names_a_new_key_has_it_fetched_before_its_time() {
    let [one, two] = [Issuer::rsa("one"), Issuer::ed25519("two")];
    let server = KeyServer::start(&[&one]);
    let weir = Weir::start(&with(&format!("jwks_url = \"{}\"\nrefresh = \"1d\"", server.url())));
    wait_known(&weir, &one.token(&claims("anna")));
    server.serves(&[&one, &two]);
    let token = two.token(&claims("anna"));
    wait_at_most(Duration::from_secs(40), "the key is fetched", || known(&weir, &token));
    assert_eq!(server.asked(), 2, "a flood of such tokens is not passed on");
}

#[test]
fn an_outage_of_the_url_keeps_the_keys() {
    let issuer = Issuer::p256("k");
    let server = KeyServer::start(&[&issuer]);
    let weir = from(&server, "");
    let token = issuer.token(&claims("anna"));
    wait_known(&weir, &token);
    for answer in ["500 Internal Server Error", "404 Not Found", "200 OK"] {
        let bytes = format!("HTTP/1.1 {answer}\r\nContent-Length: 11\r\n\r\n{{\"keys\":[]}}");
        server.answers(bytes.as_bytes());
        let asked = server.asked();
        wait_until("it has asked again", || server.asked() > asked + 1);
        assert!(known(&weir, &token), "{answer}");
        server.serves(&[&issuer]);
        let asked = server.asked();
        wait_until("it has recovered", || server.asked() > asked + 1);
    }
    let told = weir.output().matches("known so far stay").count();
    drop(server);
    let outage = || weir.output().matches("known so far stay").count() > told;
    wait_until("the outage is told", outage);
    assert!(known(&weir, &token));
    assert!(known(&weir, &issuer.token(&claims("bert"))), "one that was never seen before");
}

#[test]
fn before_the_keys_arrive_nobody_is_a_user_and_requests_are_served() {
    let issuer = Issuer::p256("k");
    let server = KeyServer::start(&[&issuer]);
    server.answers(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n");
    let weir = from(&server, "");
    let token = issuer.token(&claims("anna"));
    assert!(!known(&weir, &token));
    assert_eq!([once(&weir, &token), once(&weir, &token)], [200, 429], "by address");
    server.serves(&[&issuer]);
    wait_known(&weir, &token);
}

/// A caller may make up tokens without end, and each might be signed by any of the keys.
#[test]
fn flood_of_forged_tokens_is_throttled_without_affecting_others() {
    let issuers: Vec<Issuer> = (0..8).map(|_| Issuer::p384("k")).collect();
    let server = KeyServer::start(&issuers.iter().collect::<Vec<_>>());
    let proxies = "[identity]\ntrusted_proxies = [\"127.0.0.1\"]";
    let text = with(&format!("jwks_url = \"{}\"", server.url())).text();
    let scratch = Scratch::new();
    let file = scratch.file("weir.toml", &text.replace("[identity]", proxies));
    let weir = Weir::start_from(scratch, file);
    let nameless = |issuer: &Issuer, user: String| {
        issuer.sign(&json!({ "alg": "ES384" }), &json!({ "sub": user, "exp": now() + 3600 }))
    };
    let mut client = weir.connect();
    let mut ask = |from: &str, token: &str| -> Response {
        let lines = format!("X-Forwarded-For: {from}\r\n{}", bearer(token));
        client.ask(get_with("/known", &lines))
    };
    let known = issuers[0].token(&claims("anna"));
    wait_until("the keys are there", || ask("192.0.2.1", &known).status == 200);
    let stranger = Issuer::p384("k");
    let (mut refused, mut put_off) = (0, 0);
    for round in 0..20 {
        for number in 0..20 {
            let forged = nameless(&stranger, format!("{round} {number}"));
            let response = ask("192.0.2.66", &forged);
            match (response.status, &*response.error()) {
                (403, "missing_key") => refused += 1,
                (503, "overloaded") => {
                    assert_eq!(response.one("retry-after"), "1");
                    put_off += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        // Others are known by tokens that were never seen before, with a name and without.
        let issuer = &issuers[round % 8];
        let user = format!("user {round}");
        assert_eq!(ask("192.0.2.2", &nameless(issuer, user.clone())).status, 200, "{round}");
        assert_eq!(ask("192.0.2.2", &issuer.token(&claims(&user))).status, 200, "{round}");
        // And so is the flooder, by one that was.
        assert_eq!(ask("192.0.2.66", &known).status, 200, "{round}");
    }
    assert!(refused > 0 && put_off > 0, "{refused} were checked, {put_off} put off");
    // Each second has a budget of its own.
    let late = nameless(&stranger, "late".to_owned());
    wait_until("it is checked", || ask("192.0.2.66", &late).status == 403);
}
