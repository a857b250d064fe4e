//! Certificates that change while the gateway serves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::support::certificates::IssuedPair;
use crate::support::tls_client::pem;
use crate::support::{Certificates, Config, LONG_PATIENCE, TlsClient, Weir, get, wait_until};

fn gateway(certificates: &Certificates) -> Weir {
    let pair = certificates.pair("server");
    Weir::start(&Config::echo().open().server(&format!("tls = {{ {pair} }}")))
}

/// Replaces the pair `server` by rename, as tools that renew certificates do.
fn replace(certificates: &Certificates, pair: &IssuedPair) {
    for (name, text) in [("server.pem", &pair.certificate), ("server.key", &pair.key)] {
        let fresh = certificates.path("fresh");
        std::fs::write(&fresh, text).unwrap();
        std::fs::rename(&fresh, certificates.path(name)).unwrap();
    }
}

/// Saves the configuration with a key that there is not, and waits until that is reported.
fn spoil_configuration(weir: &Weir) {
    let text = std::fs::read_to_string(weir.file()).unwrap();
    weir.replace_file(&format!("{text}\nkye = 1\n"));
    wait_until("the fault is reported", || weir.output().contains("`kye`"));
}

/// Whether a new connection is shown the certificate that is in the file.
fn shows_file(weir: &Weir, client: &TlsClient, certificates: &Certificates) -> bool {
    let mut connection = client.connect(weir.address());
    assert_eq!(connection.ask(get("/")).status, 200);
    connection.shown() == pem(&certificates.path("server.pem"))[0]
}

