//! As much of MessagePack as the scripts speak: arrays and whole numbers.

/// Writes the head of an array of so many elements.
pub(super) fn array(out: &mut Vec<u8>, length: usize) {
    match length {
        0..=15 => out.push(0x90 | length as u8),
        16..=0xffff => {
            out.push(0xdc);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        _ => {
            out.push(0xdd);
            out.extend_from_slice(&(length as u32).to_be_bytes());
        }
    }
}

pub(super) fn number(out: &mut Vec<u8>, number: u64) {
    match number {
        0..=0x7f => out.push(number as u8),
        0x80..=0xff => out.extend_from_slice(&[0xcc, number as u8]),
        0x100..=0xffff => {
            out.push(0xcd);
            out.extend_from_slice(&(number as u16).to_be_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            out.push(0xce);
            out.extend_from_slice(&(number as u32).to_be_bytes());
        }
        _ => {
            out.push(0xcf);
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
}

/// Reads what is left of a message. `None` is something else than was asked for.
#[derive(Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl Reader<'_> {
    pub(super) fn array(&mut self) -> Option<usize> {
        match self.byte()? {
            head @ 0x90..=0x9f => Some(usize::from(head & 0x0f)),
            0xdc => self.be(2).map(|length| length as usize),
            0xdd => self.be(4).map(|length| length as usize),
            _ => None,
        }
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        match self.byte()? {
            number @ 0..=0x7f => Some(u64::from(number)),
            0xcc => self.be(1),
            0xcd => self.be(2),
            0xce => self.be(4),
            0xcf => self.be(8),
            _ => None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn be(&mut self, bytes: usize) -> Option<u64> {
        let (number, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(number.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let edges = [0x7f, 0x80, 0xff, 0x100, 0xffff, 0x1_0000, 0xffff_ffff, 1 << 32, u64::MAX];
        let mut bytes = Vec::new();
        for edge in edges {
            number(&mut bytes, edge);
        }
        for length in [0, 15, 16, 0xffff, 0x1_0000] {
            array(&mut bytes, length);
        }
        let mut reader = Reader(&bytes);
        for edge in edges {
            assert_eq!(reader.number(), Some(edge));
        }
        for length in [0, 15, 16, 0xffff, 0x1_0000] {
            assert_eq!(reader.array(), Some(length));
        }
        assert!(reader.is_empty());
    }

    #[test]
    fn nothing_else_is_read() {
        // Nothing at all, a negative number, a double, a string, and numbers that are cut off.
        let others: [&[u8]; 6] =
            [b"", b"\xff", b"\xcb\0\0\0\0\0\0\0\0", b"\xa1x", b"\xcd\x01", b"\xcf\0\0"];
        for bytes in others {
            assert_eq!(Reader(bytes).number(), None, "{bytes:x?}");
        }
        assert_eq!(Reader(b"\x01").array(), None);
        assert_eq!(Reader(b"\xdd\0\0").array(), None);
    }
}
