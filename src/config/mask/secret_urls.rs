//! Secrets in URLs: what stands before an `@`, and in URLs of Redis that have none also what cannot be a
//! port, a database or a socket's query.

use std::ops::Range;

/// `scheme://user:password@`, `user:password@`, or `scheme://token@`.
/// Several URLs in a line are told apart by what comes before their schemes.
pub(super) fn credentials(line: &str, offset: usize, spans: &mut Vec<Range<usize>>) {
    let mut push = |span: Range<usize>| {
        if !span.is_empty() {
            spans.push(offset + span.start..offset + span.end);
        }
    };
    let urls = line.match_indices("://").filter(|(at, _)| begins_word(&line[..*at]));
    let starts: Vec<usize> = urls.map(|(at, mark)| at + mark.len()).collect();
    let first = starts.first().copied().unwrap_or(line.len());
    if let Some(at) = line[..first].rfind('@') {
        let start = line[..at].find(['"', '\'']).map_or(0, |quote| quote + 1);
        if let Some(colon) = line[start..at].find(':') {
            push(start + colon + 1..at);
        }
    }
    let mut start = first;
    for end in starts.iter().skip(1).copied().chain([line.len()]) {
        // Without an `@` so far, what looks like another URL may be part of a password.
        let Some(at) = line[start..end].rfind('@').map(|at| start + at) else { continue };
        let user = line[start..at].find(':').map_or(0, |colon| colon + 1);
        push(start + user..at);
        start = end;
    }
}

/// Whether a text ends in the scheme of a URL that begins there.
fn begins_word(before: &str) -> bool {
    let scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    let before = before.trim_end_matches(scheme);
    before.is_empty() || before.ends_with([' ', '\t', '"', '\'', '`', '[', ',', '=', '#', '('])
}

/// What can be no port, no database and no number of one, from there to the end of each URL of Redis.
pub(super) fn out_of_place(line: &str) -> Vec<Range<usize>> {
    const SCHEMES: [&str; 4] = ["redis://", "rediss://", "valkey://", "valkeys://"];
    let lower = line.to_ascii_lowercase();
    let mut starts: Vec<usize> = SCHEMES
        .iter()
        .flat_map(|scheme| lower.match_indices(scheme).map(|(at, it)| at + it.len()))
        .collect();
    starts.sort_unstable();
    let ends = starts.iter().skip(1).copied().chain([line.len()]);
    let found = starts.iter().zip(ends).filter_map(|(start, end)| {
        // What precedes an `@` is hidden as a whole.
        let login = line[*start..end].rfind('@').map_or(0, |at| at + 1);
        let start = start + login;
        let rest = &line[start..];
        let length = rest.find(['"', '\'', '`', ' ', '\t']).unwrap_or(rest.len());
        let wrong = first_wrong(&rest[..length])?;
        (wrong < length).then(|| start + wrong..start + length)
    });
    found.collect()
}

/// Where `host[:port][/database]` ends, if something follows.
fn first_wrong(url: &str) -> Option<usize> {
    let slash = url.find(['/', '?', '#']).unwrap_or(url.len());
    let host_end = url[..slash].rfind(']').unwrap_or(0);
    if let Some(colon) = url[host_end..slash].find(':').map(|at| host_end + at) {
        let port = &url[colon + 1..slash];
        if !port.is_empty() && port.parse::<u16>().is_err() {
            return Some(colon + 1);
        }
    }
    let digits = url[slash..].strip_prefix('/').map_or(slash, |_| slash + 1);
    let rest = &url[digits..];
    let length = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    match rest[length..].chars().next() {
        None => None,
        Some('?' | '#') => Some(digits + length + 1),
        Some(_) => Some(digits),
    }
}
