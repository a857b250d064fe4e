//! What the author of a wrong word probably meant, and how words are shown in messages.

use super::mask::mask;

/// Longer words are no misspellings, and comparing them takes time.
const LONGEST: usize = 64;
/// How much of a word a message repeats.
const SHOWN: usize = 60;

/// The candidate nearest to `word`, if one is near enough to be meant.
pub(super) fn nearest<'c>(
    word: &str,
    candidates: impl IntoIterator<Item = &'c str>,
) -> Option<&'c str> {
    let word = fold(word);
    let length = word.chars().count();
    if length == 0 || length > LONGEST {
        return None;
    }
    candidates
        .into_iter()
        .filter_map(|candidate| {
            let folded = fold(candidate);
            let (word, folded) = without_common_end(&word, &folded);
            let distance = strsim::damerau_levenshtein(word, folded);
            let longer = word.chars().count().max(folded.chars().count());
            (distance <= (longer / 3).max(1)).then_some((distance, candidate))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// What two words have before the same last part, as in `read_timeout` and `header_timeout`: that they
/// both end so makes neither a misspelling of the other.
fn without_common_end<'w>(word: &'w str, other: &'w str) -> (&'w str, &'w str) {
    match (word.rsplit_once('_'), other.rsplit_once('_')) {
        (Some((word, end)), Some((other, same))) if end == same => (word, other),
        _ => (word, other),
    }
}

/// `per_user` and `Per-User` differ by nothing that a person would call spelling.
fn fold(word: &str) -> String {
    word.to_lowercase().replace('-', "_")
}

/// A word from the file in backticks, fit to be shown.
pub(super) fn quote(word: &str) -> String {
    format!("`{}`", shown(word))
}

/// A word from the file without passwords and control characters, and not too long.
pub(super) fn shown(word: &str) -> String {
    let word = mask(word);
    let mut shown: String = word.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if word.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    // Quotes need no escape between backticks.
    shown.replace("\\\"", "\"").replace("\\'", "'")
}

/// Whether nothing of a word is left out when it is shown.
pub(super) fn is_shown_whole(word: &str) -> bool {
    word.chars().nth(SHOWN).is_none() && mask(word) == word
}

/// `` `a`, `b`, `c` ``.
pub(super) fn list<'c>(words: impl IntoIterator<Item = &'c str>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| format!("`{word}`")).collect();
    words.join(", ")
}

/// `` `a`, `b` or `c` ``.
pub(super) fn one_of<'c>(words: impl IntoIterator<Item = &'c str>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| format!("`{word}`")).collect();
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelled_words_find_their_candidate_and_others_none() {
        let known = ["rate", "burst", "burst_allowance", "response_headers"];
        assert_eq!(nearest("rat", known), Some("rate"));
        assert_eq!(nearest("Burst", known), Some("burst"));
        assert_eq!(nearest("response-header", known), Some("response_headers"));
        assert_eq!(nearest("colour", known), None);
        let timeouts = ["header_timeout", "idle_timeout"];
        assert_eq!(nearest("hedaer_timeout", timeouts), Some("header_timeout"));
        assert_eq!(nearest("header_timout", timeouts), Some("header_timeout"));
        for other in ["send_timeout", "read_timeout", "write_timeout"] {
            assert_eq!(nearest(other, timeouts), None, "{other}");
        }
        assert_eq!(nearest("", known), None);
    }

    #[test]
    fn quoted_words_carry_no_control_characters() {
        assert_eq!(quote("a\u{1b}[31m\n\"b\""), "`a\\u{1b}[31m\\n\"b\"`");
        assert_eq!(quote(&"x".repeat(1000)).chars().count(), SHOWN + 3);
    }
}
