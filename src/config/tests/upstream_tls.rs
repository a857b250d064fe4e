//! `https://` servers and `[upstreams.NAME.tls]`.

use super::faults::{each_refused, each_warned};
use super::listeners::{make, valid};
use super::secrets::Files;
use super::{good, refused};

/// An upstream of one server, with the keys of its `tls`.
fn upstream(servers: &str, tls: &str) -> String {
    format!(
        "[[routes]]\nname = \"r\"\npath = \"/*\"\nupstream = \"u\"\n[upstreams.u]\n\
         servers = [{servers}]\n[upstreams.u.tls]\n{tls}"
    )
}

fn with_files(files: &Files, keys: &str) -> String {
    upstream("\"https://a\"", &keys.replace("FOLDER", files.folder()))
}

#[test]
fn the_same_files_are_the_same_client() {
    let files = Files::new();
    let keys = "ca = \"FOLDER/upstream-ca.pem\"\ncert = \"FOLDER/upstream.pem\"\n\
                key = \"FOLDER/upstream.key\"\nserver_name = \"Api.internal\"";
    let tls = |keys: &str| {
        let loaded = good(&with_files(&files, keys));
        assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
        loaded.settings.upstreams[0].tls.clone().expect("TLS")
    };
    let one = tls(keys);
    assert_eq!(one, tls(keys));
    assert_eq!(one.server_name("b"), one.server_name("c"));
    assert_ne!(one, tls("ca = \"FOLDER/upstream-ca.pem\""));
    let made = rcgen::generate_simple_self_signed(["other".to_owned()]).unwrap();
    files.write("upstream-ca.pem", made.cert.pem().as_bytes());
    assert_ne!(one, tls(keys), "the file has changed");
}

#[test]
fn names_and_addresses_are_what_certificates_are_for() {
    let files = Files::new();
    let text = upstream(
        "\"https://api.internal\", \"https://10.0.0.1\", \"https://[::1]:444\"",
        &format!("ca = \"{}/upstream-ca.pem\"", files.folder()),
    );
    let upstream = &good(&text).settings.upstreams[0];
    let ports: Vec<u16> = upstream.servers.iter().map(|it| it.origin.port).collect();
    assert_eq!(ports, [443, 443, 444]);
    let tls = upstream.tls.as_ref().expect("TLS");
    for server in &upstream.servers {
        let name = tls.server_name(&server.origin.host).expect("a name");
        assert_eq!(name.to_str(), server.origin.host);
    }
}

#[test]
fn faults_of_tls_say_what_to_write() {
    let files = Files::new();
    let other = rcgen::generate_simple_self_signed(["other".to_owned()]).unwrap();
    files.write("other.key", other.signing_key.serialize_pem().as_bytes());
    let with = |keys: &str| with_files(&files, keys);
    let ca = "ca = \"FOLDER/upstream-ca.pem\"\n";
    each_refused(&[
        (upstream("\"http://a\"", ""), "goes with `https://` servers only; write `https://`"),
        (
            upstream("\"http://a\", \"https://b\"", ""),
            "6:24: an entry of `servers` is an https server beside one of http; write the same",
        ),
        (with("ca = \"FOLDER/none\""), "8:6: `ca` names a file that cannot be read"),
        (with("ca = \"FOLDER/upstream.key\""), "`ca` names a file that is no PEM certificate"),
        (with("cert = \"FOLDER/upstream.pem\""), "8:8: `cert` stands without its key; add `key`"),
        (with("key = \"FOLDER/upstream.key\""), "`key` stands without its certificate"),
        (
            with(&format!("{ca}cert = \"FOLDER/upstream.pem\"\nkey = \"FOLDER/upstream.pem\"")),
            "10:7: `key` names a file that is no PEM private key",
        ),
        (
            with(&format!("{ca}cert = \"FOLDER/upstream.pem\"\nkey = \"FOLDER/other.key\"")),
            "10:7: `key` cannot be used: the key does not belong to the certificate; name the key",
        ),
        (
            with(&format!("{ca}server_name = \"a b\"")),
            "9:15: `server_name` is neither a host name nor an address: `a b`",
        ),
        (with(&format!("{ca}verify = \"no\"")), "`verify` must be a boolean, not a string"),
        (with(&format!("{ca}sni = \"a\"")), "unknown key `sni`"),
    ]);
    let several =
        refused(&with("ca = \"FOLDER/none\"\ncert = \"FOLDER/none\"\nkey = \"FOLDER/none\""));
    assert_eq!(several.len(), 3, "{several:#?}");
}

#[test]
fn certificates_that_no_server_accepts_are_warned_of() {
    let files = Files::new();
    let keys =
        "ca = \"FOLDER/upstream-ca.pem\"\ncert = \"FOLDER/own.pem\"\nkey = \"FOLDER/own.key\"";
    for (from, to, expected) in [
        (-9, -1, "9:8: warning: `cert` names a certificate that has expired on"),
        (1, 100, "names a certificate that is not valid before"),
    ] {
        make(&files, "own", &valid(from, to));
        each_warned(&[(with_files(&files, keys), expected)]);
    }
}

#[test]
fn believing_anyone_is_warned_of() {
    let files = Files::new();
    let with = |keys: &str| with_files(&files, keys);
    each_warned(&[(with("verify = false"), "8:10: warning: `verify` is false: any server")]);
    let both = good(&with("verify = false\nca = \"FOLDER/upstream-ca.pem\""));
    assert!(both.warnings.lines()[1].contains("`ca` has no effect"), "{}", both.warnings);
}
