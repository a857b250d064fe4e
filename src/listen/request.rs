//! The head of an HTTP/1.1 request, turned into a request for the gateway.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Uri, Version, request};

use super::host::{self, is_host};
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

/// Parses a head of up to `max_fields` fields into a request that has no fields yet. Its body is still
/// to come; [`RequestMeta`] says how that is framed.
///
/// # Errors
/// If the request is malformed.
pub(super) fn parse(
    head: &Bytes,
    max_fields: usize,
    parts: &mut request::Parts,
) -> Result<RequestMeta, Fault> {
    let headers = &mut parts.headers;
    let line = head::parse_request(head, headers, max_fields)?;
    let framing = match line.flags.framing {
        true => Framing::stated(headers, line.http10)?.unwrap_or(Framing::Empty),
        false => Framing::Empty,
    };
    let uri = parse_target(&line.method, line.target)?;
    check_host(headers, &uri, line.http10)?;
    let meta = RequestMeta {
        wants_no_body: line.method == Method::HEAD,
        http10: line.http10,
        keep_alive: line.flags.persists(line.http10),
        awaits_continue: line.flags.expect
            && !line.http10
            && framing != Framing::Empty
            && awaits_continue(headers),
        framing,
    };
    parts.method = line.method;
    parts.uri = uri;
    parts.version = if line.http10 { Version::HTTP_10 } else { Version::HTTP_11 };
    Ok(meta)
}

/// What has to be escaped in a target, whichever protocol it comes by.
pub(super) fn check_target_characters(target: &[u8]) -> Result<(), Fault> {
    // All of it in any case, so that several bytes are looked at at once.
    let must_be_escaped = |byte: u8| byte.wrapping_sub(0x21) >= 0x7f - 0x21 || byte == b'#';
    match target.iter().fold(false, |bad, &byte| bad | must_be_escaped(byte)) {
        false => Ok(()),
        true => Err(Fault::Target("the target has a character that must be escaped")),
    }
}

/// RFC 9112 section 3.2, all four forms.
fn parse_target(method: &Method, target: Bytes) -> Result<Uri, Fault> {
    check_target_characters(&target)?;
    let origin_form = target.starts_with(b"/");
    let uri = Uri::from_maybe_shared(target).map_err(|_| Fault::Target("the target is no URI"))?;
    if origin_form || *method == Method::CONNECT || uri.path() == "*" {
        return Ok(uri);
    }
    match (uri.scheme_str(), uri.authority()) {
        (Some("http" | "https"), Some(authority)) if is_host(authority.as_str().as_bytes()) => {
            Ok(uri)
        }
        _ => Err(Fault::Target("the target is neither a path nor an http URI")),
    }
}

/// Makes sure that there is exactly one usable host. An absolute target wins over the header:
/// RFC 9112 section 3.2.2.
fn check_host(headers: &mut HeaderMap, uri: &Uri, http10: bool) -> Result<(), Fault> {
    if host::stated(headers)?.is_none() && !http10 {
        return Err(Fault::Target("the host is missing"));
    }
    if let (Some(_), Some(authority)) = (uri.scheme(), uri.authority()) {
        let value = HeaderValue::from_str(authority.as_str());
        headers.insert(header::HOST, value.map_err(|_| Fault::Head(HeadError::Field))?);
    }
    Ok(())
}

fn awaits_continue(headers: &HeaderMap) -> bool {
    let expect = headers.get(header::EXPECT);
    expect.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn parsed(text: &str) -> Result<(request::Parts, RequestMeta), Fault> {
        let (mut parts, ()) = Request::new(()).into_parts();
        let head = Bytes::from(format!("{text}\r\n\r\n"));
        let meta = parse(&head, head::USUAL_FIELDS, &mut parts)?;
        Ok((parts, meta))
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
        let (parts, _) = parsed("GET http://b:81/x?y HTTP/1.1\r\nHost: a").unwrap();
        assert_eq!(parts.headers[header::HOST], "b:81");
        assert_eq!(parts.uri.path(), "/x");
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
