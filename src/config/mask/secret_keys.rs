//! Which keys have secrets for values: the one list of words, for lines that are shown as well as for
//! messages.
//!
//! Weir's own keys and those that people bring along from elsewhere. Where it is not certain, a key is
//! one of them.

/// Parts of keys, in small letters and without `_` and `-`. `pass` is in `passwd`, `requirepass` and
/// `passphrase`, `auth` in `masterauth` and `authorization`.
const WORDS: [&str; 9] =
    ["pass", "pwd", "secret", "token", "auth", "credential", "bearer", "hmac", "cookie"];

/// Ends of keys: `api_key`, `accessKey`, `key_hash`, `token_env`.
const ENDS: [&str; 4] = ["key", "keys", "hash", "env"];

/// Keys that have one of these words and no secret.
const HARMLESS: [&str; 7] =
    ["token_bucket", "client_auth", "proxy_pass", "max_keys", "hash_keys", "max_tokens", "author"];

/// Keys that are a secret in some tables only.
const BY_TABLE: [&str; 3] = ["key", "keys", "users"];

/// Where [`BY_TABLE`] are none: what is counted by, and the file of a certificate's key.
const TABLES_WITHOUT: [&str; 6] = ["limits", "guards", "plans", "server", "upstreams", "tls"];

/// Tables whose keys are names that their author chose.
const TABLES_OF_NAMES: [&str; 5] = ["limits", "guards", "upstreams", "tenants", "plans"];

/// Whether a line has any of the words; the others need no closer look.
pub(super) fn may_have_one(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    WORDS.iter().chain(&ENDS).chain(&["user", "_file"]).any(|word| lower.contains(word))
}

/// Whether the value of a key is one. `table` are the tables it stands in, by name, as far as they are
/// known, and `value` what follows it.
pub(super) fn is_secret(key: &str, table: &[&str], value: &str) -> bool {
    let last = key.rsplit('.').next().unwrap_or(key).to_ascii_lowercase();
    if HARMLESS.contains(&last.as_str()) {
        return false;
    }
    if last.ends_with("_file") || last == "key" && table.contains(&"tls") {
        // A PEM is hidden whatever its key. Each word of a long line may be such a key, so that its
        // value is not looked through to the end.
        return value.is_empty() || !is_path(&value[..value.floor_char_boundary(64)]);
    }
    if value.starts_with('{') && table.last().is_some_and(|it| TABLES_OF_NAMES.contains(it)) {
        return false;
    }
    if BY_TABLE.contains(&last.as_str()) {
        // A line on its own may be one of any table.
        let is_known = table.iter().any(|it| TABLES_WITHOUT.contains(it));
        return !(table.is_empty() || is_known || is_source(value));
    }
    let folded = last.replace(['_', '-'], "");
    let ends = |end: &str| folded.ends_with(end);
    if ends("hash") {
        return !begins_with_hash(value);
    }
    if last.ends_with("_env") {
        return !is_variable_name(begin_of(value));
    }
    WORDS.iter().any(|word| folded.contains(word)) || ends("key") || ends("keys")
}

/// Whether a key and a colon begin the source of a limit or of a balance: `cookie:session`, `hash:ip`.
pub(super) fn begins_source(key: &str, after: &str) -> bool {
    let parts = |c: char| c.is_whitespace() || "\"'=:".contains(c);
    matches!(key, "cookie" | "hash")
        && after.strip_prefix(':').is_some_and(|rest| !rest.starts_with(parts))
}

/// Whether a key ends such a source, which is in quotes: `"header:x-api-key"`.
pub(super) fn ends_source(before: &str, after: &str) -> bool {
    KINDS.iter().any(|kind| before.ends_with(kind)) && after.starts_with(['"', '\''])
}

/// How sources with a name of their own begin.
const KINDS: [&str; 7] = ["header:", "query:", "cookie:", "jwt:", "basic:", "form:", "tls:"];

/// What limits count by.
fn is_source(value: &str) -> bool {
    const PLAIN: [&str; 7] = ["ip", "route", "global", "user", "client", "tenant", "plan"];
    let first = begin_of(value.trim_start_matches(['[', ' ', '"', '\'']));
    PLAIN.contains(&first) || KINDS.iter().any(|kind| first.starts_with(kind))
}

/// What is written as the names of environment variables are, and can be shown though it is not set.
pub(in crate::config) fn is_variable_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    text.bytes().all(plain)
}

/// Whether a text may be the path of a file, and is not what should stand in that file: a PEM, a JSON,
/// or anything of more than one line.
pub(in crate::config) fn is_path(text: &str) -> bool {
    let text = text.trim_start();
    !text.starts_with('{') && !text.contains("-----BEGIN") && !text.contains(['\n', '\r'])
}

fn begin_of(value: &str) -> &str {
    let end = value.find(['"', '\'', ' ', ',', '}', ']', ';']).unwrap_or(value.len());
    &value[..end]
}

fn begins_with_hash(value: &str) -> bool {
    let digits = begin_of(value).strip_prefix("sha256:");
    digits.is_some_and(|digits| digits.bytes().all(|it| it.is_ascii_hexdigit()))
}
