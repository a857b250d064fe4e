//! The rules of an OAuth server, as they are shipped.

use std::time::Instant;

use crate::support::issuer::{bearer, claims};
use crate::support::{
    Issuer, KeyServer, Response, Scratch, Weir, fields, get, get_with, wait_until,
};

const SHIPPED: &str = include_str!("../../../config/examples/oauth.toml");

/// The file with ports of the test's own, and nothing else changed.
fn shipped(server: &KeyServer) -> Weir {
    let mut text = SHIPPED.to_owned();
    let url = server.url();
    for (from, to) in [
        ("\"0.0.0.0:8080\"", "\"127.0.0.1:0\""),
        ("\"http://127.0.0.1:9001/.well-known/jwks.json\"", &format!("\"{url}\"")),
    ] {
        assert_eq!(text.matches(from).count(), 1, "{from}");
        text = text.replace(from, to);
    }
    assert!(!text.contains("[admin]"));
    text += "\n[admin]\nlisten = \"127.0.0.1:0\"\n";
    let scratch = Scratch::new();
    let file = scratch.file("oauth.toml", &text);
    Weir::start_from(scratch, file)
}

/// What the one limit of an answer holds, and what is left of it.
#[track_caller]
fn told(response: &Response) -> (String, i64, i64) {
    let policies = fields::list(&response.all("ratelimit-policy"));
    let left = fields::list(&response.all("ratelimit"));
    assert_eq!((policies.len(), left.len()), (1, 1), "{response:#?}");
    (policies[0].name().to_owned(), policies[0].integer("q"), left[0].integer("r"))
}

/// How many pass at once, and the first refusal.
#[track_caller]
fn at_once(weir: &Weir, request: &str) -> (usize, u64) {
    let mut client = weir.connect();
    for passed in 0..10_000 {
        let response = client.ask(request);
        if response.status == 429 {
            return (passed, response.one("retry-after").parse().unwrap());
        }
        assert_eq!(response.status, 200, "{response:#?}");
    }
    panic!("no end to {request}");
}

fn token_request(lines: &str, body: &str) -> String {
    format!(
        "POST /oauth/token HTTP/1.1\r\nHost: weir.test\r\n{lines}\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[test]
fn a_client_gets_five_tokens_in_any_minute_and_no_burst_on_top() {
    let server = KeyServer::start(&[&Issuer::p256("k")]);
    let weir = shipped(&server);
    let form = |client: &str| {
        token_request("", &format!("grant_type=client_credentials&client_id={client}"))
    };
    let started = Instant::now();
    let first = weir.ask(form("billing"));
    assert_eq!((first.status, told(&first)), (200, ("token".into(), 5, 4)));
    // What was looked at arrives as it was sent.
    assert!(first.text().contains("grant_type=client_credentials&client_id=billing"));
    let (passed, wait) = at_once(&weir, &form("billing"));
    assert_eq!(passed, 4);
    let gone = started.elapsed().as_secs() + 1;
    assert!(wait <= 60 && wait + gone >= 60, "a minute after the first: {wait} after {gone}");
    // The same client by another way, and another client.
    let basic = token_request("Authorization: Basic YmlsbGluZzp4\r\n", "grant_type=x");
    assert_eq!(weir.ask(basic).status, 429, "billing:x");
    assert_eq!(weir.ask(token_request("X-Api-Key: billing\r\n", "")).status, 429);
    assert_eq!(weir.ask(form("shop")).status, 200);
    // Requests that name no client count by address.
    assert_eq!(at_once(&weir, &token_request("", "grant_type=x")).0, 5);
}

#[test]
fn a_user_of_the_api_has_a_burst_of_a_hundred_and_half_as_much_again() {
    let issuer = Issuer::rsa("k");
    let server = KeyServer::start(&[&issuer]);
    let weir = shipped(&server);
    let ask = |target: &str, user: &str| get_with(target, &bearer(&issuer.token(&claims(user))));
    // Without keys they would count by address, and share.
    wait_until("the keys are there", || weir.output().contains("keys for tokens read"));
    let first = weir.ask(ask("/api/a", "anna"));
    assert_eq!((first.status, told(&first)), (200, ("api".into(), 150, 149)));
    // Ten a second come back while they are sent.
    let started = Instant::now();
    let (passed, wait) = at_once(&weir, &ask("/api/b", "anna"));
    let back = usize::try_from(started.elapsed().as_millis() / 100).unwrap() + 1;
    assert!((149..=149 + back + 1).contains(&passed), "{passed} with {back} that came back");
    assert_eq!(wait, 1);
    let other = weir.ask(ask("/api/a", "bert"));
    assert_eq!(told(&other), ("api".into(), 150, 149), "another user");
    let nobody = weir.get("/api/a");
    assert_eq!(told(&nobody), ("api".into(), 150, 149), "an address is not a user");
}

#[test]
fn a_device_starts_with_ten_and_then_polls_twice_a_minute() {
    let server = KeyServer::start(&[&Issuer::p256("k")]);
    let weir = shipped(&server);
    let started = Instant::now();
    let (passed, wait) = at_once(&weir, &get("/oauth/device"));
    assert_eq!(passed, 10);
    let gone = started.elapsed().as_secs() + 1;
    assert!(wait <= 30 && wait + gone >= 30, "two a minute: {wait} after {gone}");
    let named = get_with("/oauth/device", "X-Forwarded-For: 1.2.3.4\r\nX-Api-Key: a\r\n");
    let response = weir.ask(named);
    assert_eq!(response.status, 429, "whatever it calls itself");
    assert_eq!(told(&response), ("device".into(), 10, 0));
}

#[test]
fn an_address_may_ask_for_two_thousand_public_things_at_once() {
    let server = KeyServer::start(&[&Issuer::p256("k")]);
    let weir = shipped(&server);
    let response = weir.get("/public/a");
    assert_eq!((response.status, told(&response)), (200, ("public".into(), 2000, 1999)));
    let mut client = weir.connect();
    for _ in 0..300 {
        assert_eq!(client.ask(get("/public/b")).status, 200);
    }
    assert_eq!(weir.get("/elsewhere").status, 404);
}
