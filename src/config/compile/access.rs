//! `[access]`: who is never limited, and who never gets in.

use std::hash::Hash;
use std::path::PathBuf;

use super::address;
use super::clients::name;
use super::request_source::KnownIdentities;
use crate::caller::access::{AccessEntry, ListFileError, list_file};
use crate::config::file::{Section, Value, unique_values};
use crate::config::regular_file;
use crate::config::settings::{Access, AccessEntries};
use crate::config::suggest::quote;

pub(super) fn access(mut section: Section<'_>, known: KnownIdentities) -> Access {
    Access {
        allow: entries(section.section("allow"), known, "is allowed: no limit applies to anybody"),
        deny: entries(section.section("deny"), known, "is denied: nobody gets in"),
    }
}

/// `all` is what to say of a network of all addresses.
fn entries(mut section: Section<'_>, known: KnownIdentities, all: &str) -> AccessEntries {
    let ip = list(section.get("ip"), "10.0.0.0/8", |value| {
        let network = address::network(value)?;
        if network.prefix_len() == 0 {
            let message = format!("has every address: `{network}` {all}");
            value.warning(&message, "name the networks that you mean");
        }
        Some(network)
    });
    let user = section.get("user");
    let client = section.get("client");
    for (value, there, what) in [(&user, known.user, "user"), (&client, known.client, "client")] {
        if let Some(value) = value.as_ref().filter(|_| !there) {
            unknown(value, "has no effect", what);
        }
    }
    AccessEntries {
        ip,
        user: list(user, "alice", |value| name(value, "alice")),
        client: list(client, "billing", |value| name(value, "billing")),
        files: list(section.get("files"), "/etc/weir/allow.txt", |value| entry_file(value, known)),
    }
}

fn list<'a, T: Clone + Hash + Eq>(
    value: Option<Value<'a>>,
    example: &str,
    parse: impl Fn(&Value<'a>) -> Option<T>,
) -> Vec<T> {
    let entries = value.and_then(|value| value.list(&format!("[\"{example}\"]")));
    unique_values(&entries.unwrap_or_default(), parse)
}

/// A file that can be read and is good now. It is read again when it is put to use.
fn entry_file(value: &Value<'_>, known: KnownIdentities) -> Option<PathBuf> {
    let text = value.text("/etc/weir/allow.txt")?;
    let path = PathBuf::from(text);
    let entries = match list_file::load(&path) {
        Ok(entries) => entries,
        Err(ListFileError::Unreadable { source, .. }) => {
            value.error(
                &format!(
                    "names a file that cannot be read: {}: {source}",
                    quote(&regular_file::looked_up(&path).to_string_lossy())
                ),
                "see that it is there and may be read",
            );
            return None;
        }
        Err(fault @ ListFileError::Faulty { .. }) => {
            value.error(&format!("names a file with a fault: {fault}"), "mend it there");
            return None;
        }
    };
    if !known.user && entries.iter().any(|it| matches!(it, AccessEntry::User(_))) {
        unknown(value, "names users to no effect", "user");
    }
    if !known.client && entries.iter().any(|it| matches!(it, AccessEntry::Client(_))) {
        unknown(value, "names clients to no effect", "client");
    }
    Some(path)
}

fn unknown(value: &Value<'_>, so: &str, what: &str) {
    let example = if what == "user" { "jwt:sub" } else { "header:x-api-key" };
    value.warning(
        &format!("{so}: `[identity]` does not say where a `{what}` is found"),
        format!("add a line such as `{what} = \"{example}\"` there"),
    );
}
