//! `[[clients]]`: callers with API keys, in the configuration or in a file of their own.

use super::server::read;
use crate::caller::clients::parse_hash;
use crate::config::file::{Section, Unique, Value};
use crate::config::settings::Client;
use crate::config::suggest::quote;

/// Names of clients are looked up and logged, so they are not endless.
const LONGEST: usize = 128;
const HASH: &str = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

pub(in crate::config) fn clients(root: &mut Section<'_>) -> Vec<Client> {
    let (mut ids, mut hashes) = (Unique::new(), Unique::new());
    let mut clients = Vec::new();
    for mut section in root.each("clients").unwrap_or_default() {
        let id = section.require("id", "id = \"billing\"");
        let id = id.and_then(|value| {
            let id = name(&value, "billing")?;
            ids.insert(id.clone(), &value).then_some(id)
        });
        let key_hash = section.require("key_hash", "key_hash = \"sha256:…\"");
        let key_hash = key_hash.and_then(|value| {
            let hash = hash(&value)?;
            hashes.insert(hash, &value).then_some(hash)
        });
        let plan = read(&mut section, "plan", None, |it| name(it, "pro").map(Some));
        let tenant = read(&mut section, "tenant", None, |it| name(it, "acme").map(Some));
        let trust = read(&mut section, "trust", None, |it| it.thousandths(1000).map(Some));
        if let (Some(id), Some(key_hash)) = (id, key_hash) {
            clients.push(Client { id, key_hash, plan, tenant, trust });
        }
    }
    clients
}

fn name(value: &Value<'_>, example: &str) -> Option<String> {
    let text = value.text(example)?;
    let good = (1..=LONGEST).contains(&text.chars().count()) && !text.contains(char::is_control);
    if !good {
        let help = format!("write 1 to {LONGEST} characters on one line");
        value.wrong(&format!("cannot be {}", quote(text)), help);
    }
    good.then(|| text.to_owned())
}

/// The message does not repeat what may be the key itself.
fn hash(value: &Value<'_>) -> Option<[u8; 32]> {
    let hash = parse_hash(value.text(HASH)?);
    if let Err(error) = &hash {
        let help = "write the hash of the key, never the key: `weir hash-key` makes one";
        value.wrong(&error.to_string(), help);
    }
    hash.ok()
}
