//! Header fields that Weir writes itself, kept as text.
//!
//! The rate headers go with every answer. As entries of a header map each of them would be
//! hashed, stored and written out again; as text they are written once and copied once.

use super::Scratch;

/// Whole lines, each `Name: value` with its line end.
#[derive(Debug, Default)]
pub struct Fields(Scratch);

impl Fields {
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn append(&mut self, other: &Fields) {
        self.text(&other.0);
    }

    /// Takes out every field of this name, however it is written.
    pub fn remove(&mut self, name: &str) {
        let mut kept = Scratch::new();
        for line in self.0.split_inclusive(|&byte| byte == b'\n') {
            let named = line.split(|&byte| byte == b':').next().unwrap_or_default();
            if !named.eq_ignore_ascii_case(name.as_bytes()) {
                kept.extend_from_slice(line);
            }
        }
        self.0 = kept;
    }

    /// A field whose value is known as it is.
    pub fn add(&mut self, name: &'static str, value: &[u8]) {
        self.open(name).text(value);
        self.close();
    }

    pub fn add_number(&mut self, name: &'static str, value: u64) {
        self.open(name).number(value);
        self.close();
    }

    /// Starts a field whose value is written piece by piece. Nothing that is written may come
    /// from outside unless it has been checked to be a legal value.
    pub fn open(&mut self, name: &'static str) -> &mut Self {
        self.text(name.as_bytes()).text(b": ")
    }

    pub fn text(&mut self, text: &[u8]) -> &mut Self {
        self.0.extend_from_slice(text);
        self
    }

    pub fn number(&mut self, value: u64) -> &mut Self {
        self.text(itoa::Buffer::new().format(value).as_bytes())
    }

    pub fn close(&mut self) {
        self.text(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_removed_by_its_whole_name() {
        let mut fields = Fields::default();
        fields.add("RateLimit", b"a: b");
        fields.add("RateLimit-Policy", b"c");
        fields.add_number("Retry-After", 5);
        fields.remove("ratelimit");
        fields.remove("absent");
        assert_eq!(fields.as_bytes(), b"RateLimit-Policy: c\r\nRetry-After: 5\r\n");
    }
}
