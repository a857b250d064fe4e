//! Which slot of a cluster a key lies in: CRC16 of its hash tag, or of all of it.

/// The polynomial of CRC16/XMODEM, applied to every byte beforehand.
const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

pub(super) const SLOTS: u16 = 16_384;

pub(super) fn slot(key: &[u8]) -> u16 {
    let step = |crc: u16, byte: &u8| crc << 8 ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)];
    tag(key).unwrap_or(key).iter().fold(0, step) % SLOTS
}

/// What stands between the first `{` and the next `}`, unless that is nothing. Only a prefix from
/// the configuration can have one.
fn tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|byte| *byte == b'{')? + 1;
    let length = key[open..].iter().position(|byte| *byte == b'}')?;
    Some(&key[open..open + length]).filter(|tag| !tag.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_that_redis_finds() {
        // From the cluster specification, and from CLUSTER KEYSLOT.
        assert_eq!(slot(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b""), 0);
    }

    #[test]
    fn a_tag_stands_for_the_key() {
        assert_eq!(slot(b"{weir}:per-ip:a"), slot(b"weir"));
        assert_eq!(slot(b"foo{bar}{zap}"), slot(b"bar"));
        assert_ne!(slot(b"foo{}bar"), slot(b""));
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
    }
}
