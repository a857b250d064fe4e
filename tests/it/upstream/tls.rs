//! `https://` servers: who is believed, what is shown to them, and what a failure looks like.

use std::net::TcpListener;
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::Signal;

use super::faults::proxy_error;
use crate::support::certificates::Certificates;
use crate::support::gateway::program;
use crate::support::tls_front::{FrontOptions, TlsFront};
use crate::support::{Config, Response, Scratch, Upstream, Weir, post, wait_until};

/// An upstream at `https://HOST:PORT`, with the keys of its `tls`.
fn config(url: &str, tls: &str) -> Config {
    Config::echo().open().upstream(&format!("servers = [\"{url}\"]\ntls = {{ {tls} }}"))
}

fn url(front: &TlsFront) -> String {
    format!("https://127.0.0.1:{}", front.address().port())
}

fn ca(certificates: &Certificates) -> String {
    format!("ca = {:?}", certificates.path("ca.pem"))
}

#[track_caller]
fn assert_fault(response: &Response, error: &str) {
    assert_eq!((response.status, response.error()), (502, "upstream_unavailable".into()));
    assert_eq!(proxy_error(response), error);
}

#[test]
fn a_server_that_proves_itself_is_served_over_both_versions_of_tls() {
    let (certificates, upstream) = (Certificates::new(), Upstream::ok());
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let options = FrontOptions { versions: &[version], ..FrontOptions::default() };
        let front = TlsFront::start(upstream.address(), &certificates, &options);
        let weir = Weir::start(&config(&url(&front), &ca(&certificates)));
        let body = "x".repeat(300_000);
        assert_eq!(weir.get("/a").status, 200);
        assert_eq!(weir.ask(post("/b", &body)).status, 200);
        let received = upstream.requests();
        let received = received.last().unwrap();
        assert_eq!((received.target.as_str(), received.body.len()), ("/b", body.len()));
        assert_eq!(received.one("host"), "weir.test");
        assert_eq!(front.tls12() > 0, *version == rustls::version::TLS12);
    }
}

#[test]
fn an_address_is_verified_by_itself_and_a_name_is_asked_for() {
    let (certificates, upstream) = (Certificates::new(), Upstream::ok());
    certificates.issue("address", &["127.0.0.1"]);
    certificates.issue("name", &["localhost"]);
    let front = |certificate| {
        let options = FrontOptions { certificate, ..FrontOptions::default() };
        TlsFront::start(upstream.address(), &certificates, &options)
    };
    let (address, name) = (front("address"), front("name"));
    let weir = Weir::start(&config(&url(&address), &ca(&certificates)));
    assert_eq!(weir.get("/").status, 200);
    assert_eq!(address.named(), 0, "an address is no name: RFC 6066 section 3");
    let by_name = format!("https://localhost:{}", name.address().port());
    weir.reload(&config(&by_name, &ca(&certificates)));
    assert_eq!(weir.get("/").status, 200);
    assert_eq!(name.named(), 1);
    // The host is an address, and the certificate is for a name.
    weir.reload(&config(&url(&name), &ca(&certificates)));
    assert_fault(&weir.get("/"), "tls_certificate_error");
    let named = format!("{}, server_name = \"localhost\"", ca(&certificates));
    weir.reload(&config(&url(&name), &named));
    assert_eq!(weir.get("/").status, 200);
}

