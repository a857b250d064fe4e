//! Keys of a client in place of their hashes: they belong into no file.

/// What people call it, in small letters and without `_` and `-`.
const NAMES: [&str; 9] =
    ["key", "keys", "hash", "apikey", "apikeys", "keyhash", "secret", "token", "password"];

/// `None` if the name of a key is not one of these.
pub(super) fn help(name: &str, has_hash: bool) -> Option<String> {
    let name = name.to_ascii_lowercase().replace(['_', '-'], "");
    let help = match has_hash {
        true => "remove it: `key_hash` is there, and the key itself belongs into no file",
        false => {
            "write `key_hash = \"sha256:…\"`, the hash of the key and never the key: `weir hash-key` \
             makes one"
        }
    };
    NAMES.contains(&name.as_str()).then(|| help.to_owned())
}

/// Whether the text ends in a table of a client.
pub(super) fn ends_in_client(text: &str) -> bool {
    let header = text.lines().rev().map(str::trim_start).find(|line| line.starts_with('['));
    header.is_some_and(|it| it.trim_start_matches(['[', ' ']).starts_with("clients"))
}
