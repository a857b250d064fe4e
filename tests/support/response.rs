//! An answer, taken apart strictly: what a careful client would make of the bytes.

use serde_json::Value;

use super::wire::{self, ReadError, Wire};

#[derive(Debug, Clone)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Trailer lines as they came.
    pub(crate) trailers: Vec<String>,
    /// The status of each 1xx before it.
    pub(crate) interim: Vec<u16>,
    /// The connection ended before the body did.
    pub(crate) truncated: bool,
    /// The body has no length: it ends with the connection.
    pub(crate) until_close: bool,
}

impl Response {
    /// Reads one answer; `bodyless` for one to HEAD. `Err` if the connection ends, or stays
    /// silent, before the head is whole. Panics on anything that is not well-formed HTTP/1.
    pub(crate) fn read(wire: &mut Wire, bodyless: bool) -> Result<Response, ReadError> {
        let mut interim = Vec::new();
        loop {
            let mut response = Response::read_head(wire)?;
            if (100..200).contains(&response.status) && response.status != 101 {
                interim.push(response.status);
                continue;
            }
            response.interim = interim;
            if !bodyless && !matches!(response.status, 101 | 204 | 304) {
                response.read_body(wire)?;
            }
            return Ok(response);
        }
    }

    fn read_head(wire: &mut Wire) -> Result<Response, ReadError> {
        let head = wire.take_through(b"\r\n\r\n")?;
        let head = std::str::from_utf8(&head).expect("a head in UTF-8");
        let (line, lines) = head.split_once("\r\n").unwrap();
        let mut parts = line.splitn(3, ' ');
        let version = parts.next().unwrap_or_default();
        let status = parts.next().unwrap_or_default();
        let reason = parts.next();
        assert!(matches!(version, "HTTP/1.1" | "HTTP/1.0"), "a bad version in {line:?}");
        let three = status.len() == 3 && status.bytes().all(|b| b.is_ascii_digit());
        assert!(three && reason.is_some(), "a bad status line {line:?}");
        let headers = wire::parse_headers(lines).unwrap_or_else(|fault| panic!("{fault}:\n{head}"));
        Ok(Response {
            status: status.parse().unwrap(),
            headers,
            body: Vec::new(),
            trailers: Vec::new(),
            interim: Vec::new(),
            truncated: false,
            until_close: false,
        })
    }

    /// A body that stays away past the deadline is an error; one cut off by a close is stated in
    /// `truncated`.
    fn read_body(&mut self, wire: &mut Wire) -> Result<(), ReadError> {
        let lengths = self.all("content-length");
        let codings = self.all("transfer-encoding");
        assert!(lengths.len() <= 1, "several Content-Lengths: {self:?}");
        assert!(lengths.is_empty() || codings.is_empty(), "a length and a coding: {self:?}");
        let length: Option<usize> = lengths.first().map(|it| it.parse().expect("a length"));
        if !codings.is_empty() {
            assert_eq!(codings, ["chunked"]);
            match wire.take_chunked(&mut self.body) {
                Ok(trailers) => self.trailers = trailers,
                Err(ReadError::Closed) => self.truncated = true,
                Err(ReadError::Silence) => return Err(ReadError::Silence),
            }
        } else if let Some(length) = length {
            match wire.take(length) {
                Ok(body) => self.body = body,
                Err(ReadError::Closed) => {
                    self.body = wire.take_rest();
                    self.truncated = true;
                }
                Err(ReadError::Silence) => return Err(ReadError::Silence),
            }
        } else {
            self.until_close = true;
            while wire.fill() == Ok(()) {}
            self.body = wire.take_rest();
        }
        Ok(())
    }

    /// The values of all fields of that name, in order.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        wire::all(&self.headers, name)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        !self.all(name).is_empty()
    }

    /// The value of a field that must be there exactly once.
    #[track_caller]
    pub(crate) fn one(&self, name: &str) -> &str {
        let values = self.all(name);
        assert_eq!(values.len(), 1, "expected one {name}: {self:#?}");
        values[0]
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error} in the body of {self:#?} {}", self.text()))
    }

    /// The `error` that an answer of Weir's own names; every one of them is a problem document.
    #[track_caller]
    pub(crate) fn error(&self) -> String {
        assert_eq!(self.one("content-type"), "application/problem+json");
        let problem = self.json();
        assert_eq!(problem["status"], self.status, "{problem}");
        problem["error"].as_str().expect("a named error").to_owned()
    }
}