#[test]
fn a_server_that_cannot_be_believed_gets_no_request() {
    let (certificates, upstream) = (Certificates::new(), Upstream::ok());
    certificates.issue("other-name", &["other.test"]);
    certificates.issue_expired("expired", &["127.0.0.1"]);
    let strangers = Certificates::new();
    for (certificate, tls) in [
        ("other-name", ca(&certificates)),
        ("expired", ca(&certificates)),
        ("server", ca(&strangers)),
        ("server", format!("{}, server_name = \"other.test\"", ca(&certificates))),
    ] {
        let options = FrontOptions { certificate, ..FrontOptions::default() };
        let front = TlsFront::start(upstream.address(), &certificates, &options);
        let weir = Weir::start(&config(&url(&front), &tls));
        assert_fault(&weir.get("/"), "tls_certificate_error");
        let response = weir.ask(post("/", "hello"));
        assert_fault(&response, "tls_certificate_error");
        // What is in the certificate is for the log, and not for callers.
        let (told, logged) = (response.text(), weir.output());
        assert!(!told.contains("certificate"), "{told}");
        assert!(logged.contains("cannot be reached: no TLS that can be believed: "), "{logged}");
        let labels = [("upstream", "api"), ("error", "unreachable")];
        let counted = || weir.metrics().value("weir_upstream_errors_total", &labels);
        wait_until("both are counted", || counted() == Some(2.0));
    }
    // Not even one whose authority the system does not know.
    let front = TlsFront::start(upstream.address(), &certificates, &FrontOptions::default());
    let system = Config::echo().open();
    let weir = Weir::start(&system.upstream(&format!("servers = [\"{}\"]", url(&front))));
    assert_fault(&weir.get("/"), "tls_certificate_error");
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn a_client_certificate_is_shown_to_servers_that_ask() {
    let (certificates, upstream) = (Certificates::new(), Upstream::ok());
    let strangers = Certificates::new();
    let identity = |from: &Certificates| {
        let (cert, key) = (from.path("client.pem"), from.path("client.key"));
        format!("{}, cert = {cert:?}, key = {key:?}", ca(&certificates))
    };
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let options = FrontOptions {
            client_certificate: true,
            versions: &[version],
            ..FrontOptions::default()
        };
        let front = TlsFront::start(upstream.address(), &certificates, &options);
        let weir = Weir::start(&config(&url(&front), &identity(&certificates)));
        assert_eq!(weir.get("/").status, 200);
        let heads = upstream.heads();
        for tls in [ca(&certificates), identity(&strangers)] {
            weir.reload(&config(&url(&front), &tls));
            assert_fault(&weir.get("/"), "tls_alert_received");
            assert_fault(&weir.ask(post("/", "hello")), "tls_alert_received");
        }
        assert_eq!(upstream.heads(), heads);
    }
}

#[test]
fn a_server_without_tls_is_a_502_and_one_that_hangs_a_504() {
    let (certificates, upstream) = (Certificates::new(), Upstream::ok());
    // It speaks plain HTTP, and takes the handshake for a request it cannot read.
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let plain_url = format!("https://{}", plain.local_addr().unwrap());
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = plain.accept() {
            use std::io::{Read as _, Write as _};
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
        }
    });
    let lines = ca(&certificates);
    let weir = Weir::start(&config(&plain_url, &lines));
    assert_fault(&weir.get("/"), "tls_protocol_error");
    // One that never says anything, beside one that is fine.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_url = format!("https://{}", silent.local_addr().unwrap());
    let hangs = |url: &str| config(url, &lines).upstream("connect_timeout = \"200ms\"");
    weir.reload(&hangs(&silent_url));
    let response = weir.get("/");
    assert_eq!((response.status, response.error()), (504, "upstream_timeout".into()));
    assert_eq!(proxy_error(&response), "connection_timeout");
    let front = TlsFront::start(upstream.address(), &certificates, &FrontOptions::default());
    let both = format!("{silent_url}\", \"{}", url(&front));
    weir.reload(&hangs(&both));
    // Nothing was sent, so even these may go to another.
    for _ in 0..4 {
        assert_eq!(weir.ask(post("/", "hello")).status, 200);
    }
}

#[test]
fn all_workers_resume_each_others_sessions() {
    let (certificates, upstream) = (Certificates::new(), Upstream::ok());
    let front = TlsFront::start(upstream.address(), &certificates, &FrontOptions::default());
    let config = config(&url(&front), &ca(&certificates)).upstream("keepalive = 0");
    let weir = Weir::start(&config.server("workers = 2"));
    for _ in 0..12 {
        assert_eq!(weir.get("/").status, 200);
    }
    let (full, resumed) = front.handshakes();
    assert_eq!(full + resumed, 12);
    assert!(full <= 2, "{full} of 12 handshakes were made from scratch");
}

