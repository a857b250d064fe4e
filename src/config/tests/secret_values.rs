//! Secrets in files with a fault: neither a shown line nor a message has them, in whatever way they were
//! written.

use super::{redis, refused, route, with_route};
use crate::config::{ConfigError, parse, parse_clients};

/// All that is shown of a file that is refused.
fn shown(text: &str) -> String {
    let error = parse("config.toml", text).err();
    all_of(&error.unwrap_or_else(|| panic!("accepted:\n{text}")))
}

fn all_of(error: &ConfigError) -> String {
    format!("{}\n{}\n{error:?}", error.render(false), error.lines().join("\n"))
}

fn assert_hidden(text: &str) {
    let shown = shown(text);
    assert!(!shown.contains("unter2"), "{text}\n{shown}");
}

#[test]
fn a_secret_is_hidden_whatever_stands_between_it_and_its_key() {
    for line in [
        "password \"hunter2Zq\"",
        "password hunter2Zq",
        "password = hunter2Zq",
        "password: hunter2Zq",
        "password => \"hunter2Zq\"",
        "password\"hunter2Zq\"",
        "key_hash \"hunter2Zq\"",
        "token \"hunter2Zq\"",
        "secret \"hunter2Zq\"",
        "secret_env \"hunter2Zq\"",
        "requirepass hunter2Zq",
        "user weir on >hunter2Zq ~weir:*",
        "auth hunter2Zq",
        "auth_pass: hunter2Zq",
        "masterauth: hunter2Zq",
        "proxy_set_header Authorization \"Bearer hunter2Zq\";",
        "proxy_set_header X-Api-Key \"hunter2Zq\";",
        "password =\n\"hunter2Zq\"",
        "password:\n  hunter2Zq",
        "password: >\n  hunter2Zq",
        "password: |\n  hunter2Zq\n  hunter2Zq",
        "password = \"hunter2Zq\nhunter2Zq",
    ] {
        for table in ["[store]", "[limits.a]", "[[routes]]", ""] {
            assert_hidden(&format!("{table}\n{line}\n"));
        }
    }
}

#[test]
fn a_secret_is_hidden_whatever_its_key_is_called() {
    for key in [
        "pass",
        "pwd",
        "requirepass",
        "auth",
        "credential",
        "credentials",
        "passphrase",
        "access_key",
        "secret-key",
        "signing_key",
        "hmac",
        "bearer",
    ] {
        for table in ["store", "admin", "identity.jwt"] {
            assert_hidden(&with_route(&format!("[{table}]\n{key} = \"hunter2Zq\"")));
            assert_hidden(&with_route(&format!("[{table}]\n{key} = [\"hunter2Zq\", 5]")));
            assert_hidden(&with_route(&format!("[{table}]\nkind = {{ {key} = \"hunter2Zq\" }}")));
        }
    }
    for text in [
        redis("sentinel = { master = \"m\", nodes = [\"a\"], auth = \"hunter2Zq\" }"),
        with_route("[admin]\nauth = { bearer = \"hunter2Zq\" }"),
        with_route("[admin]\nbasic_auth = \"me:hunter2Zq\""),
        with_route("[admin]\nusers = [\"admin:$apr1$hunter2Zq\"]"),
        with_route("[identity.jwt]\nkey = \"hunter2Zq\""),
        with_route("[identity]\njwt = { key = \"hunter2Zq\" }"),
        with_route("[identity]\njwt.key = \"hunter2Zq\""),
    ] {
        assert_hidden(&text);
    }
}

#[test]
fn headers_of_a_route_that_may_be_secrets_are_hidden() {
    for set in [
        "{ set = { \"x-auth\" = \"hunter2Zq\" }, bogus = 1 }",
        "{ set = { \"cookie\" = \"sid=hunter2Zq\" }, bogus = 1 }",
        "{ set = { \"authorization\" = \"Bearer hunter2Zq\", host = \"a\" } }",
        "{ set = { \"x-auth\" = \"hunter2Zq\", \"X-Auth\" = \"hunter2Zq\" } }",
        "{ set = { \"x-auth\" = \"first\", \"X-Auth\" = \"hunter2Zq\" } }",
        "{ set = { \"x-auth\" = \"first\", \"x-token\" = \"hunter2Zq\\n\" } }",
        "{ set = { \"x-auth\" = \"0123456789012345678901234567890123456789hunter2Zq\\n\" } }",
        "{ set = { \"x-auth\" = \"hunter2Zq\\u0000\" } }",
        "{ set = { \"x-auth\" = \"hunter2Zq\\n\" } }",
    ] {
        assert_hidden(&route(&format!("path = \"/*\"\nrequest_headers = {set}")));
    }
}