#[test]
fn certificates_are_exchanged_under_load_and_no_request_fails() {
    let certificates = Certificates::new();
    let weir = gateway(&certificates);
    let address = weir.address();
    let (over, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let client = TlsClient::trusting(&certificates);
    let threads: Vec<_> = (0..4)
        .map(|number| {
            let (over, count, client) = (over.clone(), count.clone(), client.clone());
            thread::spawn(move || {
                let mut kept = client.connect(address);
                while !over.load(Ordering::Relaxed) {
                    // Half of them over one connection, half over one each.
                    let answer = match number % 2 {
                        0 => kept.ask(get("/")),
                        _ => client.connect(address).ask(get("/")),
                    };
                    assert_eq!(answer.status, 200);
                    count.fetch_add(1, Ordering::Relaxed);
                }
                // The first connection has lived through all of it.
                assert_eq!(kept.ask(get("/")).status, 200);
            })
        })
        .collect();
    for _ in 0..3 {
        replace(&certificates, &certificates.made("server", &["127.0.0.1", "localhost"]));
        // Sessions are resumed with what was shown before.
        wait_until("the new certificate is shown", || {
            shows_file(&weir, &TlsClient::trusting(&certificates), &certificates)
        });
    }
    crate::support::wait_at_most(LONG_PATIENCE, "there were enough requests", || {
        count.load(Ordering::Relaxed) > 3000
    });
    over.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(weir.reloads("ok"), 3.0, "{}", weir.output());
    assert_eq!(weir.reloads("failed"), 0.0, "{}", weir.output());
}

#[test]
fn a_pair_that_does_not_fit_is_not_taken_until_it_does() {
    let certificates = Certificates::new();
    let weir = gateway(&certificates);
    let client = TlsClient::trusting(&certificates);
    let before = client.connect(weir.address()).shown();
    let fresh = certificates.made("server", &["127.0.0.1", "localhost"]);
    std::fs::write(certificates.path("server.pem"), &fresh.certificate).unwrap();
    wait_until("the half is not taken", || weir.reloads("failed") == 1.0);
    let said = weir.output();
    assert!(said.contains("the key does not belong to the certificate"), "{said}");
    assert_eq!(failures(&weir), 1, "{said}");
    let mut connection = TlsClient::trusting(&certificates).connect(weir.address());
    assert_eq!(connection.shown(), before);
    assert_eq!(connection.ask(get("/")).status, 200);
    assert_eq!(weir.metrics().value("weir_config_last_reload_successful", &[]), Some(0.0));
    std::fs::write(certificates.path("server.key"), &fresh.key).unwrap();
    wait_until("the whole pair is taken", || {
        shows_file(&weir, &TlsClient::trusting(&certificates), &certificates)
    });
    wait_until("the files are those that are served", || {
        weir.metrics().value("weir_config_last_reload_successful", &[]) == Some(1.0)
    });
    assert_eq!(connection.ask(get("/")).status, 200);
}

#[test]
fn sessions_outlive_a_reload_and_metrics_say_when_certificates_end() {
    let certificates = Certificates::new();
    certificates.issue("other", &["other.example"]);
    let config = |name: &str| {
        let pair = certificates.pair(name);
        Config::echo().open().server(&format!("tls = {{ {pair} }}"))
    };
    let weir = Weir::start(&config("server"));
    let client = TlsClient::trusting(&certificates);
    assert_eq!(client.connect(weir.address()).ask(get("/")).status, 200);
    let end = |name: &str| {
        let path = certificates.path(&format!("{name}.pem")).display().to_string();
        weir.metrics().value("weir_tls_certificate_expiry_seconds", &[("certificate", &path)])
    };
    // As rcgen makes them, in the year 4096.
    assert!(end("server").unwrap() > 6.0e10);
    assert_eq!(end("other"), None);
    weir.reload(&config("other"));
    let mut again = client.connect(weir.address());
    assert!(again.resumed());
    assert_eq!(again.ask(get("/")).status, 200);
    assert_eq!(end("server"), None);
    assert!(end("other").is_some());
    let fresh = TlsClient::trusting(&certificates).host("other.example");
    assert_eq!(fresh.connect(weir.address()).shown(), pem(&certificates.path("other.pem"))[0]);
}

/// How often the log says that a certificate was not renewed.
fn failures(weir: &Weir) -> usize {
    weir.output().matches("certificate NOT renewed: ").count()
}

#[test]
fn a_certificate_is_renewed_although_the_configuration_file_has_a_fault() {
    let certificates = Certificates::new();
    let weir = gateway(&certificates);
    spoil_configuration(&weir);
    for _ in 0..2 {
        replace(&certificates, &certificates.made("server", &["127.0.0.1", "localhost"]));
        wait_until("the new certificate is shown", || {
            shows_file(&weir, &TlsClient::trusting(&certificates), &certificates)
        });
    }
    let path = certificates.path("server.pem").display().to_string();
    let renewed = format!("certificate renewed: {path}, which ends on 4096-01-01");
    wait_until("both renewals are logged", || weir.output().matches(&renewed).count() == 2);
    let said = weir.output();
    // Neither was a reload, and the file is still one that would not be served.
    assert!(!said.contains("configuration reloaded"), "{said}");
    assert!(!said.contains("rate_limit_config_updated"), "{said}");
    assert_eq!(said.matches("`kye`").count(), 1, "{said}");
    assert_eq!(weir.metrics().value("weir_config_last_reload_successful", &[]), Some(0.0));
}

#[test]
fn a_renewal_and_a_fault_at_the_same_time_do_not_hide_each_other() {
    let certificates = Certificates::new();
    let weir = gateway(&certificates);
    replace(&certificates, &certificates.made("server", &["127.0.0.1", "localhost"]));
    // The files are not at rest yet when the file is read and found at fault.
    spoil_configuration(&weir);
    wait_until("the new certificate is shown", || {
        shows_file(&weir, &TlsClient::trusting(&certificates), &certificates)
    });
}

#[test]
fn every_renewal_that_fails_is_logged_with_its_reason() {
    let certificates = Certificates::new();
    let weir = gateway(&certificates);
    spoil_configuration(&weir);
    for count in 1..=2 {
        let fresh = certificates.made("server", &["127.0.0.1", "localhost"]);
        std::fs::write(certificates.path("server.pem"), &fresh.certificate).unwrap();
        wait_until("the failure is logged", || failures(&weir) == count);
    }
    std::fs::remove_file(certificates.path("server.key")).unwrap();
    wait_until("the failure is logged", || failures(&weir) == 3);
    let said = weir.output();
    assert_eq!(said.matches("the key does not belong to the certificate").count(), 2, "{said}");
    let key = certificates.path("server.key").display().to_string();
    assert!(said.contains(&format!("{key} cannot be read")), "{said}");
    assert_eq!(
        TlsClient::trusting(&certificates).connect(weir.address()).ask(get("/")).status,
        200
    );
}

#[test]
fn a_broken_certificate_does_not_hold_up_the_renewal_of_another() {
    let certificates = Certificates::new();
    certificates.issue("other", &["other.example"]);
    let pairs = ["server", "other"].map(|name| format!("{{ {} }}", certificates.pair(name)));
    let weir = Weir::start(&Config::echo().open().server(&format!("tls = [{}]", pairs.join(", "))));
    std::fs::write(certificates.path("other.key"), "no key").unwrap();
    wait_until("the failure is logged", || failures(&weir) == 1);
    replace(&certificates, &certificates.made("server", &["127.0.0.1", "localhost"]));
    wait_until("the new certificate is shown", || {
        shows_file(&weir, &TlsClient::trusting(&certificates), &certificates)
    });
    assert_eq!(weir.metrics().value("weir_config_last_reload_successful", &[]), Some(0.0));
}

#[test]
fn a_configuration_that_waited_for_a_certificate_is_served_when_that_is_whole() {
    let certificates = Certificates::new();
    let weir = gateway(&certificates);
    let fresh = certificates.made("server", &["127.0.0.1", "localhost"]);
    std::fs::write(certificates.path("server.pem"), &fresh.certificate).unwrap();
    let text = std::fs::read_to_string(weir.file()).unwrap();
    weir.replace_file(&text.replace("[server]", "[server]\nmax_body = \"10B\""));
    wait_until("the configuration is not taken", || {
        weir.output().contains("configuration not reloaded")
    });
    std::fs::write(certificates.path("server.key"), &fresh.key).unwrap();
    wait_until("the configuration is served", || weir.output().contains("configuration reloaded"));
    assert_eq!(weir.metrics().value("weir_config_last_reload_successful", &[]), Some(1.0));
}

#[test]
fn another_authority_of_clients_is_taken_when_its_file_changes() {
    let (certificates, strangers) = (Certificates::new(), Certificates::new());
    // A file of its own: `ca.pem` is what the test itself trusts the server by.
    let authority = certificates.path("clients-ca.pem");
    std::fs::copy(strangers.path("ca.pem"), &authority).unwrap();
    let tls = format!("tls = {{ {}, client_ca = {authority:?} }}", certificates.pair("server"));
    let weir = Weir::start(&Config::echo().open().server(&tls));
    let status = || {
        let client = TlsClient::showing(&certificates, "client");
        let mut client = client.try_connect(weir.address()).ok()?;
        client.try_ask(get("/")).ok().map(|answer| answer.status)
    };
    assert_eq!(status(), None);
    spoil_configuration(&weir);
    std::fs::copy(certificates.path("ca.pem"), &authority).unwrap();
    wait_until("the client is believed", || status() == Some(200));
    let renewed = format!("certificate renewed: {}", authority.display());
    wait_until("the log says so", || weir.output().contains(&renewed));
}
