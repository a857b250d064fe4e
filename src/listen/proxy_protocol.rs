//! The PROXY protocol, versions 1 and 2: what a trusted peer says of its own client before the first
//! request of a connection, as <https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt> has it.
//!
//! A trusted proxy has to send it, and in one of the two forms to the letter: a connection that begins
//! with anything else is not served, since nobody knows whose it is.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::task::{Poll, ready};

use bytes::Buf;
use tokio::time::Instant;

use super::connection::DRAIN_GRACE;
use super::control::ConnectionControl;
use crate::config::settings;
use crate::http1::BufferedStream;

const V1: &[u8] = b"PROXY ";
/// The longest there can be, with two IPv6 addresses written in full.
const V1_MAX: usize = 107;

const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Up to the length, which comes last.
const V2_FIXED: usize = 16;
/// Addresses take 216 bytes at most; the rest is for extensions, such as a certificate's name.
const V2_MAX: usize = 4096;

/// What a peer has said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// Its client. `None`: it speaks for itself, or for somebody without an address.
    pub source: Option<SocketAddr>,
    /// How many bytes it took to say so.
    pub length: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    #[error("the connection does not begin with a PROXY header")]
    Absent,
    #[error("the PROXY header is malformed: {0}")]
    Malformed(&'static str),
    #[error("the PROXY header is too long")]
    TooLong,
    #[error("the PROXY header ends too early")]
    Cut,
    #[error("the PROXY header takes too long")]
    Slow,
}

/// Takes the header off a connection and leaves what follows it. `None`: the peer said nothing at
/// all, as one does that only looks whether somebody listens.
///
/// # Errors
/// If the connection begins with anything else.
pub(super) async fn read(
    io: &mut BufferedStream,
    settings: &settings::Server,
    control: &ConnectionControl,
) -> Result<Option<Header>, HeaderError> {
    io.set_deadline(Instant::now() + settings.header_timeout);
    let mut leaving = false;
    poll_fn(|cx| {
        loop {
            if let Some(header) = parse(&io.read_buf)? {
                io.read_buf.advance(header.length);
                return Poll::Ready(Ok(Some(header)));
            }
            if control.draining.get() && !leaving {
                leaving = true;
                io.set_deadline(Instant::now() + DRAIN_GRACE.min(settings.drain));
            }
            let silent = io.read_buf.is_empty();
            match ready!(io.poll_fill(cx, false)) {
                Ok(0) | Err(_) if silent => return Poll::Ready(Ok(None)),
                Ok(0) => return Poll::Ready(Err(HeaderError::Cut)),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    return Poll::Ready(Err(HeaderError::Slow));
                }
                Err(_) => return Poll::Ready(Err(HeaderError::Cut)),
            }
        }
    })
    .await
}

/// Reads a header at the start of what has come. `None`: there is more to come.
///
/// # Errors
/// As soon as it can no longer become a header.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Header>, HeaderError> {
    let begins = |mark: &[u8]| bytes.iter().zip(mark).all(|(one, other)| one == other);
    match (begins(V1), begins(V2)) {
        _ if bytes.is_empty() => Ok(None),
        (true, _) => parse_v1(bytes),
        (_, true) => parse_v2(bytes),
        _ => Err(HeaderError::Absent),
    }
}

fn parse_v1(bytes: &[u8]) -> Result<Option<Header>, HeaderError> {
    let within = &bytes[..bytes.len().min(V1_MAX)];
    let Some(end) = within.iter().position(|&byte| byte == b'\n') else {
        return if within.len() < V1_MAX { Ok(None) } else { Err(HeaderError::TooLong) };
    };
    let line = within[..end].strip_suffix(b"\r").and_then(|line| line.strip_prefix(V1));
    let line = line.ok_or(HeaderError::Malformed("its line has no proper end"))?;
    let length = end + 1;
    // What follows is for nobody to read.
    if line == b"UNKNOWN" || line.starts_with(b"UNKNOWN ") {
        return Ok(Some(Header { source: None, length }));
    }
    let line = std::str::from_utf8(line).map_err(|_| HeaderError::Malformed("it is not ASCII"))?;
    let mut words = line.split(' ');
    let mut word = || words.next().unwrap_or_default();
    let (family, source, destination) = (word(), word(), word());
    let (source_port, destination_port) = (port(word()), port(word()));
    let [source, destination] = [source, destination].map(|text| match family {
        "TCP4" => text.parse().map(IpAddr::V4).ok(),
        "TCP6" => text.parse().map(IpAddr::V6).ok(),
        _ => None,
    });
    let (Some(ip), Some(port), Some(_), Some(_), None) =
        (source, source_port, destination, destination_port, words.next())
    else {
        return Err(HeaderError::Malformed("it does not name two addresses and two ports"));
    };
    Ok(Some(Header { source: Some(SocketAddr::new(ip, port)), length }))
}

/// Digits without a sign and without leading zeros.
fn port(text: &str) -> Option<u16> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let plain = plain && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| plain)
}

fn parse_v2(bytes: &[u8]) -> Result<Option<Header>, HeaderError> {
    let Some(&[.., command, family, high, low]) = bytes.first_chunk::<V2_FIXED>() else {
        return Ok(None);
    };
    let said = usize::from(u16::from_be_bytes([high, low]));
    if said > V2_MAX {
        return Err(HeaderError::TooLong);
    }
    let speaks_for_itself = match command {
        0x20 => true,
        0x21 => false,
        _ => return Err(HeaderError::Malformed("its version or command is unknown")),
    };
    let length = V2_FIXED + said;
    let Some(body) = bytes.get(V2_FIXED..length) else { return Ok(None) };
    if speaks_for_itself {
        return Ok(Some(Header { source: None, length }));
    }
    let short = HeaderError::Malformed("it has no room for its addresses");
    // Two addresses, then two ports. A client that came by datagrams has an address all the same.
    let (source, extensions) = match family {
        0x00 => (None, &[][..]),
        0x11 | 0x12 => {
            let (addresses, rest) = body.split_first_chunk::<12>().ok_or(short)?;
            let &[a, b, c, d, _, _, _, _, high, low, _, _] = addresses;
            (Some(address(Ipv4Addr::new(a, b, c, d).into(), high, low)), rest)
        }
        0x21 | 0x22 => {
            let (addresses, rest) = body.split_first_chunk::<36>().ok_or(short)?;
            let (ip, ports) = addresses.split_first_chunk::<16>().ok_or(short)?;
            (Some(address(Ipv6Addr::from(*ip).into(), ports[16], ports[17])), rest)
        }
        // Two paths of sockets.
        0x31 | 0x32 => (None, body.get(216..).ok_or(short)?),
        _ => return Err(HeaderError::Malformed("its family of addresses is unknown")),
    };
    if !are_whole(extensions) {
        return Err(HeaderError::Malformed("an extension runs past its end"));
    }
    Ok(Some(Header { source, length }))
}

fn address(ip: IpAddr, high: u8, low: u8) -> SocketAddr {
    SocketAddr::new(ip, u16::from_be_bytes([high, low]))
}

/// Whether extensions, each a type, a length and so many bytes, fill their place.
fn are_whole(mut extensions: &[u8]) -> bool {
    while let Some((&[_, high, low], rest)) = extensions.split_first_chunk::<3>() {
        let Some(rest) = rest.get(usize::from(u16::from_be_bytes([high, low]))..) else {
            return false;
        };
        extensions = rest;
    }
    extensions.is_empty()
}

#[cfg(test)]
#[path = "proxy_protocol/tests.rs"]
mod tests;
