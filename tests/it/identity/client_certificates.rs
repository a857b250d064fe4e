//! Callers that are known by their certificates.

use super::api_keys::{client, hash};
use crate::support::{Certificates, Client, Config, TlsClient, Upstream, Weir, get, wait_until};

/// A gateway that lets each subject pass once, and asks for certificates as told.
fn gateway(upstream: &Upstream, certificates: &Certificates, auth: &str) -> Weir {
    let (pair, authority) = (certificates.pair("server"), certificates.path("ca.pem"));
    let tls = format!("tls = {{ {pair}, client_ca = {authority:?}, client_auth = \"{auth}\" }}");
    let config = Config::to(upstream)
        .server(&tls)
        .limit("key = \"user\"\nrate = \"1/day\"\nburst = 1\nmissing = \"deny\"")
        .also("[identity]\nuser = \"tls:subject\"\nclient = \"tls:san\"");
    Weir::start(&config)
}

fn status(weir: &Weir, client: &TlsClient) -> Option<u16> {
    let mut client = client.try_connect(weir.address()).ok()?;
    client.try_ask(get("/")).ok().map(|answer| answer.status)
}

#[test]
fn each_subject_is_a_caller_of_its_own() {
    let (certificates, upstream) = (Certificates::new(), Upstream::ok());
    certificates.issue("other", &["weir"]);
    let weir = gateway(&upstream, &certificates, "required");
    let one = TlsClient::showing(&certificates, "client");
    assert_eq!(status(&weir, &one), Some(200));
    // Also over a session that is resumed, in which no certificate is shown.
    let mut again = one.connect(weir.address());
    assert!(again.resumed());
    assert_eq!(again.ask(get("/")).status, 429);
    assert_eq!(status(&weir, &TlsClient::showing(&certificates, "other")), Some(200));
}

#[test]
fn clients_without_a_good_certificate_are_not_served_where_one_is_required() {
    let (certificates, upstream) = (Certificates::new(), Upstream::ok());
    let strangers = Certificates::new();
    let weir = gateway(&upstream, &certificates, "required");
    assert_eq!(status(&weir, &TlsClient::trusting(&certificates)), None);
    // Of an authority with the same name, so that the client dares to show it.
    strangers.lend("client", &certificates, "stranger");
    assert_eq!(status(&weir, &TlsClient::showing(&certificates, "stranger")), None);
    let errors = || {
        let reason = [("reason", "client_certificate")];
        weir.metrics().value("weir_tls_handshake_errors_total", &reason).unwrap()
    };
    wait_until("both are counted", || errors() == 2.0);
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn clients_without_a_certificate_have_no_name_where_it_is_optional() {
    let (certificates, upstream) = (Certificates::new(), Upstream::ok());
    let weir = gateway(&upstream, &certificates, "optional");
    let answer = TlsClient::trusting(&certificates).connect(weir.address()).ask(get("/"));
    assert_eq!((answer.status, answer.json()["error"].as_str()), (403, Some("missing_key")));
    assert_eq!(status(&weir, &TlsClient::showing(&certificates, "client")), Some(200));
}

#[test]
fn names_of_certificates_are_keys_and_conditions() {
    let (certificates, upstream) = (Certificates::new(), Upstream::ok());
    certificates.issue("billing", &["billing.example", "10.1.2.3"]);
    let (pair, authority) = (certificates.pair("server"), certificates.path("ca.pem"));
    let when = "when = { \"tls:san\" = \"DNS:billing.example,IP:10.1.2.3\" }";
    let config = Config::to(&upstream)
        .server(&format!("tls = {{ {pair}, client_ca = {authority:?} }}"))
        .limit(&format!("key = \"tls:san\"\nrate = \"1/day\"\nburst = 1\n{when}"));
    let weir = Weir::start(&config);
    let billing = TlsClient::showing(&certificates, "billing");
    assert_eq!(status(&weir, &billing), Some(200));
    assert_eq!(status(&weir, &billing), Some(429));
    let other = TlsClient::showing(&certificates, "client");
    assert_eq!([status(&weir, &other), status(&weir, &other)], [Some(200), Some(200)]);
}

#[test]
fn a_header_cannot_claim_a_subject() {
    let (certificates, upstream) = (Certificates::new(), Upstream::ok());
    let weir = gateway(&upstream, &certificates, "optional");
    let mut client: Client = TlsClient::trusting(&certificates).connect(weir.address());
    let lines = "Host: a\r\ntls: subject\r\nX-SSL-Client-S-DN: CN=client\r\n";
    assert_eq!(client.ask(format!("GET / HTTP/1.1\r\n{lines}\r\n")).status, 403);
}

#[test]
fn a_certificate_is_no_api_key_and_has_the_plan_of_the_client_that_it_names() {
    let (certificates, upstream) = (Certificates::new(), Upstream::ok());
    certificates.issue("billing", &["billing.example"]);
    let (pair, authority) = (certificates.pair("server"), certificates.path("ca.pem"));
    let name = "DNS:billing.example";
    let config = Config::to(&upstream)
        .server(&format!(
            "tls = {{ {pair}, client_ca = {authority:?}, client_auth = \"optional\" }}"
        ))
        .limit(
            "key = \"client\"\nrate = \"1/day\"\nburst = 1\nmissing = \"deny\"\n\
             plans = { pro = { rate = \"1/day\", burst = 3 } }",
        )
        .also(&format!(
            "[identity]\nclient = [\"tls:san\", \"header:x-api-key\"]\n\
             [[clients]]\nid = \"{name}\"\nplan = \"pro\"\nkey_hash = \"sha256:{}\"\n\
             {}",
            "0".repeat(64),
            client("other", &hash(name), "")
        ));
    let weir = Weir::start(&config);
    let passed = |client: &TlsClient| -> usize {
        let mut client = client.connect(weir.address());
        (0..6).filter(|_| client.ask(get("/")).status == 200).count()
    };
    assert_eq!(passed(&TlsClient::showing(&certificates, "billing")), 3, "by its plan");
    assert_eq!(
        passed(&TlsClient::showing(&certificates, "client")),
        1,
        "of no client that is known"
    );
    // What a certificate would say is worth nothing in a header.
    let mut claiming: Client = TlsClient::trusting(&certificates).connect(weir.address());
    let mut ask =
        |key: &str| claiming.ask(format!("GET / HTTP/1.1\r\nHost: a\r\nX-Api-Key: {key}\r\n\r\n"));
    assert_eq!(ask(name).status, 200, "the key of `other`, which happens to be spelled so");
    assert_eq!(ask(name).status, 429);
    assert_eq!(ask("DNS:client").error(), "unknown_key");
}