#[test]
fn a_reload_takes_files_that_have_changed_and_keeps_connections_otherwise() {
    let (certificates, upstream) = (Certificates::new(), Upstream::ok());
    let front = TlsFront::start(upstream.address(), &certificates, &FrontOptions::default());
    let trusted = Scratch::new();
    let write = |from: &Certificates| {
        let pem = std::fs::read_to_string(from.path("ca.pem")).unwrap();
        trusted.file("ca.pem", &pem)
    };
    let file = write(&certificates);
    let weir = Weir::start(&config(&url(&front), &format!("ca = {file:?}")).server("workers = 1"));
    let reload = || {
        let before = weir.reloads("ok");
        weir.signal(Signal::HUP);
        wait_until("it is reloaded", || weir.reloads("ok") > before);
    };
    assert_eq!(weir.get("/").status, 200);
    reload();
    assert_eq!(weir.get("/").status, 200);
    assert_eq!(upstream.connections(), 1, "the same files, the same connection");
    write(&Certificates::new());
    reload();
    assert_fault(&weir.get("/"), "tls_certificate_error");
    write(&certificates);
    reload();
    assert_eq!(weir.get("/").status, 200);
}

#[test]
fn files_of_an_upstream_are_taken_when_they_change_whatever_the_configuration_file_says() {
    let (certificates, upstream) = (Certificates::new(), Upstream::ok());
    let options = FrontOptions { client_certificate: true, ..FrontOptions::default() };
    let front = TlsFront::start(upstream.address(), &certificates, &options);
    let (strangers, files) = (Certificates::new(), Scratch::new());
    let copy = |from: &Certificates, names: &[&str]| {
        for name in names {
            files.file(name, &std::fs::read_to_string(from.path(name)).unwrap());
        }
    };
    let all = ["ca.pem", "client.pem", "client.key"];
    copy(&strangers, &all);
    let [ca, cert, key] = all.map(|name| files.path().join(name));
    let weir =
        Weir::start(&config(&url(&front), &format!("ca = {ca:?}, cert = {cert:?}, key = {key:?}")));
    let renewed = |path: &std::path::Path| {
        weir.output().contains(&format!("certificate renewed: {}", path.display()))
    };
    assert_fault(&weir.get("/"), "tls_certificate_error");
    copy(&certificates, &["ca.pem"]);
    wait_until("the authority is taken", || renewed(&ca));
    assert_fault(&weir.get("/"), "tls_alert_received");
    let text = std::fs::read_to_string(weir.file()).unwrap();
    weir.replace_file(&format!("{text}\nkye = 1\n"));
    wait_until("the fault is reported", || weir.output().contains("`kye`"));
    copy(&certificates, &["client.pem"]);
    wait_until("a half is not taken", || weir.output().contains("certificate NOT renewed: "));
    copy(&certificates, &["client.key"]);
    wait_until("the pair is taken", || renewed(&cert));
    assert_eq!(weir.get("/").status, 200);
    assert!(!weir.output().contains("configuration reloaded"), "{}", weir.output());
}

#[test]
fn believing_anyone_works_and_is_warned_of_at_check_and_start() {
    let (certificates, upstream) = (Certificates::new(), Upstream::ok());
    certificates.issue_expired("expired", &["other.test"]);
    let options = FrontOptions { certificate: "expired", ..FrontOptions::default() };
    let front = TlsFront::start(upstream.address(), &certificates, &options);
    let config = config(&url(&front), "verify = false");
    let weir = Weir::start(&config);
    assert_eq!(weir.get("/").status, 200);
    let warning = "`verify` is false: any server that answers is believed";
    assert!(weir.output().contains(warning), "{}", weir.output());
    let checked = program().arg("check").arg(weir.file()).output().unwrap();
    assert!(String::from_utf8_lossy(&checked.stderr).contains(warning), "{checked:?}");
}

#[test]
fn a_tunnel_goes_through_tls() {
    let certificates = Certificates::new();
    let (done, over) = mpsc::channel::<()>();
    let over = std::sync::Mutex::new(over);
    let upstream = Upstream::scripted(move |exchange| {
        exchange.reply(crate::support::held_upstream::SWITCH);
        exchange.reply("hello through the tunnel");
        let _ = over.lock().unwrap().recv_timeout(Duration::from_secs(20));
        crate::support::After::Close
    });
    let front = TlsFront::start(upstream.address(), &certificates, &FrontOptions::default());
    let weir = Weir::start(&config(&url(&front), &ca(&certificates)));
    let mut client = weir.connect();
    client.send(crate::support::held_upstream::UPGRADE);
    let head = client.response();
    assert_eq!(head.status, 101);
    assert_eq!(client.wire.take(24).unwrap(), b"hello through the tunnel");
    drop(done);
}
