//! Messages that name what was meant.

use super::faults::each_refused;
use super::listeners::{make, valid};
use super::secrets::Files;
use super::{refused, with_route};
use crate::config::load;

/// For `api.example.com` and a hundred years, made by `openssl x509 -req` without extensions.
const VERSION_1_CERT: &str = "-----BEGIN CERTIFICATE-----\n\
    MIIBMDCB1wIUUl/lNBdj4S80hbh7nBS3AMHYPNowCgYIKoZIzj0EAwIwGjEYMBYG\n\
    A1UEAwwPYXBpLmV4YW1wbGUuY29tMCAXDTI2MTExODAyNDk1MVoYDzIxMjYxMDI1\n\
    MDI0OTUxWjAaMRgwFgYDVQQDDA9hcGkuZXhhbXBsZS5jb20wWTATBgcqhkjOPQIB\n\
    BggqhkjOPQMBBwNCAAThSnJL7+caQKV40uJhNxcubotOPVrtsHDUFBoUMGUVU8D1\n\
    Obij5Xy6+Me3d2H/y7DPrzX10jEDWddgp7qW4crYMAoGCCqGSM49BAMCA0gAMEUC\n\
    IHObGNHW4HB7pStTw1GeoXzFlKUeOyqyvzQhIzfSUpykAiEAowCKmV31Nj5cWlj/\n\
    kPW9XNoHeEsYt07DdhEoa0V9Uss=\n\
    -----END CERTIFICATE-----\n";
const VERSION_1_KEY: &str = "-----BEGIN PRIVATE KEY-----\n\
    MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg4SasOVYtETbzut3d\n\
    MZsWq9QRVjOTsvOdNkFX93rm4xyhRANCAAThSnJL7+caQKV40uJhNxcubotOPVrt\n\
    sHDUFBoUMGUVU8D1Obij5Xy6+Me3d2H/y7DPrzX10jEDWddgp7qW4crY\n\
    -----END PRIVATE KEY-----\n";

fn server(keys: &str) -> String {
    with_route(&format!("[server]\n{keys}"))
}

#[test]
fn addresses_say_where_a_socket_may_stand() {
    let folder = crate::test_folder::TestFolder::new();
    let directory = format!("listen = \"unix:{}\"", folder.path().display());
    each_refused(&[
        (
            with_route("[admin]\nlisten = \"unix:/run/admin.sock\""),
            "`listen` cannot be a Unix socket: `unix:/run/admin.sock`; write an IP address and a port, \
             such as `\"127.0.0.1:9090\"`",
        ),
        (
            with_route("[admin]\nlisten = \"nowhere:x\""),
            "write an IP address and a port, such as `\"127.0.0.1:9090\"`",
        ),
        (
            server("takeover = \"unix:/tmp/t.sock\""),
            "`takeover` is always a Unix socket; write its path without `unix:`: `\"/tmp/t.sock\"`",
        ),
        (server(&directory), "`listen` is a folder: `"),
        (
            server("redirect_https = \"443\""),
            "`redirect_https` must be true, false or a port, not a string; write a port without \
             quotes, such as `443`",
        ),
    ]);
}

fn upstream(keys: &str) -> String {
    format!("[[routes]]\nname = \"r\"\npath = \"/*\"\nupstream = \"u\"\n[upstreams.u]\n{keys}")
}

#[test]
fn a_balance_by_hash_names_one_source() {
    let balance = |text: &str| upstream(&format!("servers = [\"http://a\"]\nbalance = \"{text}\""));
    each_refused(&[
        (
            balance("hash:"),
            "`balance` cannot be `hash:`; write `hash:ip`, `hash:route`, `hash:user`",
        ),
        (balance("hash:$request_uri"), "`balance` cannot be `hash:$request_uri`; write `hash:ip`"),
        (balance("hash:usr"), "did you mean `hash:user`?"),
        (
            balance("hash:header"),
            "write `\"hash:header:NAME\"`, such as `\"hash:header:x-api-key\"`",
        ),
        (
            balance("hash:ip,header:x"),
            "`balance` names more than one source; write one of them only, such as `\"hash:ip\"`",
        ),
    ]);
    let lines = refused(&balance("hash:")).join("\n");
    assert!(!lines.contains("global"), "{lines}");
}

