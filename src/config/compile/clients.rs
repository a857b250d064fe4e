//! `[[clients]]`: callers with API keys, in the configuration or in a file of their own.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;

use super::secret;
use super::server::read;
use crate::caller::clients::parse_hash;
use crate::config::file::{Section, UniqueValues, Value};
use crate::config::settings::Client;
use crate::config::suggest::{quote, shown};
use crate::config::{ConfigError, MAX_CONFIG_BYTES, parse_clients};

/// Names of clients are looked up and logged, so they are not endless.
const LONGEST: usize = 128;
const HASH: &str = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

/// What stands below `[[clients]]`.
pub(in crate::config) struct WrittenClients<'a> {
    pub(in crate::config) clients: Vec<Client>,
    /// Where the first one is.
    pub(super) span: Range<usize>,
    /// Each `plan` that is written.
    pub(super) plans: Vec<Value<'a>>,
}

/// `None` if there is nothing written of them.
pub(in crate::config) fn clients<'a>(root: &mut Section<'a>) -> Option<WrittenClients<'a>> {
    let (mut ids, mut hashes) = (UniqueValues::new(), UniqueValues::new());
    let (mut clients, mut plans, mut span) = (Vec::new(), Vec::new(), None);
    for mut section in root.array_sections("clients").unwrap_or_default() {
        span.get_or_insert(section.span());
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
        plans.extend(section.get("plan"));
        let plan = read(&mut section, "plan", None, |it| name(it, "pro").map(Some));
        let tenant = read(&mut section, "tenant", None, |it| name(it, "acme").map(Some));
        let trust = read(&mut section, "trust", None, |it| it.thousandths(1000).map(Some));
        if let (Some(id), Some(key_hash)) = (id, key_hash) {
            clients.push(Client { id, key_hash, plan, tenant, trust });
        }
    }
    let span = span.unwrap_or(0..0);
    root.has("clients").then_some(WrittenClients { clients, span, plans })
}

/// The files of `clients_file`, and all clients: those of the configuration and those of the files.
pub(super) fn with_files(
    value: Option<&Value<'_>>,
    written: Option<Vec<Client>>,
) -> (Option<Vec<Client>>, Vec<PathBuf>) {
    let Some(value) = value else { return (written, Vec::new()) };
    let mut clients = written.unwrap_or_default();
    let mut taken = TakenIdentifiers::default();
    for client in &clients {
        taken.claim(client, "the configuration");
    }
    let entries = value.one_or_more();
    if entries.is_empty() {
        value.error("is empty", "write a file such as `\"clients.toml\"`, or leave it out");
    }
    let mut seen = UniqueValues::new();
    let mut files = Vec::new();
    for entry in &entries {
        let Some((path, bytes)) =
            secret::contents(entry, "/etc/weir/clients.toml", MAX_CONFIG_BYTES)
        else {
            continue;
        };
        if !seen.insert(path, entry) {
            continue;
        }
        files.push(PathBuf::from(path));
        for client in file(path, bytes, entry) {
            match taken.claim(&client, path) {
                None => clients.push(client),
                Some((what, first)) => entry.error(
                    &format!(
                        "names a file whose client {} has the {what} of one in {}",
                        quote(&client.id),
                        shown(&first)
                    ),
                    "give every client an id and a key of its own",
                ),
            }
        }
    }
    (Some(clients), files)
}

/// The clients of one file; what is wrong with it is noted where it is named.
fn file(path: &str, bytes: Vec<u8>, value: &Value<'_>) -> Vec<Client> {
    let name = shown(path);
    let parsed = match String::from_utf8(bytes) {
        Ok(text) => parse_clients(&name, &text),
        Err(fault) => Err(ConfigError::not_utf8(name, &fault)),
    };
    match parsed {
        Ok(clients) => clients,
        Err(error) => {
            for line in error.lines() {
                value.error(&format!("names a file with a fault: {line}"), "mend it there");
            }
            Vec::new()
        }
    }
}

/// Which ids and keys are given away, and where.
#[derive(Default)]
struct TakenIdentifiers {
    ids: HashMap<String, String>,
    hashes: HashMap<[u8; 32], String>,
}

impl TakenIdentifiers {
    /// What is taken already, and where, if anything is.
    fn claim(&mut self, client: &Client, place: &str) -> Option<(&'static str, String)> {
        if let Some(first) = self.ids.get(&client.id) {
            return Some(("id", first.clone()));
        }
        if let Some(first) = self.hashes.get(&client.key_hash) {
            return Some(("key", first.clone()));
        }
        self.ids.insert(client.id.clone(), place.to_owned());
        self.hashes.insert(client.key_hash, place.to_owned());
        None
    }
}

pub(super) fn name(value: &Value<'_>, example: &str) -> Option<String> {
    let text = value.text(example)?;
    let good = is_name(text);
    if !good {
        let help = format!("write 1 to {LONGEST} characters on one line");
        value.error(&format!("cannot be {}", quote(text)), help);
    }
    good.then(|| text.to_owned())
}

/// Whether a caller, a tenant or a plan may be called so.
pub(super) fn is_name(text: &str) -> bool {
    (1..=LONGEST).contains(&text.chars().count()) && !text.contains(char::is_control)
}

/// The message does not repeat what may be the key itself.
fn hash(value: &Value<'_>) -> Option<[u8; 32]> {
    let hash = parse_hash(value.text(HASH)?);
    if let Err(error) = &hash {
        let help = "write the hash of the key, never the key: `weir hash-key` makes one";
        value.error(&error.to_string(), help);
    }
    hash.ok()
}
