//! A socket with a buffer and a deadline: what client and upstream both read messages from.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustls::{ClientConnection, StreamOwned};

use super::PATIENCE;

/// Why no more could be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadError {
    /// The peer closed or reset the connection.
    Closed,
    /// Nothing came before the deadline.
    Silence,
}

/// What is under a [`Wire`].
#[derive(Debug)]
pub(crate) enum Transport {
    Tcp(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
    Unix(UnixStream),
}

impl Transport {
    fn set_timeouts(&self, read: Duration) -> io::Result<()> {
        match self {
            Transport::Unix(stream) => {
                stream.set_write_timeout(Some(PATIENCE))?;
                stream.set_read_timeout(Some(read))
            }
            _ => {
                self.tcp().set_write_timeout(Some(PATIENCE))?;
                self.tcp().set_read_timeout(Some(read))
            }
        }
    }

    fn tcp(&self) -> &TcpStream {
        match self {
            Transport::Tcp(stream) => stream,
            Transport::Tls(stream) => &stream.sock,
            Transport::Unix(_) => panic!("a Unix socket is not one of TCP"),
        }
    }

    fn read(&mut self, chunk: &mut [u8]) -> io::Result<usize> {
        match self {
            Transport::Tcp(stream) => stream.read(chunk),
            Transport::Tls(stream) => stream.read(chunk),
            Transport::Unix(stream) => stream.read(chunk),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Transport::Tcp(stream) => stream.write_all(bytes),
            Transport::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
            Transport::Unix(stream) => stream.write_all(bytes),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Wire {
    stream: Transport,
    /// Read, and not yet taken.
    buffer: Vec<u8>,
    patience: Duration,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> Wire {
        stream.set_nodelay(true).unwrap();
        Wire::over(Transport::Tcp(stream))
    }

    pub(crate) fn over(stream: Transport) -> Wire {
        stream.set_timeouts(PATIENCE).unwrap();
        Wire { stream, buffer: Vec::new(), patience: PATIENCE }
    }

    pub(crate) fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        self.stream.tcp()
    }

    pub(crate) fn transport(&self) -> &Transport {
        &self.stream
    }

    /// Writes all of it unless the peer is gone; whether it took everything. A peer may well
    /// answer and close before it has read what it refuses, so this is no failure by itself.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Ends the connection with a reset, as a process that dies with unread data does.
    pub(crate) fn reset(self) {
        socket2::SockRef::from(self.stream.tcp()).set_linger(Some(Duration::ZERO)).unwrap();
    }

    pub(crate) fn finish_writing(&mut self) {
        if let Transport::Tls(stream) = &mut self.stream {
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
        let _ = self.stream.tcp().shutdown(Shutdown::Write);
    }

    /// Reads once more, blocking up to the deadline.
    pub(crate) fn fill(&mut self) -> Result<(), ReadError> {
        let deadline = Instant::now() + self.patience;
        let mut chunk = [0; 64 * 1024];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ReadError::Silence);
            }
            self.stream.set_timeouts(left).unwrap();
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(ReadError::Closed),
                Ok(count) => {
                    self.buffer.extend_from_slice(&chunk[..count]);
                    return Ok(());
                }
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => return Err(ReadError::Silence),
                    _ => return Err(ReadError::Closed),
                },
            }
        }
    }

    /// Takes everything up to and including `mark`.
    pub(crate) fn take_through(&mut self, mark: &[u8]) -> Result<Vec<u8>, ReadError> {
        let mut searched = 0;
        loop {
            if let Some(at) = find(&self.buffer[searched..], mark) {
                let end = searched + at + mark.len();
                return Ok(self.buffer.drain(..end).collect());
            }
            searched = self.buffer.len().saturating_sub(mark.len());
            self.fill()?;
        }
    }

    /// Takes exactly `count` bytes.
    pub(crate) fn take(&mut self, count: usize) -> Result<Vec<u8>, ReadError> {
        while self.buffer.len() < count {
            self.fill()?;
        }
        let rest = self.buffer.split_off(count);
        Ok(std::mem::replace(&mut self.buffer, rest))
    }

    /// Takes what has been read and not yet taken.
    pub(crate) fn take_rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }

    /// Reads a chunked body into `body`, strictly; the trailer lines are the result.
    pub(crate) fn take_chunked(&mut self, body: &mut Vec<u8>) -> Result<Vec<String>, ReadError> {
        loop {
            let line = self.take_through(b"\r\n")?;
            let line = std::str::from_utf8(&line[..line.len() - 2]).expect("a chunk size in ASCII");
            let digits = line.split(';').next().unwrap_or_default();
            let valid = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
            assert!(valid, "a bad chunk size was passed on: {line:?}");
            let size = usize::from_str_radix(digits, 16).unwrap();
            if size == 0 {
                break;
            }
            match self.take(size) {
                Ok(data) => body.extend_from_slice(&data),
                Err(stop) => {
                    body.append(&mut self.buffer);
                    return Err(stop);
                }
            }
            assert_eq!(self.take(2)?, b"\r\n", "a chunk ends in CRLF");
        }
        let mut trailers = Vec::new();
        loop {
            let line = self.take_through(b"\r\n")?;
            if line == b"\r\n" {
                return Ok(trailers);
            }
            trailers.push(String::from_utf8_lossy(&line[..line.len() - 2]).into_owned());
        }
    }

    /// Whether the peer closes without sending another byte.
    pub(crate) fn closes(&mut self) -> bool {
        self.buffer.is_empty() && self.fill() == Err(ReadError::Closed)
    }
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// Header lines as name and value, strictly: no folding, no bare CR or LF, no space in a name.
/// The error says what is wrong.
pub(crate) fn parse_headers(lines: &str) -> Result<Vec<(String, String)>, String> {
    let mut headers = Vec::new();
    for line in lines.split("\r\n").filter(|line| !line.is_empty()) {
        if line.contains(['\r', '\n', '\0']) {
            return Err(format!("control character in {line:?}"));
        }
        let Some((name, value)) = line.split_once(':') else {
            return Err(format!("no colon in {line:?}"));
        };
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if name.is_empty() || !name.bytes().all(token) {
            return Err(format!("a bad name in {line:?}"));
        }
        headers.push((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()));
    }
    Ok(headers)
}

/// The values of all fields of that name, in order.
pub(crate) fn all<'a>(headers: &'a [(String, String)], name: &str) -> Vec<&'a str> {
    let same = |(have, _): &&(String, String)| have.eq_ignore_ascii_case(name);
    headers.iter().filter(same).map(|(_, value)| value.as_str()).collect()
}
