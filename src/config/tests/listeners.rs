//! Listeners: their addresses, certificates, and what differs from one to the next.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use super::faults::each_warned;
use super::secrets::Files;
use super::{good, refused, with_route};
use crate::config::settings::{HttpsPort, ListenAddress, Listener, Server, TlsVersion};
use crate::limit::{Key, Source};

const PAIR: &str = r#"{ cert = "F/server.pem", key = "F/server.key" }"#;

/// A `[server]` with these lines, in which `F` is the folder of the files.
fn text(files: &Files, lines: &str) -> String {
    with_route(&format!("[server]\n{lines}")).replace("F/", &format!("{}/", files.folder()))
}

fn server(files: &Files, lines: &str) -> Server {
    good(&text(files, lines)).settings.server
}

#[track_caller]
fn assert_refused(files: &Files, lines: &str, fault: &str) {
    let found = refused(&text(files, lines)).join("\n").replace(files.folder(), "F");
    assert!(found.contains(fault), "{found}\n{lines}");
}

pub(super) fn days_from_now(days: i64) -> SystemTime {
    let time = Duration::from_secs(86_400 * days.unsigned_abs());
    let now = SystemTime::now();
    if days < 0 { now - time } else { now + time }
}

/// A certificate for a host, valid between two days from now.
pub(super) fn valid(from: i64, to: i64) -> CertificateParams {
    let mut params = CertificateParams::new(["a.example".to_owned()]).unwrap();
    params.not_before = days_from_now(from).into();
    params.not_after = days_from_now(to).into();
    params
}

/// Writes `NAME.pem` and `NAME.key`.
pub(super) fn make(files: &Files, name: &str, params: &CertificateParams) -> KeyPair {
    let key = KeyPair::generate().unwrap();
    files.write(&format!("{name}.pem"), params.self_signed(&key).unwrap().pem().as_bytes());
    files.write(&format!("{name}.key"), key.serialize_pem().as_bytes());
    key
}

#[test]
fn entries_say_what_differs() {
    let files = Files::new();
    let lines = format!(
        r#"proxy_protocol = true
tls = {PAIR}
listen = ["0.0.0.0:443", {{ address = "0.0.0.0:80", tls = false, proxy_protocol = false }}, "unix:/run/a",
          {{ address = "unix:/run/b", mode = "0600" }}]"#
    );
    let listen = server(&files, &lines).listen;
    let shape = |it: &Listener| (it.to_string(), it.tls.is_some(), it.proxy_protocol);
    let expected = [
        ("https://0.0.0.0:443".to_owned(), true, true),
        ("0.0.0.0:80".to_owned(), false, false),
        ("unix:/run/a".to_owned(), false, true),
        ("unix:/run/b".to_owned(), false, true),
    ];
    assert_eq!(listen.iter().map(shape).collect::<Vec<_>>(), expected);
    let unix = |path: &str, mode| ListenAddress::Unix { path: PathBuf::from(path), mode };
    assert_eq!(listen[2].address, unix("/run/a", 0o660));
    assert_eq!(listen[3].address, unix("/run/b", 0o600));
}

