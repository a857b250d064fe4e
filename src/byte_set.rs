//! Sets of bytes, made when Weir is compiled: texts that come with every request are checked against
//! them byte by byte.

/// The letters and digits of ASCII, and these.
pub(crate) const fn letters_digits_and(others: &[u8]) -> [bool; 256] {
    let mut set = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        set[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut at = 0;
    while at < others.len() {
        set[others[at] as usize] = true;
        at += 1;
    }
    set
}