#[test]
fn what_is_out_of_place_in_a_url_of_redis_is_hidden() {
    for url in [
        "redis://h/0?auth=hunter2Zq",
        "redis://h/0?user=a&pass=hunter2Zq",
        "redis://h/0?hunter2Zq",
        "redis://h/0#hunter2Zq",
        "redis://h:6379/hunter2Zq",
        "redis://me:hunter2Zq",
        "redis://:hunter2Zq/0",
        "unix:///run/redis.sock?password=hunter2Zq",
    ] {
        assert_hidden(&redis(&format!("url = \"{url}\"")));
        assert_hidden(&redis(&format!("url = [\"{url}\"]\ncluster = true")));
        assert_hidden(&redis(&format!("url = {url}")));
        assert_hidden(&redis(&format!("sentinel = {{ master = \"m\", nodes = [\"{url}\"] }}")));
    }
}

#[test]
fn the_content_of_a_file_in_place_of_its_path_is_hidden_and_a_path_is_not() {
    let pem = "\"-----BEGIN PRIVATE KEY-----\\nhunter2Zq\\n-----END PRIVATE KEY-----\"";
    let lines = "\"\"\"\nhunter2Zq\nhunter2Zq\"\"\"";
    let set = "'{\"keys\":[{\"kty\":\"oct\",\"k\":\"hunter2Zq\"}]}'";
    let told = "has what should be in a file in place of its path; write it into a file, and";
    for value in [pem, lines, set] {
        for text in [
            redis(&format!("url = \"redis://a\"\npassword_file = {value}")),
            with_route(&format!("[identity.jwt]\nsecret_file = {value}")),
            with_route(&format!("[identity.jwt]\npem_file = {value}")),
            with_route(&format!("[identity.jwt]\njwks_file = {value}")),
            with_route(&format!("[identity]\nclient = \"header:a\"\nclients_file = {value}")),
            with_route(&format!("[server]\ntls.cert = \"a.pem\"\ntls.key = {value}")),
        ] {
            assert_hidden(&text);
            assert!(shown(&text).contains(told), "{}", shown(&text));
        }
    }
    let text = redis("url = \"redis://a\"\npassword_file = \"/no/such/redis-password\"");
    let shown = shown(&text);
    assert!(shown.contains("cannot be read: `/no/such/redis-password`"), "{shown}");
    assert!(shown.contains("password_file = \"/no/such/redis-password\"\n"), "{shown}");
}

#[test]
fn the_key_of_a_client_is_hidden_and_told_its_hash() {
    let hash =
        "write `key_hash = \"sha256:…\"`, the hash of the key and never the key: `weir hash-key`";
    for line in [
        "key: hunter2Zq",
        "key = \"hunter2Zq\"",
        "keys = [\"hunter2Zq\"]",
        "hash = \"hunter2Zq\"",
        "api_key = \"hunter2Zq\"",
        "api_key: hunter2Zq",
    ] {
        let text = format!("[[clients]]\nid = \"a\"\n{line}\n");
        let error = parse_clients("clients.toml", &text).expect_err("refused");
        for shown in [all_of(&error), shown(&with_route(&text))] {
            assert!(!shown.contains("unter2"), "{shown}");
            assert!(shown.contains(hash), "{shown}");
        }
        assert!(!error.lines().join("").contains("has no `key_hash`"), "{error}");
    }
    let both = "[[clients]]\nkey_hash = \"sha256:00\"\nkey = \"hunter2Zq\"\n";
    assert!(refused(&with_route(both)).join("\n").contains("remove it: `key_hash` is there"));
}

#[test]
fn what_limits_count_by_is_shown() {
    for line in ["key = \"ip\"", "key = \"header:x-api-key\"", "key = [\"ip\", \"header:x-auth\"]"]
    {
        for table in ["limits.a", "guards.a"] {
            let text = with_route(&format!("[{table}]\n{line} x\n"));
            let shown = shown(&text);
            assert!(shown.contains(&format!(" | {line} x\n")), "{shown}");
        }
    }
}
