//! One spelling for every path, so that no limit can be dodged by writing the path otherwise.
//!
//! A path has two normal forms. `forward` is what the upstream receives: dot segments resolved,
//! doubled slashes merged, needless escapes decoded. `matched` is what routes are compared with:
//! on top of that lower case, fully decoded, without path parameters (`;a=b`) and without a
//! trailing slash, because an upstream may ignore any of these. What has no single meaning is
//! refused. An escaped slash has none either, unless its route says so: it is marked here, and one
//! beside which readers could find an empty segment or dots is refused in any case.

use std::borrow::Cow;

use smallvec::SmallVec;

#[derive(Debug, PartialEq, Eq)]
pub struct NormalizedPath<'a> {
    pub forward: Cow<'a, str>,
    pub matched: MatchPath<'a>,
    /// Whether there is a slash that is part of a segment: [`ESCAPED_SLASH`] in `matched`.
    pub has_escaped_slash: bool,
    /// Whether there were dot segments or empty ones, which are not in `forward` any more.
    pub is_resolved: bool,
}

/// What an escaped slash is in a matched path. No other character becomes this one.
pub const ESCAPED_SLASH: u8 = 0;

/// The path as routes see it: `/a/b`, or nothing for the root.
#[derive(Debug, PartialEq, Eq)]
pub enum MatchPath<'a> {
    AsIs(&'a [u8]),
    Rewritten(SmallVec<[u8; 128]>),
}

impl MatchPath<'_> {
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            MatchPath::AsIs(path) => path,
            MatchPath::Rewritten(path) => path,
        }
    }

    /// The same as one that takes an escaped slash for a plain one would read it.
    pub fn with_plain_slashes(&self) -> SmallVec<[u8; 128]> {
        let plain = |byte: &u8| if *byte == ESCAPED_SLASH { b'/' } else { *byte };
        self.as_bytes().iter().map(plain).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("the path must start with a slash")]
    NotAbsolute,
    #[error("the path has a malformed percent-escape")]
    BadEscape,
    #[error("the path has an escaped slash, backslash or control character")]
    ForbiddenEscape,
    #[error("the path has a backslash or a character that must be escaped")]
    ForbiddenCharacter,
    #[error("the path climbs above its root")]
    AboveRoot,
    #[error("the path has a segment of nothing but dots and parameters")]
    HollowSegment,
    #[error("the path has dot segments or doubled slashes, and is passed on as it is")]
    Unresolved,
}

/// # Errors
/// If the path could mean different things to different readers.
pub fn normalize(path: &str) -> Result<NormalizedPath<'_>, PathError> {
    if !path.starts_with('/') {
        return Err(PathError::NotAbsolute);
    }
    if is_plain(path.as_bytes()) {
        let matched = MatchPath::AsIs(path.strip_suffix('/').unwrap_or(path).as_bytes());
        let (has_escaped_slash, is_resolved) = (false, false);
        let forward = Cow::Borrowed(path);
        return Ok(NormalizedPath { forward, matched, has_escaped_slash, is_resolved });
    }
    rewrite(path)
}

/// Whether the path is its own normal form, for both uses.
fn is_plain(path: &[u8]) -> bool {
    let mut previous = 0;
    path.iter().all(|&byte| {
        let doubtful = match byte {
            b'/' | b'.' => previous == b'/',
            b'%' | b';' | b'\\' | b'A'..=b'Z' => true,
            _ => !(0x21..0x7f).contains(&byte),
        };
        previous = byte;
        !doubtful
    })
}

fn rewrite(path: &str) -> Result<NormalizedPath<'_>, PathError> {
    let mut forward = String::with_capacity(path.len());
    let mut matched = SmallVec::new();
    // Where each kept segment starts, in both forms, so that `..` can take it back.
    let mut starts: SmallVec<[(usize, usize); 16]> = SmallVec::new();
    let (mut open, mut is_resolved, mut has_escaped_slash) = (true, false, false);
    let mut segments = path[1..].split('/').peekable();
    while let Some(raw) = segments.next() {
        let mark = (forward.len(), matched.len());
        forward.push('/');
        matched.push(b'/');
        segment(raw, &mut forward, &mut matched)?;
        let written = &forward[mark.0 + 1..];
        let meant = &matched[mark.1 + 1..];
        open = matches!(written, "" | "." | "..");
        if !open && matches!(meant, b"" | b"." | b"..") {
            // `/x/..;/login`: some upstreams would drop the parameters and then climb.
            return Err(PathError::HollowSegment);
        }
        if meant.contains(&ESCAPED_SLASH) {
            // `/x%2F..%2Flogin`: some upstreams would decode and then climb.
            let hollow = |part: &[u8]| matches!(part, b"" | b"." | b"..");
            if meant.split(|byte| *byte == ESCAPED_SLASH).any(hollow) {
                return Err(PathError::ForbiddenEscape);
            }
            has_escaped_slash = true;
        }
        let climbs = written == "..";
        // An empty segment at the end is a trailing slash, which stays.
        is_resolved |= open && !(written.is_empty() && segments.peek().is_none());
        if open {
            forward.truncate(mark.0);
            matched.truncate(mark.1);
        } else {
            starts.push(mark);
        }
        if climbs {
            let (forward_to, matched_to) = starts.pop().ok_or(PathError::AboveRoot)?;
            forward.truncate(forward_to);
            matched.truncate(matched_to);
        }
    }
    if open {
        forward.push('/');
    }
    let (forward, matched) = (Cow::Owned(forward), MatchPath::Rewritten(matched));
    Ok(NormalizedPath { forward, matched, has_escaped_slash, is_resolved })
}

/// Appends one segment: to `forward` with only the escapes it needs, to `matched` as it is meant.
fn segment(
    raw: &str,
    forward: &mut String,
    matched: &mut SmallVec<[u8; 128]>,
) -> Result<(), PathError> {
    let mut bytes = raw.bytes();
    let mut parameters = false;
    let mut escaped = 0;
    while let Some(byte) = bytes.next() {
        let meant = match byte {
            b'%' => {
                let (Some(high), Some(low)) = (hex(bytes.next()), hex(bytes.next())) else {
                    return Err(PathError::BadEscape);
                };
                let mut meant = high << 4 | low;
                if is_overlong(escaped, meant) {
                    return Err(PathError::ForbiddenEscape);
                }
                escaped = meant;
                match meant {
                    // In a parameter it would end the segment for some readers only.
                    b'/' if !parameters => {
                        forward.push_str("%2F");
                        meant = ESCAPED_SLASH;
                    }
                    b'/' | b'\\' | 0..0x20 | 0x7f => return Err(PathError::ForbiddenEscape),
                    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                        forward.push(meant as char);
                    }
                    _ => {
                        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
                        forward.push('%');
                        forward.push(DIGITS[usize::from(high)] as char);
                        forward.push(DIGITS[usize::from(low)] as char);
                    }
                }
                meant
            }
            b'\\' | 0..=0x20 | 0x7f.. => return Err(PathError::ForbiddenCharacter),
            _ => {
                forward.push(byte as char);
                byte
            }
        };
        parameters |= meant == b';';
        if !parameters {
            matched.push(meant.to_ascii_lowercase());
        }
    }
    Ok(())
}

/// Whether two escaped bytes begin a character that was made longer than it is: some readers
/// take `%c0%ae` for a dot.
fn is_overlong(first: u8, second: u8) -> bool {
    matches!((first, second), (_, 0xc0 | 0xc1) | (0xe0, 0x80..0xa0) | (0xf0, 0x80..0x90))
}

fn hex(digit: Option<u8>) -> Option<u8> {
    (digit? as char).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests;
