//! Files of entries, one a line: a network, an address, `user:NAME` or `client:NAME`.
//!
//! Blank lines are passed over, and so is everything from a `#` on that starts a line or follows a
//! space. A name with such a `#` in it has to be written in the configuration itself.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ipnet::IpNet;

use super::AccessEntry;
use crate::config::regular_file;

/// Some ten million entries. What is larger was named by mistake.
const LARGEST: u64 = 256 << 20;
/// How much of a wrong line a message repeats.
const SHOWN: usize = 60;

/// Why a file was not taken.
#[derive(Debug, thiserror::Error)]
pub enum ListFileError {
    #[error("cannot read {}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{}:{line}: {fault}{}", path.display(), and(*others))]
    Faulty {
        path: PathBuf,
        /// The first line that is wrong.
        line: usize,
        fault: AccessEntryError,
        /// How many more are.
        others: usize,
    },
}

/// Why a line is no entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessEntryError {
    #[error("the line is not UTF-8")]
    Encoding,
    #[error(
        "`{0}` is no entry; write a CIDR such as `10.0.0.0/8`, an address, `user:NAME` or `client:NAME`"
    )]
    Unknown(String),
    #[error("`{0}:` has no name behind it")]
    Nameless(&'static str),
}

/// Reads a whole file.
///
/// # Errors
/// If it cannot be read, or a line of it is no entry.
pub fn load(path: &Path) -> Result<Vec<AccessEntry>, ListFileError> {
    let bytes = regular_file::read(path, LARGEST)
        .map_err(|source| ListFileError::Unreadable { path: path.to_owned(), source })?;
    parse(&bytes).map_err(|(line, fault, others)| {
        let path = path.to_owned();
        ListFileError::Faulty { path, line, fault, others }
    })
}

/// The entries, or the first line that is wrong with its number and how many others are.
fn parse(bytes: &[u8]) -> Result<Vec<AccessEntry>, (usize, AccessEntryError, usize)> {
    // Some editors mark a file as UTF-8.
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut entries = Vec::new();
    let mut wrong = None;
    for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        let entry = match std::str::from_utf8(line).map(without_comment) {
            Ok("") => continue,
            Ok(text) => text.parse(),
            Err(_) => Err(AccessEntryError::Encoding),
        };
        match (entry, &mut wrong) {
            (Ok(entry), _) => entries.push(entry),
            (Err(fault), None) => wrong = Some((index + 1, fault, 0)),
            (Err(_), Some((_, _, others))) => *others += 1,
        }
    }
    wrong.map_or(Ok(entries), Err)
}

fn without_comment(line: &str) -> &str {
    let starts = |at: usize| line[..at].chars().next_back().is_none_or(char::is_whitespace);
    let comment = line.match_indices('#').map(|(at, _)| at).find(|at| starts(*at));
    line[..comment.unwrap_or(line.len())].trim()
}

impl FromStr for AccessEntry {
    type Err = AccessEntryError;

    fn from_str(text: &str) -> Result<Self, AccessEntryError> {
        let name = |kind, name: &str| match name.trim() {
            "" => Err(AccessEntryError::Nameless(kind)),
            name => Ok(name.to_owned()),
        };
        if let Some(user) = text.strip_prefix("user:") {
            return name("user", user).map(AccessEntry::User);
        }
        if let Some(client) = text.strip_prefix("client:") {
            return name("client", client).map(AccessEntry::Client);
        }
        let network = text.parse().or_else(|_| text.parse().map(|ip: IpAddr| IpNet::from(ip)));
        network.map(AccessEntry::Network).map_err(|_| AccessEntryError::Unknown(shown(text)))
    }
}

fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}

fn and(others: usize) -> String {
    match others {
        0 => String::new(),
        1 => " (and another line is wrong)".to_owned(),
        _ => format!(" (and {others} other lines are wrong)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(text: &str) -> Vec<AccessEntry> {
        parse(text.as_bytes()).unwrap()
    }

    fn network(text: &str) -> AccessEntry {
        AccessEntry::Network(text.parse().unwrap())
    }

    #[test]
    fn a_line_is_an_entry() {
        let text = "\u{feff}# who\r\n10.0.0.0/8\r\n\r\n 192.0.2.1 # one\n\t\n2001:db8::/32\n::1\n\
                    user:alice\nuser: a b \nclient:billing#1\nclient:ü # x\n  # end";
        let named = |name: &str| name.to_owned();
        assert_eq!(
            entries(text),
            [
                network("10.0.0.0/8"),
                network("192.0.2.1/32"),
                network("2001:db8::/32"),
                network("::1/128"),
                AccessEntry::User(named("alice")),
                AccessEntry::User(named("a b")),
                AccessEntry::Client(named("billing#1")),
                AccessEntry::Client(named("ü")),
            ]
        );
        assert_eq!(entries(""), []);
        assert_eq!(entries("#\n#"), []);
    }

    #[test]
    fn the_first_wrong_line_is_shown_and_the_others_counted() {
        let unknown = |text: &str| AccessEntryError::Unknown(text.to_owned());
        assert_eq!(
            parse(b"::1\n\n10.0.0.0/33\n::1\nx\nuser:"),
            Err((3, unknown("10.0.0.0/33"), 2))
        );
        for bad in ["10.0.0", "10.0.0.0/", "users:a", "10.0.0.1 10.0.0.2", "a,b", "[::1]", "::1%1"]
        {
            assert_eq!(parse(bad.as_bytes()), Err((1, unknown(bad), 0)), "{bad}");
        }
        assert_eq!(parse(b"user: # x"), Err((1, AccessEntryError::Nameless("user"), 0)));
        assert_eq!(parse(b"client:"), Err((1, AccessEntryError::Nameless("client"), 0)));
        assert_eq!(parse(b"::1\nuser:\xff"), Err((2, AccessEntryError::Encoding, 0)));
    }
}
