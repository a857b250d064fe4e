//! Texts into which parts of a request are put: `rewrite` and the `to` of a redirect.
//!
//! The compiler of the configuration has checked where parts may stand, so that no request chooses a
//! host or begins a header of its own. What is put in is encoded for its place.

use std::fmt::Write as _;

/// Pieces, one behind the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathTemplate {
    pub pieces: Vec<TemplatePiece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplatePiece {
    Literal(String),
    Part(TemplatePart, Encoding),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TemplatePart {
    /// A segment of the path, counted from zero.
    Segment(usize),
    /// What follows so many segments, with the slash before it.
    Rest {
        after: usize,
        /// A slash stands in for a rest that is empty, because the text would have no path.
        or_root: bool,
    },
    /// The whole path.
    Path,
    /// The query with the mark before it, `?` or `&`; nothing if there is none.
    Query { mark: char },
    /// The host, without a port.
    Host,
}

/// How a part is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// As in the normal spelling of the path.
    AsIs,
    /// The same, and what no URI may hold is escaped.
    Uri,
    /// As a value within a query: nothing in it ends or divides the value.
    QueryValue,
}

/// What parts are taken from.
#[derive(Debug, Clone, Copy)]
pub struct TemplateInput<'a> {
    /// In its normal spelling.
    pub path: &'a str,
    pub query: Option<&'a str>,
    pub host: &'a str,
}

impl PathTemplate {
    /// Whether it names the host of the request.
    pub fn has_host(&self) -> bool {
        let is_host = |it: &TemplatePiece| matches!(it, TemplatePiece::Part(TemplatePart::Host, _));
        self.pieces.iter().any(is_host)
    }

    pub fn render(&self, input: &TemplateInput<'_>) -> String {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                TemplatePiece::Literal(literal) => text.push_str(literal),
                TemplatePiece::Part(part, encoding) => {
                    let found = part.of(input);
                    // Within a value the slash before the rest has no meaning.
                    let found = match (part, encoding) {
                        (TemplatePart::Rest { .. }, Encoding::QueryValue) => {
                            found.strip_prefix('/').unwrap_or(found)
                        }
                        _ => found,
                    };
                    if let (TemplatePart::Query { mark }, Some(_)) = (part, input.query) {
                        text.push(*mark);
                    }
                    encoding.write(found, *part, &mut text);
                }
            }
        }
        text
    }
}

impl TemplatePart {
    fn of<'a>(self, input: &TemplateInput<'a>) -> &'a str {
        let path = input.path;
        let from = |segment: usize| {
            path.match_indices('/').nth(segment).map_or("", |(slash, _)| &path[slash..])
        };
        match self {
            TemplatePart::Segment(segment) => {
                let rest = from(segment).strip_prefix('/').unwrap_or_default();
                rest.split('/').next().unwrap_or_default()
            }
            TemplatePart::Rest { after, or_root } => match from(after) {
                "" if or_root => "/",
                rest => rest,
            },
            TemplatePart::Path => path,
            TemplatePart::Query { .. } => input.query.unwrap_or_default(),
            TemplatePart::Host => input.host,
        }
    }
}

impl Encoding {
    fn write(self, found: &str, part: TemplatePart, text: &mut String) {
        // A segment is one value, whose escapes are those that a query has as well. A path is text.
        let keeps_escapes = self != Encoding::QueryValue
            || matches!(part, TemplatePart::Segment(_) | TemplatePart::Query { .. });
        for byte in found.bytes() {
            let good = match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => true,
                b'%' => keeps_escapes,
                // RFC 3986 section 2.2, without what would begin another part of the URI.
                b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' => {
                    self != Encoding::QueryValue
                }
                b';' | b'=' | b':' | b'@' | b'[' | b']' => self != Encoding::QueryValue,
                b'?' => matches!(part, TemplatePart::Query { .. }),
                _ => self == Encoding::AsIs,
            };
            if good {
                text.push(byte as char);
            } else {
                // Writing to a string cannot fail.
                let _ = write!(text, "%{byte:02X}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(pieces: &[TemplatePiece], path: &str, query: Option<&str>) -> String {
        let template = PathTemplate { pieces: pieces.to_vec() };
        template.render(&TemplateInput { path, query, host: "api.example" })
    }

    #[test]
    fn parts_are_taken_from_the_normal_path() {
        use Encoding::AsIs;
        use TemplatePart::{Path, Rest, Segment};
        let part = |part| TemplatePiece::Part(part, AsIs);
        let rest = |after| part(Rest { after, or_root: false });
        let path = "/users/a%20b;v=1/posts/";
        for (piece, expected) in [
            (part(Segment(0)), "users"),
            (part(Segment(1)), "a%20b;v=1"),
            (part(Segment(3)), ""),
            (part(Segment(9)), ""),
            (rest(0), path),
            (rest(2), "/posts/"),
            (rest(3), "/"),
            (rest(9), ""),
            (part(Path), path),
        ] {
            assert_eq!(rendered(std::slice::from_ref(&piece), path, None), expected, "{piece:?}");
        }
        let root = part(Rest { after: 1, or_root: true });
        assert_eq!(rendered(std::slice::from_ref(&root), "/a", None), "/");
        assert_eq!(rendered(&[root], "/a/b", None), "/b");
    }

    #[test]
    fn what_is_put_in_cannot_leave_its_place() {
        use Encoding::{QueryValue, Uri};
        use TemplatePart::{Host, Path, Query, Rest, Segment};
        let path = "/a%26b/x&y=z+;#\"<>{}|^`%3F";
        let values = "/a%2526b/x%26y%3Dz%2B%3B%23%22%3C%3E%7B%7D%7C%5E%60%253F";
        let uri = "/a%26b/x&y=z+;%23%22%3C%3E%7B%7D%7C%5E%60%3F";
        for (part, encoding, expected) in [
            (Path, Uri, uri),
            (Path, QueryValue, values),
            (Rest { after: 0, or_root: false }, QueryValue, &values[1..]),
            (Segment(0), QueryValue, "a%26b"),
            (Segment(0), Uri, "a%26b"),
            (Host, Uri, "api.example"),
            (Query { mark: '?' }, Uri, "?a=1&b=%20&c=?x/%22"),
            (Query { mark: '&' }, Uri, "&a=1&b=%20&c=?x/%22"),
        ] {
            let piece = TemplatePiece::Part(part, encoding);
            let query = Some("a=1&b=%20&c=?x/\"");
            assert_eq!(rendered(&[piece], path, query), expected, "{part:?} {encoding:?}");
        }
        assert_eq!(rendered(&[TemplatePiece::Part(Query { mark: '?' }, Uri)], "/", None), "");
    }
}
