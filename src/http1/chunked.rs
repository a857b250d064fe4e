//! The chunked transfer coding, RFC 9112 section 7.1, decoded without leniency.
//!
//! Extensions and trailers are read, bounded and dropped: they say nothing to a gateway, and a
//! trailer must never turn into a header.

use bytes::{Buf, Bytes, BytesMut};

use super::HeadSearch;
use super::framing::MAX_LENGTH;

/// One size line with its extensions.
const MAX_LINE: usize = 1024;
/// All extensions of one body together.
const MAX_EXTENSIONS: usize = 16 * 1024;
const MAX_TRAILERS: usize = 16 * 1024;
const MAX_TRAILER_FIELDS: usize = 64;

/// Where the decoder stands.
#[derive(Debug)]
pub(crate) struct Chunked {
    state: State,
    extensions: usize,
    /// The search for the end of the trailers, which are shaped like a head.
    trailers: HeadSearch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Size,
    Data(u64),
    DataEnd,
    Trailers,
    Done,
}

/// What a call to [`Chunked::decode`] found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Data(Bytes),
    /// The buffer holds no more than part of the next element.
    More,
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    #[error("a chunk size is not a hexadecimal number")]
    Size,
    #[error("a chunk line is too long")]
    Line,
    #[error("chunk extensions are too long")]
    Extensions,
    #[error("a chunk does not end in CR LF")]
    End,
    #[error("trailers are malformed or too long")]
    Trailers,
}

impl Default for Chunked {
    fn default() -> Self {
        Chunked { state: State::Size, extensions: 0, trailers: HeadSearch::immediate() }
    }
}

impl Chunked {
    /// Takes the next piece of the body out of `buffer`.
    ///
    /// # Errors
    /// If the bytes are not a strictly formed chunked body. The connection is unusable then.
    pub(crate) fn decode(&mut self, buffer: &mut BytesMut) -> Result<Step, ChunkError> {
        loop {
            match self.state {
                State::Size => {
                    let Some(line) = size_line(buffer)? else { return Ok(Step::More) };
                    let (size, extensions) = parse_size(&buffer[..line])?;
                    self.extensions += extensions;
                    if self.extensions > MAX_EXTENSIONS {
                        return Err(ChunkError::Extensions);
                    }
                    buffer.advance(line + 2);
                    self.state = if size == 0 { State::Trailers } else { State::Data(size) };
                }
                State::Data(left) => {
                    if buffer.is_empty() {
                        return Ok(Step::More);
                    }
                    let take = usize::try_from(left).map_or(buffer.len(), |n| n.min(buffer.len()));
                    let left = left - take as u64;
                    self.state = if left == 0 { State::DataEnd } else { State::Data(left) };
                    return Ok(Step::Data(buffer.split_to(take).freeze()));
                }
                State::DataEnd => {
                    if buffer.len() < 2 {
                        return match buffer.first() {
                            None | Some(b'\r') => Ok(Step::More),
                            Some(_) => Err(ChunkError::End),
                        };
                    }
                    if &buffer[..2] != b"\r\n" {
                        return Err(ChunkError::End);
                    }
                    buffer.advance(2);
                    self.state = State::Size;
                }
                State::Trailers => {
                    if buffer.starts_with(b"\r\n") {
                        buffer.advance(2);
                    } else if buffer.len() < 2 && b"\r\n".starts_with(buffer) {
                        return Ok(Step::More);
                    } else {
                        let taken = self.trailers.take(buffer, MAX_TRAILERS);
                        match taken.map_err(|_| ChunkError::Trailers)? {
                            Some(section) => check_trailers(&section)?,
                            None => return Ok(Step::More),
                        }
                    }
                    self.state = State::Done;
                }
                State::Done => return Ok(Step::End),
            }
        }
    }
}

/// The length of the size line without its CR LF, once it is all there.
fn size_line(buffer: &[u8]) -> Result<Option<usize>, ChunkError> {
    let window = &buffer[..buffer.len().min(MAX_LINE)];
    match memchr::memchr(b'\n', window) {
        Some(0) => Err(ChunkError::Size),
        Some(at) if buffer[at - 1] == b'\r' => Ok(Some(at - 1)),
        Some(_) => Err(ChunkError::Line),
        None if buffer.len() >= MAX_LINE => Err(ChunkError::Line),
        None => Ok(None),
    }
}

/// The size, and the length of what follows it.
fn parse_size(line: &[u8]) -> Result<(u64, usize), ChunkError> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    if digits == 0 || digits > 16 {
        return Err(ChunkError::Size);
    }
    let rest = &line[digits..];
    let clean = rest.iter().all(|&byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f));
    if !(rest.is_empty() || (rest[0] == b';' && clean)) {
        return Err(ChunkError::Size);
    }
    let size = line[..digits].iter().fold(0u64, |sum, &byte| {
        sum << 4 | u64::from((byte as char).to_digit(16).unwrap_or_default())
    });
    if size > MAX_LENGTH { Err(ChunkError::Size) } else { Ok((size, rest.len())) }
}

fn check_trailers(section: &[u8]) -> Result<(), ChunkError> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_TRAILER_FIELDS];
    match httparse::parse_headers(section, &mut fields) {
        Ok(httparse::Status::Complete((length, _))) if length == section.len() => Ok(()),
        _ => Err(ChunkError::Trailers),
    }
}

#[cfg(test)]
mod tests;