#[test]
fn faults_of_listeners_name_the_way_out() {
    let files = Files::new();
    let pair = |rest: &str| format!("tls = {}{rest} }}", PAIR.trim_end_matches(" }"));
    for (lines, fault) in [
        ("listen = [{}]", "an entry of `listen` has no `address`"),
        ("listen = [{ adress = \"0.0.0.0:1\" }]", "did you mean `address`?"),
        (
            "listen = [{ address = \"0.0.0.0:1\", ssl = true }]",
            "known here: `address`, `mode`, `tls`, `proxy_protocol`",
        ),
        ("listen = \"unix:\"", "is not the path of a socket: ``"),
        ("listen = [\"unix:/a\", \"unix:/a\"]", "`unix:/a` is listened on already"),
        (
            "listen = [{ address = \"0.0.0.0:1\", mode = \"0600\" }]",
            "`mode` goes with a Unix socket",
        ),
        (
            "listen = [{ address = \"unix:/a\", mode = \"0999\" }]",
            "is not the permissions of a file",
        ),
        ("listen = [{ address = \"unix:/a\", mode = 432 }]", "must be a string, not an integer"),
        (
            &format!("listen = [{{ address = \"unix:/a\", tls = {PAIR} }}]"),
            "`tls` does not go with a Unix socket; leave it out",
        ),
        ("tls = true", "`tls` does not say which certificate to show"),
        ("tls = []", "`tls` is empty"),
        ("tls = \"cert.pem\"", "`tls` must be a table, not a string"),
        ("tls = { cert = \"F/server.pem\" }", "`tls` of `[server]` has no `key`"),
        (
            "tls = { cert = \"F/gone\", key = \"F/server.key\" }",
            "6:16: `cert` names a file that cannot",
        ),
        ("tls = { cert = \"F/jwks.json\", key = \"F/server.key\" }", "is no PEM certificate"),
        ("tls = { cert = \"F/server.pem\", key = \"F/server.pem\" }", "is no PEM private key"),
        (&pair(", min_version = \"1.1\""), "`min_version` cannot be `1.1`"),
        (
            &pair(", client_auth = \"optional\""),
            "`client_auth` does not say whose certificates count",
        ),
        (&pair(", client_ca = \"F/server.key\""), "is no PEM certificate"),
        (
            &format!(
                "tls = [{PAIR}, {{ cert = \"F/server.pem\", key = \"F/server.key\", min_version = \"1.3\" }}]"
            ),
            "`min_version` holds for all certificates; write it with the first of them",
        ),
        ("redirect_https = true", "`redirect_https` has nowhere to send clients"),
        ("redirect_https = 0", "`redirect_https` is out of range: `0`; write a number from 1"),
        ("max_connections_per_ip = -1", "`max_connections_per_ip`"),
    ] {
        assert_refused(&files, lines, fault);
    }
}

#[test]
fn certificates_that_cannot_be_read_are_the_only_fault() {
    let files = Files::new();
    let lines = "redirect_https = true\ntls = { cert = \"F/gone\", key = \"F/server.key\", client_ca = \
                 \"F/clients-ca.pem\" }\n[identity]\nclient = \"tls:subject\"";
    let found = refused(&text(&files, lines));
    assert!(found.len() == 1 && found[0].contains("names a file that cannot"), "{found:#?}");
}

#[test]
fn a_key_must_be_that_of_its_certificate() {
    let files = Files::new();
    files.write("other.key", KeyPair::generate().unwrap().serialize_pem().as_bytes());
    assert_refused(
        &files,
        "tls = { cert = \"F/server.pem\", key = \"F/other.key\" }",
        "`key` does not fit `cert`: the key does not belong to the certificate; name the key that",
    );
}

#[test]
fn certificates_that_end_are_worth_a_warning() {
    let files = Files::new();
    for (from, to, expected) in [
        (-9, -1, "that has expired on"),
        (-9, 5, "that expires on"),
        (-9, 100, ""),
        (1, 100, "that is not valid before"),
    ] {
        make(&files, "old", &valid(from, to));
        let loaded = good(&text(&files, "tls = { cert = \"F/old.pem\", key = \"F/old.key\" }"));
        let warnings = loaded.warnings.lines().join("\n");
        assert_eq!(warnings.is_empty(), expected.is_empty(), "{warnings}");
        assert!(warnings.contains(expected), "{warnings}");
    }
}

#[test]
fn certificates_that_no_client_accepts_are_warned_of() {
    let files = Files::new();
    let mut nameless = valid(-1, 100);
    nameless.subject_alt_names = Vec::new();
    make(&files, "nameless", &nameless);
    let warnings =
        good(&text(&files, "tls = { cert = \"F/nameless.pem\", key = \"F/nameless.key\" }"));
    let warnings = warnings.warnings.lines().join("\n");
    assert!(
        warnings.contains("`cert` names no host and no address; use one with subject"),
        "{warnings}"
    );
}

