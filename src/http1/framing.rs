//! How long a message is: RFC 9112 section 6, without its leniencies.

use http::HeaderMap;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};

/// The largest length: beyond it, a reader with signed numbers would see a negative one.
pub(super) const MAX_LENGTH: u64 = i64::MAX as u64;

/// How the end of a body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    Empty,
    Length(u64),
    Chunked,
    /// Responses only: the body ends where the connection does.
    UntilClose,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FramingError {
    #[error("content-length is not one decimal number")]
    BadLength,
    #[error("content-length and transfer-encoding together")]
    LengthAndCoding,
    #[error("transfer-encoding is not exactly chunked")]
    UnknownCoding,
    #[error("transfer-encoding in an HTTP/1.0 message")]
    CodingInHttp10,
}

impl Framing {
    /// The framing that the header itself states, if any.
    ///
    /// # Errors
    /// If two readers could disagree about it.
    pub fn stated(headers: &HeaderMap, http10: bool) -> Result<Option<Framing>, FramingError> {
        let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
        if let Some(one) = codings.next() {
            if http10 {
                return Err(FramingError::CodingInHttp10);
            }
            if headers.contains_key(CONTENT_LENGTH) {
                return Err(FramingError::LengthAndCoding);
            }
            let is_chunked = one.as_bytes().eq_ignore_ascii_case(b"chunked");
            return match codings.next() {
                None if is_chunked => Ok(Some(Framing::Chunked)),
                _ => Err(FramingError::UnknownCoding),
            };
        }
        let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
        match (lengths.next(), lengths.next()) {
            (None, _) => Ok(None),
            (Some(one), None) => match parse_length(one.as_bytes()) {
                Some(length) => Ok(Some(Framing::Length(length))),
                None => Err(FramingError::BadLength),
            },
            _ => Err(FramingError::BadLength),
        }
    }
}

/// Digits only: no sign, no space, no list, and no more than anyone's signed number holds.
fn parse_length(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |sum, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit).filter(|sum| *sum <= MAX_LENGTH)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn stated(headers: &[(&'static str, &'static str)]) -> Result<Option<Framing>, FramingError> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        Framing::stated(&map, false)
    }

    #[test]
    fn a_length_is_one_plain_decimal_number() {
        assert_eq!(stated(&[("content-length", "42")]), Ok(Some(Framing::Length(42))));
        for bad in [
            "",
            "+5",
            "-1",
            "0x5",
            "1_0",
            "5, 5",
            "1 0",
            "9223372036854775808",
            "18446744073709551616",
        ] {
            assert_eq!(stated(&[("content-length", bad)]), Err(FramingError::BadLength), "{bad}");
        }
    }

    #[test]
    fn a_repeated_length_is_refused_even_when_equal() {
        let twice = [("content-length", "5"), ("content-length", "5")];
        assert_eq!(stated(&twice), Err(FramingError::BadLength));
    }

    #[test]
    fn only_chunked_alone_is_a_coding() {
        assert_eq!(stated(&[("transfer-encoding", "Chunked")]), Ok(Some(Framing::Chunked)));
        for bad in ["gzip, chunked", "chunked, chunked", "identity", "xchunked", ""] {
            let got = stated(&[("transfer-encoding", bad)]);
            assert_eq!(got, Err(FramingError::UnknownCoding), "{bad}");
        }
        let twice = [("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")];
        assert_eq!(stated(&twice), Err(FramingError::UnknownCoding));
    }

    #[test]
    fn a_length_beside_a_coding_is_refused() {
        let both = [("content-length", "5"), ("transfer-encoding", "chunked")];
        assert_eq!(stated(&both), Err(FramingError::LengthAndCoding));
    }
}
