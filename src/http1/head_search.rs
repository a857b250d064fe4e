//! The search for the end of a head, which may arrive in any number of pieces.

use bytes::{Buf, Bytes, BytesMut};

use super::HeadError;

/// How far the search has come.
#[derive(Debug, Default)]
pub(crate) struct HeadSearch {
    searched: usize,
    line: usize,
    /// Whether empty lines before the first are an error.
    immediate: bool,
}

impl HeadSearch {
    /// A search for a head that starts with the next byte: a response's, or a trailer section.
    pub(crate) fn immediate() -> Self {
        HeadSearch { immediate: true, ..HeadSearch::default() }
    }

    /// Takes a whole head off the front of `read_buf`, or says that more is needed.
    ///
    /// # Errors
    /// If a line ends in a bare line feed or carriage return, or the head is larger than `max`.
    pub(crate) fn take(
        &mut self,
        read_buf: &mut BytesMut,
        max: usize,
    ) -> Result<Option<Bytes>, HeadError> {
        if read_buf.len() == self.searched {
            return Ok(None);
        }
        // RFC 9112 section 2.2: empty lines before a request are ignored.
        while !self.immediate && self.line == 0 && read_buf.starts_with(b"\r\n") {
            read_buf.advance(2);
            self.searched = 0;
        }
        while let Some(at) = memchr::memchr(b'\n', &read_buf[self.searched..]) {
            let feed = self.searched + at;
            if feed == 0 || read_buf[feed - 1] != b'\r' {
                return Err(HeadError::LineEnd);
            }
            let empty = feed - 1 == self.line;
            self.searched = feed + 1;
            self.line = feed + 1;
            if self.searched > max {
                return Err(HeadError::TooLarge);
            }
            if empty {
                let head = read_buf.split_to(self.searched).freeze();
                *self = HeadSearch { immediate: self.immediate, ..HeadSearch::default() };
                return Ok(Some(head));
            }
        }
        // A line that is not whole yet. A peer that ends lines with a bare CR would never send the LF
        // that this waits for.
        if read_buf.len() > self.line + 1 {
            let begun = self.line.max(self.searched.saturating_sub(1));
            if memchr::memchr(b'\r', &read_buf[begun..read_buf.len() - 1]).is_some() {
                return Err(HeadError::LineEnd);
            }
        }
        self.searched = read_buf.len();
        if self.searched > max { Err(HeadError::TooLarge) } else { Ok(None) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_found_however_it_is_cut() {
        let io = b"\r\nGET /a HTTP/1.1\r\nHost: x\r\n\r\nrest";
        for cut in 0..io.len() {
            let (mut search, mut read_buf) = (HeadSearch::default(), BytesMut::from(&io[..cut]));
            let early = search.take(&mut read_buf, 1024).unwrap();
            read_buf.extend_from_slice(&io[cut..]);
            let head = early.or_else(|| search.take(&mut read_buf, 1024).unwrap()).unwrap();
            assert_eq!(&head[..], &io[2..io.len() - 4], "at {cut}");
            assert_eq!(&read_buf[..], b"rest", "at {cut}");
        }
    }
}
