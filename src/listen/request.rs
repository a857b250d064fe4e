//! The head of an HTTP/1.1 request, turned into a request for the gateway.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, Uri, Version};

use crate::body::Body;
use crate::http1::{Framing, HeadError, head};
use crate::respond::Fault;

/// What the connection has to know of a request while the gateway handles it.
#[derive(Debug)]
pub(super) struct RequestMeta {
    /// A HEAD request: its answer has no body.
    pub wants_no_body: bool,
    pub http10: bool,
    pub keep_alive: bool,
    pub awaits_continue: bool,
    pub framing: Framing,
}

/// Parses a head into a new request. Its body is still to come; [`RequestMeta`] says how that is
/// framed.
///
/// # Errors
/// If the request is malformed.
pub(super) fn parse(
    head: &Bytes,
    mut headers: HeaderMap,
    request: &mut Request<Body>,
) -> Result<RequestMeta, Fault> {
    let line = head::parse_request(head, &mut headers)?;
    let framing = match line.flags.framing {
        true => Framing::stated(&headers, line.http10)?.unwrap_or(Framing::Empty),
        false => Framing::Empty,
    };
    let uri = parse_target(&line.method, line.target)?;
    check_host(&mut headers, &uri, line.http10)?;
    let meta = RequestMeta {
        wants_no_body: line.method == Method::HEAD,
        http10: line.http10,
        keep_alive: line.flags.persists(line.http10),
        awaits_continue: line.flags.expect
            && !line.http10
            && framing != Framing::Empty
            && awaits_continue(&headers),
        framing,
    };
    *request.method_mut() = line.method;
    *request.uri_mut() = uri;
    *request.version_mut() = if line.http10 { Version::HTTP_10 } else { Version::HTTP_11 };
    *request.headers_mut() = headers;
    Ok(meta)
}

/// RFC 9112 section 3.2, all four forms.
fn parse_target(method: &Method, target: Bytes) -> Result<Uri, Fault> {
    if !target.iter().all(|byte| (0x21..0x7f).contains(byte) && *byte != b'#') {
        return Err(Fault::Target("the target has a character that must be escaped"));
    }
    let origin_form = target.starts_with(b"/");
    let uri = Uri::from_maybe_shared(target).map_err(|_| Fault::Target("the target is no URI"))?;
    if origin_form || *method == Method::CONNECT || uri.path() == "*" {
        return Ok(uri);
    }
    match (uri.scheme_str(), uri.authority()) {
        (Some("http" | "https"), Some(authority)) if is_host(authority.as_str()) => Ok(uri),
        _ => Err(Fault::Target("the target is neither a path nor an http URI")),
    }
}

/// Makes sure that there is exactly one usable host. An absolute target wins over the header:
/// RFC 9112 section 3.2.2.
fn check_host(headers: &mut HeaderMap, uri: &Uri, http10: bool) -> Result<(), Fault> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (first, second) = (hosts.next(), hosts.next());
    match (first, second) {
        (None, _) if http10 => {}
        (None, _) => return Err(Fault::Target("the host is missing")),
        (Some(_), Some(_)) => return Err(Fault::Target("the host is doubled")),
        (Some(host), None) if !host.to_str().is_ok_and(is_host) => {
            return Err(Fault::Target("the host is malformed"));
        }
        _ => {}
    }
    if let (Some(_), Some(authority)) = (uri.scheme(), uri.authority()) {
        let value = HeaderValue::from_str(authority.as_str());
        headers.insert(header::HOST, value.map_err(|_| Fault::Head(HeadError::Field))?);
    }
    Ok(())
}

/// A name or an address, with or without a port: RFC 3986 section 3.2.2 without its user part
/// and without percent-escapes, which no host has a use for.
fn is_host(text: &str) -> bool {
    let (good_name, rest) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, rest) = rest.split_once(']').unwrap_or_default();
            (address.parse::<std::net::Ipv6Addr>().is_ok(), rest)
        }
        None => {
            let length = name_length(text.as_bytes());
            (length > 0, &text[length..])
        }
    };
    good_name && (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port))
}

/// The length of the name a text starts with: no longer than the DNS allows, and without empty
/// labels but for the root's. Zero if there is none.
fn name_length(text: &[u8]) -> usize {
    let end = text.iter().position(|&byte| byte == b':').unwrap_or(text.len());
    let name = &text[..end];
    let mut previous = b'.';
    let good = name.iter().all(|&byte| {
        let good = IN_NAMES[usize::from(byte)] && !(byte == b'.' && previous == b'.');
        previous = byte;
        good
    });
    if good && end <= 255 { end } else { 0 }
}

/// The bytes that names are made of: every request is checked against this.
const IN_NAMES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        let it = byte as u8;
        table[byte] = it.is_ascii_alphanumeric() || matches!(it, b'-' | b'.' | b'_' | b'~');
        byte += 1;
    }
    table
};

/// Digits, or nothing at all: RFC 3986 section 3.2.3.
fn is_port(text: &str) -> bool {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits && (text.is_empty() || text.parse::<u16>().is_ok())
}

fn awaits_continue(headers: &HeaderMap) -> bool {
    let expect = headers.get(header::EXPECT);
    expect.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<(Request<Body>, RequestMeta), Fault> {
        let mut request = Request::new(Body::empty());
        let head = Bytes::from(format!("{text}\r\n\r\n"));
        let meta = parse(&head, HeaderMap::new(), &mut request)?;
        Ok((request, meta))
    }

    #[test]
    fn hosts_are_checked() {
        for good in ["a", "a:80", "A.b-c.d:", "a.b.", "127.0.0.1:8080", "[::1]", "[::1]:80", "a_b"]
        {
            assert!(parsed(&format!("GET / HTTP/1.1\r\nHost: {good}")).is_ok(), "{good}");
        }
        for bad in [
            "", "a b", "a/b", "a@b", "a:b", "a:1:2", "[::1", "[x]", "[::1]80", "a:99999", "a,b",
            "a%20", "é",
        ] {
            assert!(parsed(&format!("GET / HTTP/1.1\r\nHost: {bad}")).is_err(), "{bad}");
        }
        assert!(parsed("GET / HTTP/1.1").is_err());
        assert!(parsed("GET / HTTP/1.1\r\nHost: a\r\nHost: a").is_err());
        assert!(parsed("GET / HTTP/1.0").is_ok());
    }

    #[test]
    fn an_absolute_target_wins_over_the_host() {
        let (request, _) = parsed("GET http://b:81/x?y HTTP/1.1\r\nHost: a").unwrap();
        assert_eq!(request.headers()[header::HOST], "b:81");
        assert_eq!(request.uri().path(), "/x");
        for bad in ["ftp://b/", "b/c", "http://u@b/", "http:///x", "?x"] {
            assert!(parsed(&format!("GET {bad} HTTP/1.1\r\nHost: a")).is_err(), "{bad}");
        }
    }

    #[test]
    fn persistence_follows_the_version_and_the_header() {
        for (text, expected) in [
            ("GET / HTTP/1.1\r\nHost: a", true),
            ("GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close", false),
            ("GET / HTTP/1.0\r\nHost: a", false),
            ("GET / HTTP/1.0\r\nHost: a\r\nConnection: Keep-Alive", true),
        ] {
            assert_eq!(parsed(text).unwrap().1.keep_alive, expected, "{text}");
        }
    }
}
