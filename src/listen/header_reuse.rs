//! The map of fields that one request of a connection after another is read into.
//!
//! It is large, so it is used again; but a connection may stay idle for long, and does not keep what
//! the largest of its heads took.

use http::HeaderMap;

/// Room for so many fields is kept: more than browsers send and servers answer with.
const KEPT_FIELDS: usize = 64;
/// What the map has room for once it has held so many names.
const KEPT_CAPACITY: usize = 96;

/// Empties the map for the next request. `most_fields`: how many it has held at a time.
pub(super) fn clear(headers: &mut HeaderMap, most_fields: usize) {
    // The map has room for names, which is its capacity, and apart from that for further values of one
    // name, which it does not tell: hence the number of fields.
    if most_fields > KEPT_FIELDS || headers.capacity() > KEPT_CAPACITY {
        *headers = HeaderMap::new();
    } else if !headers.is_empty() {
        // That of a refusal mostly is: it is a new one, and the request's is gone. To clear it is not free.
        headers.clear();
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    /// A map that has held so many fields, of so many names.
    fn used(fields: usize, names: usize) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for number in 0..fields {
            let name = HeaderName::try_from(format!("x-{}", number % names)).unwrap();
            headers.append(name, HeaderValue::from_static("1"));
        }
        headers
    }

    #[test]
    fn what_a_large_head_took_is_not_kept() {
        for names in [100, 1] {
            let mut headers = used(100, names);
            clear(&mut headers, 100);
            assert_eq!(headers.capacity(), 0, "{names}");
        }
        // The response has taken its place.
        let mut headers = used(100, 100);
        headers.clear();
        headers.insert("x-a", HeaderValue::from_static("1"));
        clear(&mut headers, 1);
        assert_eq!(headers.capacity(), 0);
    }

    #[test]
    fn what_a_usual_head_took_serves_the_next() {
        let mut headers = used(20, 20);
        let before = headers.capacity();
        clear(&mut headers, 20);
        assert!(headers.is_empty() && headers.capacity() == before);
        let mut refused = HeaderMap::new();
        clear(&mut refused, 100);
        assert_eq!(refused.capacity(), 0);
    }
}
