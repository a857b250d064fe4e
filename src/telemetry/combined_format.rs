//! The line of a request as Apache and nginx write it: the combined log format.
//!
//! `client - - [time] "request" status bytes "referer" "user agent"`, escaped as nginx does by default.

use std::io::Write as _;

use chrono::{DateTime, Datelike as _, Timelike as _};
use http::StatusCode;

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// What the format has room for.
pub(super) struct CombinedLine<'a> {
    pub(super) time: i64,
    pub(super) client: &'a str,
    /// Empty if the request could not be read.
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) protocol: &'a str,
    pub(super) status: StatusCode,
    pub(super) bytes: u64,
    pub(super) referer: &'a [u8],
    pub(super) user_agent: &'a [u8],
}

impl CombinedLine<'_> {
    /// With a line feed at its end.
    pub(super) fn text(&self) -> Vec<u8> {
        let mut line = Vec::with_capacity(256);
        escape(&mut line, self.client.as_bytes());
        line.extend_from_slice(b" - - [");
        write_time(&mut line, self.time);
        line.extend_from_slice(b"] \"");
        if self.method.is_empty() {
            line.push(b'-');
        } else {
            escape(&mut line, self.method.as_bytes());
            line.push(b' ');
            escape(&mut line, self.path.as_bytes());
            line.push(b' ');
            escape(&mut line, self.protocol.as_bytes());
        }
        let _ = write!(line, "\" {} {} \"", self.status.as_u16(), self.bytes);
        escape(&mut line, self.referer);
        line.extend_from_slice(b"\" \"");
        escape(&mut line, self.user_agent);
        line.extend_from_slice(b"\"\n");
        line
    }
}

/// In UTC, so that no time zone has to be known.
fn write_time(line: &mut Vec<u8>, time: i64) {
    let at = DateTime::from_timestamp(time, 0).unwrap_or_default();
    let month = MONTHS[at.month0() as usize % MONTHS.len()];
    let _ = write!(
        line,
        "{:02}/{month}/{:04}:{:02}:{:02}:{:02} +0000",
        at.day(),
        at.year(),
        at.hour(),
        at.minute(),
        at.second()
    );
}

/// What is not there is `-`. Quotes, backslashes and whatever is not printable become `\xXX`.
fn escape(line: &mut Vec<u8>, text: &[u8]) {
    if text.is_empty() {
        line.push(b'-');
    }
    for &byte in text {
        match byte {
            b'"' | b'\\' | 0..32 | 127.. => {
                let _ = write!(line, "\\x{byte:02X}");
            }
            plain => line.push(plain),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line<'a>() -> CombinedLine<'a> {
        CombinedLine {
            time: 1_794_802_783,
            client: "192.0.2.7",
            method: "GET",
            path: "/login",
            protocol: "HTTP/1.1",
            status: StatusCode::TOO_MANY_REQUESTS,
            bytes: 302,
            referer: b"",
            user_agent: b"curl/8.5.0",
        }
    }

    fn text(line: &CombinedLine<'_>) -> String {
        String::from_utf8(line.text()).unwrap()
    }

    #[test]
    fn a_line_is_as_log_analysers_expect_it() {
        assert_eq!(
            text(&line()),
            "192.0.2.7 - - [16/Nov/2026:04:19:43 +0000] \"GET /login HTTP/1.1\" 429 302 \"-\" \
             \"curl/8.5.0\"\n"
        );
    }

    #[test]
    fn nothing_a_client_sends_ends_a_field_or_a_line() {
        let line = CombinedLine {
            path: "/a\"b",
            referer: b"http://x/\\\n",
            user_agent: "ü\x7f\t".as_bytes(),
            ..line()
        };
        let text = text(&line);
        assert!(text.contains("\"GET /a\\x22b HTTP/1.1\""), "{text}");
        assert!(text.contains("\"http://x/\\x5C\\x0A\" \"\\xC3\\xBC\\x7F\\x09\"\n"), "{text}");
    }

    #[test]
    fn a_request_that_could_not_be_read_is_a_dash() {
        let line = CombinedLine { method: "", path: "", protocol: "", ..line() };
        assert!(text(&line).contains("] \"-\" 429"));
    }
}
