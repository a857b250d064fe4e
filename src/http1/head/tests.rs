use bytes::BytesMut;

use super::*;
use crate::http1::HeadSearch;

fn request(text: &str) -> Result<Option<(RequestLine, HeaderMap)>, HeadError> {
    let mut read_buf = BytesMut::from(text);
    let Some(head) = HeadSearch::default().take(&mut read_buf, 1024)? else { return Ok(None) };
    let mut headers = HeaderMap::new();
    parse_request(&head, &mut headers, USUAL_FIELDS).map(|line| Some((line, headers)))
}

#[test]
fn ambiguous_heads_are_refused() {
    for bad in [
        "GET / HTTP/1.1\nHost: x\n\n",
        "GET / HTTP/1.1\r\nHost : x\r\n\r\n",
        "GET / HTTP/1.1\r\n: x\r\n\r\n",
        "GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
        "GET / HTTP/1.1\r\n A: b\r\n\r\n",
        "GET / HTTP/1.1\r\nA: b\0c\r\n\r\n",
        "GET / HTTP/1.1\r\nA: b\rc\r\n\r\n",
        "GET / HTTP/1.1\r\nA\r\n\r\n",
        "GET  / HTTP/1.1\r\n\r\n",
        "GET / HTTP/2.0\r\n\r\n",
        "GET /\r\n\r\n",
        "G\0T / HTTP/1.1\r\n\r\n",
    ] {
        assert!(request(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn another_version_is_told_from_a_malformed_line() {
    for (line, error) in [
        ("GET / HTTP/2.0", HeadError::Version),
        ("GET / HTTP/3.7", HeadError::Version),
        ("GET / http/1.1", HeadError::FirstLine),
        ("GET /a b HTTP/1.1", HeadError::FirstLine),
        ("GET / HTTP/11", HeadError::FirstLine),
    ] {
        assert_eq!(request(&format!("{line}\r\n\r\n")), Err(error), "{line}");
    }
}

#[test]
fn a_large_head_is_refused_before_it_is_whole() {
    assert_eq!(request(&"a".repeat(1025)), Err(HeadError::TooLarge));
}

#[test]
fn a_head_has_as_many_fields_as_it_may_have_and_no_more() {
    for most in [10, USUAL_FIELDS, USUAL_FIELDS + 1, 1000] {
        for (count, good) in [(most, true), (most + 1, false)] {
            let fields = "A: b\r\n".repeat(count);
            let mut headers = HeaderMap::new();
            let head = Bytes::from(format!("GET / HTTP/1.1\r\n{fields}\r\n"));
            let request = parse_request(&head, &mut headers, most).map(|_| headers.len());
            let head = Bytes::from(format!("HTTP/1.1 200 OK\r\n{fields}\r\n"));
            let response = parse_response(&head, &mut headers, most).map(|_| headers.len());
            let expected = if good { Ok(count) } else { Err(HeadError::TooManyFields) };
            assert_eq!((request, response), (expected, expected), "{count} of {most}");
        }
    }
}

#[test]
fn a_status_outside_the_five_classes_is_refused() {
    for (line, good) in
        [("HTTP/1.1 200 OK", true), ("HTTP/1.1 99 No", false), ("HTTP/1.1 600 No", false)]
    {
        let head = Bytes::from(format!("{line}\r\n\r\n"));
        assert_eq!(
            parse_response(&head, &mut HeaderMap::new(), USUAL_FIELDS).is_ok(),
            good,
            "{line}"
        );
    }
}
