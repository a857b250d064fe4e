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
        .map(|candidate| (strsim::damerau_levenshtein(&word, &fold(candidate)), candidate))
        .filter(|(distance, candidate)| {
            *distance <= (length.max(candidate.chars().count()) / 3).max(1)
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
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
        assert_eq!(nearest("", known), None);
    }

    #[test]
    fn quoted_words_carry_no_control_characters() {
        assert_eq!(quote("a\u{1b}[31m\n\"b\""), "`a\\u{1b}[31m\\n\"b\"`");
        assert_eq!(quote(&"x".repeat(1000)).chars().count(), SHOWN + 3);
    }
}
