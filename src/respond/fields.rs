//! Header fields that Weir adds to an answer: names and values, in the form of no protocol.
//!
//! The rate headers go with every answer. In a header map each of them would be hashed and
//! allocated; here they share one recycled buffer, in which a field is the number of its name (one
//! byte), the length of its value (four bytes) and the value. The HTTP/1.1 connection writes them
//! out as they are; a codec that works on header maps, such as HTTP/2, uses [`Fields::append_to`].

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{FieldName, Scratch};

/// What stands before each value.
const PREFIX: usize = 5;

#[derive(Debug, Clone, Default)]
pub struct Fields(Scratch);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    pub name: FieldName,
    pub value: &'a [u8],
}

impl Fields {
    pub fn append(&mut self, other: &Fields) {
        self.0.extend_from_slice(&other.0);
    }

    /// A field whose value is known as it is.
    #[inline]
    pub fn add(&mut self, name: FieldName, value: &[u8]) {
        self.0.extend_from_slice(&prefix(name, value.len()));
        self.0.extend_from_slice(value);
    }

    pub fn add_number(&mut self, name: FieldName, value: u64) {
        match digit(value) {
            Some(digit) => self.add(name, &[digit]),
            None => self.add(name, itoa::Buffer::new().format(value).as_bytes()),
        }
    }

    /// A field whose value is written piece by piece. Text from outside has to be checked to be a
    /// legal value first.
    #[inline]
    pub fn add_with(&mut self, name: FieldName, write: impl FnOnce(&mut FieldValue<'_>)) {
        let start = self.0.len();
        self.0.extend_from_slice(&prefix(name, 0));
        write(&mut FieldValue(&mut self.0));
        let length = self.0.len() - start - PREFIX;
        self.0[start..start + PREFIX].copy_from_slice(&prefix(name, length));
    }

    /// In the order in which they were added.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Field<'_>> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let (&[name, length @ ..], behind) = rest.split_first_chunk::<PREFIX>()?;
            let length = u32::from_le_bytes(length) as usize;
            let (value, behind) = behind.split_at_checked(length)?;
            rest = behind;
            let name = *FieldName::ALL.get(usize::from(name))?;
            Some(Field { name, value })
        })
    }

    /// Takes out every field of this name.
    pub fn remove(&mut self, name: &HeaderName) {
        let mut kept = Fields::default();
        for field in self.iter().filter(|field| field.name.header() != *name) {
            kept.add(field.name, field.value);
        }
        *self = kept;
    }

    /// Adds them to a header map, for a codec that works on one.
    pub fn append_to(&self, headers: &mut HeaderMap) {
        for field in self.iter() {
            if let Ok(value) = HeaderValue::from_bytes(field.value) {
                headers.append(field.name.header(), value);
            }
        }
    }
}

fn prefix(name: FieldName, length: usize) -> [u8; PREFIX] {
    let [a, b, c, d] = u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
    [name as u8, a, b, c, d]
}

/// The value of the field that is being added.
#[derive(Debug)]
pub struct FieldValue<'a>(&'a mut Vec<u8>);

impl FieldValue<'_> {
    #[inline]
    pub fn text(&mut self, text: &[u8]) -> &mut Self {
        self.0.extend_from_slice(text);
        self
    }

    #[inline]
    pub fn number(&mut self, value: u64) -> &mut Self {
        match digit(value) {
            Some(digit) => {
                self.0.push(digit);
                self
            }
            None => self.text(itoa::Buffer::new().format(value).as_bytes()),
        }
    }
}

/// A number of one digit, as what is left mostly is in a refusal.
#[inline]
fn digit(value: u64) -> Option<u8> {
    (value < 10).then(|| b'0' + value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Fields {
        let mut fields = Fields::default();
        fields.add(FieldName::RateLimit, b"a: b");
        fields.add(FieldName::RateLimitPolicy, b"");
        fields.add_number(FieldName::RetryAfter, 5);
        fields
    }

    #[test]
    fn fields_come_back_in_order() {
        let (mut fields, mut more) = (some(), Fields::default());
        more.add_with(FieldName::GrpcStatus, |value| {
            value.number(9).text(b", ").number(10);
        });
        more.add_number(FieldName::XRateLimitRemaining, 0);
        more.add_number(FieldName::XRateLimitReset, u64::MAX);
        fields.append(&more);
        let expected = [
            (FieldName::RateLimit, &b"a: b"[..]),
            (FieldName::RateLimitPolicy, b""),
            (FieldName::RetryAfter, b"5"),
            (FieldName::GrpcStatus, b"9, 10"),
            (FieldName::XRateLimitRemaining, b"0"),
            (FieldName::XRateLimitReset, b"18446744073709551615"),
        ];
        let expected = expected.map(|(name, value)| Field { name, value });
        assert!(fields.iter().eq(expected), "{fields:?}");
    }

    #[test]
    fn a_field_is_removed_by_its_whole_name() {
        let mut fields = some();
        fields.remove(&FieldName::RateLimit.header());
        fields.remove(&http::header::ALLOW);
        let names: Vec<_> = fields.iter().map(|field| field.name).collect();
        assert_eq!(names, [FieldName::RateLimitPolicy, FieldName::RetryAfter]);
    }

    #[test]
    fn fields_become_entries_of_a_header_map() {
        let mut headers = HeaderMap::new();
        headers.insert("ratelimit", HeaderValue::from_static("theirs"));
        some().append_to(&mut headers);
        let values: Vec<_> = headers.get_all("ratelimit").iter().collect();
        assert_eq!(values, ["theirs", "a: b"]);
        assert_eq!(headers["retry-after"], "5");
        assert_eq!(headers.len(), 4);
    }
}
