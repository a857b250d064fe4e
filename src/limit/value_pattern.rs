//! What conditions ask for: a text, or a pattern with `*` for any bytes.
//!
//! `v2*` begins so, `*.example` ends so, `a*z` has something or nothing in between, and `*` alone is
//! whatever there is. `\*` is a star itself and `\\` a backslash; before anything else a backslash
//! stands for itself. Case counts.

use std::fmt;

use memchr::memmem;

/// One text or pattern.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ValuePattern {
    /// What comes before the first star, between stars, and after the last one. Never empty; one
    /// piece is an exact text.
    pieces: Vec<Vec<u8>>,
    /// As the configuration has it.
    written: String,
}

impl ValuePattern {
    pub fn new(written: &str) -> Self {
        let mut pieces = vec![Vec::new()];
        let mut push = |piece: Option<u8>| match (piece, pieces.last_mut()) {
            (Some(byte), Some(last)) => last.push(byte),
            _ => pieces.push(Vec::new()),
        };
        let mut bytes = written.bytes().peekable();
        while let Some(byte) = bytes.next() {
            match byte {
                b'\\' => push(Some(bytes.next_if(|it| matches!(it, b'*' | b'\\')).unwrap_or(byte))),
                b'*' => push(None),
                _ => push(Some(byte)),
            }
        }
        ValuePattern { pieces, written: written.to_owned() }
    }

    pub fn matches(&self, found: &[u8]) -> bool {
        let [first, inner @ .., last] = self.pieces.as_slice() else {
            return self.pieces[0] == found;
        };
        let within = found.strip_prefix(first.as_slice());
        let Some(mut within) = within.and_then(|it| it.strip_suffix(last.as_slice())) else {
            return false;
        };
        // The leftmost place leaves the most room for what follows.
        inner.iter().all(|piece| match memmem::find(within, piece) {
            Some(at) => {
                within = &within[at + piece.len()..];
                true
            }
            None => false,
        })
    }

    /// Whether a text may match both.
    pub fn overlaps(&self, other: &ValuePattern) -> bool {
        match (self.pieces.as_slice(), other.pieces.as_slice()) {
            ([exact], _) => other.matches(exact),
            (_, [exact]) => self.matches(exact),
            // Between the stars there is room for everything that either asks for.
            ([start, .., end], [other_start, .., other_end]) => {
                let starts = start.starts_with(other_start) || other_start.starts_with(start);
                starts && (end.ends_with(other_end) || other_end.ends_with(end))
            }
            ([], _) | (_, []) => false,
        }
    }
}

impl fmt::Display for ValuePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_bytes() {
        for (pattern, good, bad) in [
            ("v2", &["v2"][..], &["v", "v22", "V2", ""][..]),
            ("*", &["a", "", "\u{e9}"], &[]),
            ("v2*", &["v2", "v2.1"], &["v", "av2"]),
            ("*.example", &[".example", "a.example"], &["example", "a.example."]),
            ("a*z", &["az", "abz", "azz"], &["a", "z", "za", "ab"]),
            ("aba*aba", &["abaaba", "aba-aba"], &["aba", "ababa"]),
            ("a*b*b*c", &["abbc", "a-b-b-c", "axbxbxbc"], &["abc", "a-b-c", "acbb"]),
            ("**", &["", "a"], &[]),
            (r"\*", &["*"], &["a", r"\*"]),
            (r"a\*b*", &["a*b", "a*bc"], &["ab", "axb"]),
            (r"\\*", &[r"\", r"\a"], &["*", "a"]),
            (r"DOMAIN\user", &[r"DOMAIN\user"], &["DOMAINuser"]),
        ] {
            let parsed = ValuePattern::new(pattern);
            assert_eq!(parsed.to_string(), pattern);
            for text in good {
                assert!(parsed.matches(text.as_bytes()), "{pattern} on {text}");
            }
            for text in bad {
                assert!(!parsed.matches(text.as_bytes()), "{pattern} on {text}");
            }
        }
    }

    #[test]
    fn patterns_overlap_if_one_text_matches_both() {
        for (one, other, expected) in [
            ("a", "a", true),
            ("a", "b", false),
            ("a", "*", true),
            ("v2*", "v1*", false),
            ("v*", "v1*", true),
            ("*a", "*b", false),
            ("a*", "*b", true),
            ("a*b", "ac*cb", true),
            ("a*", r"\*", false),
        ] {
            let (left, right) = (ValuePattern::new(one), ValuePattern::new(other));
            assert_eq!(left.overlaps(&right), expected, "{one} {other}");
            assert_eq!(right.overlaps(&left), expected, "{other} {one}");
        }
    }
}
