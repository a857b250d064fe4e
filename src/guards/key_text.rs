//! How penalties name a key: as logs name callers, and never longer than some.

use crate::telemetry::CallerNames;

/// A client may send a key of any length.
const MAX_BYTES: usize = 128;

/// The name of the only key of a guard that counts all requests together.
const GLOBAL: &str = "global";

/// The text that a key is listed by. With `hash_keys` that is its hash.
pub fn listed_key(names: CallerNames, key: &str) -> String {
    if key.is_empty() { GLOBAL.to_owned() } else { bounded_key(names.of(key)) }
}

/// The same text if it is short. Of a long one the beginning, and a hash of all of it.
pub(super) fn bounded_key(mut key: String) -> String {
    if key.len() > MAX_BYTES {
        let hash = CallerNames { hashed: true }.of(&key);
        key.truncate(key.floor_char_boundary(MAX_BYTES - '…'.len_utf8() - hash.len()));
        key.push('…');
        key.push_str(&hash);
        key.shrink_to_fit();
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: CallerNames = CallerNames { hashed: false };

    #[test]
    fn long_keys_are_cut_and_told_apart() {
        let keys = ["x", "y"].map(|end| format!("{}{end}", "ä".repeat(4_000)));
        let [one, other] = keys.each_ref().map(|key| listed_key(SHOWN, key));
        assert!(one.len() <= MAX_BYTES && one.starts_with("ää") && one.contains("…sha256:"));
        assert_ne!(one, other);
        assert_eq!(listed_key(SHOWN, &one), one, "what is listed names the same");
        assert_eq!(listed_key(SHOWN, &"x".repeat(MAX_BYTES)), "x".repeat(MAX_BYTES));
    }

    #[test]
    fn key_is_hashed_where_logs_hash_it_and_the_only_one_has_a_name() {
        let hashed = CallerNames { hashed: true };
        assert_eq!(listed_key(hashed, "ann"), hashed.of("ann"));
        assert_eq!((listed_key(SHOWN, ""), listed_key(hashed, "")), (GLOBAL.into(), GLOBAL.into()));
    }
}
