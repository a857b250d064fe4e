//! `[access]`: who is never limited, and who never gets in.

use std::hash::Hash;
use std::path::PathBuf;

use super::address;
use super::clients::name;
use super::source::Known;
use crate::caller::access::{Entry, FileError, file};
use crate::config::file::{Section, Unique, Value};
use crate::config::settings::{Access, AccessEntries};
use crate::config::suggest::quote;

pub(super) fn access(mut section: Section<'_>, known: Known) -> Access {
    Access {
        allow: entries(section.section("allow"), known, "is allowed: no limit applies to anybody"),
        deny: entries(section.section("deny"), known, "is denied: nobody gets in"),
    }
}

/// `all` is what to say of a network of all addresses.
fn entries(mut section: Section<'_>, known: Known, all: &str) -> AccessEntries {
    let ip = each(section.get("ip"), "10.0.0.0/8", |value| {
        let network = address::network(value)?;
        if network.prefix_len() == 0 {
            let message = format!("has every address: `{network}` {all}");
            value.doubtful(&message, "name the networks that you mean");
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
        user: each(user, "alice", |value| name(value, "alice")),
        client: each(client, "billing", |value| name(value, "billing")),
        files: each(section.get("files"), "/etc/weir/allow.txt", |value| list(value, known)),
    }
}

fn each<'a, T: Clone + Hash + Eq>(
    value: Option<Value<'a>>,
    example: &str,
    parse: impl Fn(&Value<'a>) -> Option<T>,
) -> Vec<T> {
    let entries = value.and_then(|value| value.list(&format!("[\"{example}\"]")));
    let mut seen = Unique::new();
    let mut good = Vec::new();
    for entry in entries.unwrap_or_default() {
        let Some(it) = parse(&entry) else { continue };
        if seen.insert(it.clone(), &entry) {
            good.push(it);
        }
    }
    good
}

/// A file that can be read and is good now. It is read again when it is put to use.
fn list(value: &Value<'_>, known: Known) -> Option<PathBuf> {
    let text = value.text("/etc/weir/allow.txt")?;
    let path = PathBuf::from(text);
    let entries = match file::load(&path) {
        Ok(entries) => entries,
        Err(FileError::Unreadable { source, .. }) => {
            value.wrong(
                &format!("names a file that cannot be read: {}: {source}", quote(text)),
                "see that it is there and may be read",
            );
            return None;
        }
        Err(fault @ FileError::Faulty { .. }) => {
            value.wrong(&format!("names a file with a fault: {fault}"), "mend it there");
            return None;
        }
    };
    if !known.user && entries.iter().any(|it| matches!(it, Entry::User(_))) {
        unknown(value, "names users to no effect", "user");
    }
    if !known.client && entries.iter().any(|it| matches!(it, Entry::Client(_))) {
        unknown(value, "names clients to no effect", "client");
    }
    Some(path)
}

fn unknown(value: &Value<'_>, so: &str, what: &str) {
    let example = if what == "user" { "jwt:sub" } else { "header:x-api-key" };
    value.doubtful(
        &format!("{so}: `[identity]` does not say where a `{what}` is found"),
        format!("add a line such as `{what} = \"{example}\"` there"),
    );
}
