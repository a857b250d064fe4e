//! As much of MessagePack as the scripts speak: arrays and whole numbers.

use rmp::decode::{read_array_len, read_int};
use rmp::encode::{write_array_len, write_uint};

/// Writes the head of an array of so many elements.
pub(crate) fn array(out: &mut Vec<u8>, length: usize) {
    // Writing to memory does not fail.
    let _ = write_array_len(out, length as u32);
}

pub(crate) fn number(out: &mut Vec<u8>, number: u64) {
    let _ = write_uint(out, number);
}

/// Reads what is left of a message. `None` is something else than was asked for.
#[derive(Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl Reader<'_> {
    pub(crate) fn array(&mut self) -> Option<usize> {
        read_array_len(&mut self.0).ok().map(|length| length as usize)
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        read_int(&mut self.0).ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
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