#[test]
fn authorities_of_clients_are_looked_at() {
    let files = Files::new();
    let mut authority = valid(-1, 100);
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name.push(DnType::CommonName, "authority");
    let signer = make(&files, "authority", &authority);
    let issuer = Issuer::new(authority.clone(), signer);
    let key = KeyPair::generate().unwrap();
    let leaf = valid(-1, 100).signed_by(&key, &issuer).unwrap();
    files.write("leaf.pem", leaf.pem().as_bytes());
    authority.not_after = days_from_now(-1).into();
    authority.not_before = days_from_now(-9).into();
    make(&files, "expired", &authority);
    for (name, expected) in [
        ("leaf", "`client_ca` names no authority; name the certificate that those of clients are"),
        ("expired", "`client_ca` names an authority that has expired on"),
        ("authority", ""),
        // One of its own, which a client may show.
        ("server", ""),
    ] {
        let lines =
            format!("tls = {}, client_ca = \"F/{name}.pem\" }}", PAIR.trim_end_matches(" }"));
        let warnings = good(&text(&files, &lines)).warnings.lines().join("\n");
        assert_eq!(warnings.is_empty(), expected.is_empty(), "{name}: {warnings}");
        assert!(warnings.contains(expected), "{name}: {warnings}");
    }
}

#[test]
fn doubtful_addresses_are_warned_of() {
    each_warned(&[
        (
            with_route("[server]\nlisten = \"0.0.0.0:443\""),
            "6:10: warning: `listen` is the port of HTTPS, and has no `tls`; add it, or write",
        ),
        (
            with_route("[server]\nlisten = [\"unix:/no/such/folder/a.sock\"]"),
            "is in a folder that does not exist: `/no/such/folder`; create the folder first",
        ),
    ]);
    let plain = with_route("[server]\nlisten = [{ address = \"0.0.0.0:443\", tls = false }]");
    assert!(good(&plain).warnings.is_empty(), "it says so itself");
}

#[test]
fn tls_says_what_clients_must_have() {
    let files = Files::new();
    let lines = "tls = [{ cert = \"F/server.pem\", key = \"F/server.key\", min_version = \"1.3\", \
                 client_ca = \"F/clients-ca.pem\", client_auth = \"optional\" }]\nredirect_https = true\n\
                 listen = [\"0.0.0.0:443\", { address = \"0.0.0.0:80\", tls = false }]";
    let found = server(&files, lines);
    assert_eq!(found.redirect_https, Some(HttpsPort::OfListener));
    let tls = found.listen[0].tls.clone().unwrap();
    assert_eq!(tls.min_version, TlsVersion::Tls13);
    assert!(!tls.client_auth.as_ref().unwrap().required);
    assert_eq!(tls.certificates[0].hosts, ["localhost"]);
    assert!(tls.covers("localhost") && !tls.covers("a.localhost") && !tls.covers("10.0.0.1"));
    assert_eq!(tls.files().count(), 3);
    assert_eq!(server(&files, "redirect_https = 8443").redirect_https, Some(HttpsPort::Port(8443)));
}

#[test]
fn certificates_of_clients_are_sources_where_they_are_asked_for() {
    let files = Files::new();
    let limit = "[limits.l]\nkey = [\"tls:subject\", \"tls:san\"]\nrate = \"1/second\"\n";
    let tls =
        format!("tls = {}, client_ca = \"F/clients-ca.pem\" }}\n", PAIR.trim_end_matches(" }"));
    let limits = good(&text(&files, &format!("{tls}{limit}"))).settings.limits;
    assert_eq!(limits[0].key, Key(vec![Source::TlsSubject, Source::TlsNames]));
    assert_refused(
        &files,
        limit,
        "cannot be `tls:subject`: no listener asks clients for certificates; add `client_ca` to the",
    );
    let wrong = limit.replace("tls:san", "tls:name");
    assert_refused(&files, &format!("{tls}{wrong}"), "write `\"tls:subject\"` or `\"tls:san\"`");
}

#[test]
fn peers_of_unix_sockets_are_trusted_by_name() {
    let text = with_route("[identity]\ntrusted_proxies = [\"unix:\", \"10.0.0.1\"]");
    let trusted = good(&text).settings.identity.trusted_proxies;
    assert_eq!(trusted[0], "::/128".parse().unwrap());
    assert_eq!(trusted.len(), 2);
}
