//! The keys that tokens are verified with: found anew when they change, kept when they cannot be had.

use std::time::Duration;

use crate::support::issuer::{claims, jwks};
use crate::support::{Issuer, KeyServer, Weir, wait_at_most, wait_until};
use crate::tokens::{beside, counts_users, from, known, once, wait_known, with};

#[test]
fn a_file_of_keys_is_read_again_when_it_changes() {
    let [one, two] = [Issuer::rsa("one"), Issuer::p256("two")];
    let weir = beside("jwks.json", &jwks(&[&one]), "jwks_file = \"jwks.json\"");
    counts_users(&weir, &one, "one");
    let token = two.token(&claims("anna"));
    assert!(!known(&weir, &token));
    let file = weir.directory().join("jwks.json");
    std::fs::write(&file, "{").unwrap();
    wait_until("the fault is told", || weir.said().contains("known so far stay"));
    assert!(known(&weir, &one.token(&claims("anna"))), "a broken file takes no identity");
    std::fs::write(&file, jwks(&[&two])).unwrap();
    wait_known(&weir, &token);
    assert!(!known(&weir, &one.token(&claims("anna"))), "its key is gone");
}

#[test]
fn a_new_key_at_the_url_is_found_and_an_old_one_goes() {
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
    let told = weir.said().matches("known so far stay").count();
    drop(server);
    let outage = || weir.said().matches("known so far stay").count() > told;
    wait_until("the outage is told", outage);
    assert!(known(&weir, &token));
    assert!(known(&weir, &issuer.token(&claims("bert"))), "one that was never seen before");
}

#[test]
fn until_the_keys_are_there_nobody_is_a_user_and_requests_are_served() {
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