#[test]
fn a_weight_beside_an_address_is_told_where_it_stands() {
    each_refused(&[(
        upstream("servers = [\"http://a:1 weight=3\"]"),
        "has something after the address: `weight=3`; write `{ url = \"http://a:1\", weight = 3 }`",
    )]);
}

#[test]
fn files_that_cannot_be_read_are_named_by_the_path_that_was_looked_up() {
    let files = Files::new();
    let here = std::env::current_dir().unwrap();
    let fault = |text: &str| {
        files.write("weir.toml", text.as_bytes());
        let path = std::path::Path::new(files.folder()).join("weir.toml");
        load(&path).unwrap_err().lines().join("\n").replace(files.folder(), "F")
    };
    let beside = [
        server("tls = { cert = \"gone.pem\", key = \"server.key\" }"),
        format!("tenants_file = \"gone.pem\"\n{}", with_route("")),
        upstream("servers = [\"https://a\"]\ntls.ca = \"gone.pem\""),
    ];
    for text in beside {
        let found = fault(&text);
        assert!(found.contains("names a file that cannot be read: `F/gone.pem`: "), "{found}");
    }
    let from_here = [
        "[identity]\nclients_file = \"gone.pem\"\nclient = \"header:x\"",
        "[identity.jwt]\njwks_file = \"gone.pem\"",
        "[access]\nallow = { files = [\"gone.pem\"] }",
        "[store]\nkind = \"redis\"\nurl = \"redis://a\"\npassword_file = \"gone.pem\"",
    ];
    for text in from_here {
        let found = fault(&with_route(text));
        let expected = format!("cannot be read: `{}/gone.pem`: ", here.display());
        assert!(found.contains(&expected), "{found}");
    }
}

#[test]
fn a_certificate_of_version_1_is_not_called_damaged() {
    let files = Files::new();
    files.write("old.pem", VERSION_1_CERT.as_bytes());
    files.write("old.key", VERSION_1_KEY.as_bytes());
    let pair = "cert = \"F/old.pem\", key = \"F/old.key\"";
    let rows = [
        server(&format!("tls = {{ {pair} }}")),
        upstream(&format!("servers = [\"https://a\"]\ntls = {{ {pair} }}")),
    ];
    for text in rows {
        let found = refused(&text.replace("F/", &format!("{}/", files.folder()))).join("\n");
        assert!(found.contains("names a certificate of X.509 version 1: "), "{found}");
        assert!(
            found.contains("subject alternative names") && found.contains("-extfile"),
            "{found}"
        );
    }
    make(&files, "good", &valid(-1, 100));
}

#[test]
fn a_tenant_in_two_places_is_shown_in_both() {
    let files = Files::new();
    files.write("a.toml", b"[tenants.acme]\nrate = \"5/minute\"\n");
    files.write("b.toml", b"# more\n[tenants.acme]\nrate = \"5/minute\"\n");
    let text = |named: &str, more: &str| {
        format!(
            "tenants_file = {named}\n[identity]\ntenant = \"header:t\"\n[[routes]]\nname = \"r\"\n\
             path = \"/*\"\nupstream = \"echo\"\nlimits = [\"tenants\"]\n{more}"
        )
    };
    let fault = |text: &str| {
        files.write("weir.toml", text.as_bytes());
        let path = std::path::Path::new(files.folder()).join("weir.toml");
        load(&path).unwrap_err().to_string().replace(files.folder(), "F")
    };
    let two = fault(&text("[\"a.toml\", \"b.toml\"]", ""));
    assert!(two.contains("whose tenant `acme`, b.toml:2:10, is in a.toml:1:10 already"), "{two}");
    let own = fault(&text("\"b.toml\"", "[tenants.acme]\nrate = \"5/minute\"\n"));
    assert!(own.contains("`acme`, b.toml:2:10, is in the configuration already"), "{own}");
    assert!(own.contains("[tenants.acme]") && own.contains("it is here"), "{own}");
}
