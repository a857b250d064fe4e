//! Files of clients.

use super::super::parse_clients;
use crate::caller::clients::{hash_key, new_key};
use crate::config::settings::Client;

const HASH: &str = "sha256:248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1";

fn good(text: &str) -> Vec<Client> {
    parse_clients("clients.toml", text).unwrap_or_else(|error| panic!("refused:\n{error}\n{text}"))
}

fn refused(text: &str) -> Vec<String> {
    match parse_clients("clients.toml", text) {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(error) => error.lines(),
    }
}

#[test]
fn a_client_is_an_id_and_a_hash_and_what_else_is_known_of_it() {
    let other = hash_key(&new_key().unwrap()).unwrap();
    let clients = good(&format!(
        "[[clients]]\nid = \"a\"\nkey_hash = \"{HASH}\"\n\
         [[clients]]\nid = \"b\"\nkey_hash = \"{other}\"\nplan = \"pro\"\ntenant = \"acme\"\ntrust = 0.25\n"
    ));
    let told = clients.iter().map(|it| (it.id.as_str(), it.plan.as_deref(), it.trust));
    assert_eq!(told.collect::<Vec<_>>(), [("a", None, None), ("b", Some("pro"), Some(250))]);
    assert_eq!(clients[1].tenant.as_deref(), Some("acme"));
    assert_eq!(clients[0].key_hash[..2], [0x24, 0x8d]);
    assert_eq!(good(""), []);
}

#[test]
fn faults_of_clients_have_their_line_and_column() {
    let with = |keys: &str| format!("[[clients]]\nid = \"a\"\nkey_hash = \"{HASH}\"\n{keys}\n");
    for (text, expected) in [
        (with("trust = 1.1"), "clients.toml:4:9: `trust` is out of range"),
        (with("plan = 5"), "4:8: `plan` must be a string, not an integer"),
        (with("plan = \"\""), "4:8: `plan` cannot be ``; write 1 to 128 characters"),
        (with("tenat = \"x\""), "4:1: unknown key `tenat`; did you mean `tenant`?"),
        (with("[server]"), "unknown key `server`"),
        (format!("[[clients]]\nkey_hash = \"{HASH}\""), "1:1: `[[clients]]` has no `id`"),
        ("[[clients]]\nid = \"a\"".to_owned(), "1:1: `[[clients]]` has no `key_hash`"),
        ("[clients]\nid = \"a\"".to_owned(), "must be an array of tables, not a table"),
        (with(&with("").replace("\"a\"", "\"b\"")), "`key_hash` repeats an earlier one"),
        (with(&with("").replace("1\"\n", "2\"\n")), "5:6: `id` repeats an earlier one: `a`"),
        (with("").replace(HASH, "sha256:00"), "3:12: `key_hash` does not have 64 hexadecimal"),
        ("id = ".to_owned(), "clients.toml:1:"),
    ] {
        let lines = refused(&text);
        assert!(lines.len() == 1 && lines[0].contains(expected), "{expected:?}: {lines:#?}");
    }
}

#[test]
fn a_key_in_the_place_of_its_hash_is_not_repeated() {
    let own = new_key().unwrap();
    for (text, key) in [
        ("[[clients]]\nid = \"a\"\nkey_hash = \"hunter2hunter2hunter2\"\n".to_owned(), "hunter2"),
        ("[[clients]]\nid = \"a\"\nkey_hash = \"sha256:hunter2\"\n".to_owned(), "hunter2"),
        ("[[clients]]\nid = \"a\"\nkey_hash = hunter2hunter2\n".to_owned(), "hunter2"),
        (format!("[[clients]]\nid = \"a\"\nkey = \"{own}\"\n"), own.as_str()),
        (format!("clients = [{{ id = \"{own}\", key = 5 }}]\n"), own.as_str()),
    ] {
        let error = parse_clients("clients.toml", &text).expect_err("refused");
        let shown = format!("{}{}{error:?}", error.render(false), error.lines().join("\n"));
        assert!(!shown.contains(key), "{shown}");
    }
}
