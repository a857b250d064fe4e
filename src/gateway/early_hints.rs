//! `103 Early Hints` on their way from an upstream to a client that can take them (RFC 8297).
//!
//! The exchange with the upstream puts them here, and the connection of the client takes them before
//! the answer. A connection that has no use for them never asks for any, and they are dropped.

use std::cell::{Cell, RefCell};

use http::HeaderMap;

/// What the hints for one request may have in all. How many there are is bounded where they are read.
const MAX_BYTES: usize = 16 * 1024;

#[derive(Debug, Default)]
pub struct EarlyHints {
    wanted: Cell<bool>,
    bytes: Cell<usize>,
    pending: RefCell<Vec<HeaderMap>>,
}

impl EarlyHints {
    /// Says that the client can take hints. One that speaks HTTP/1.0 must not be sent any: RFC 9110
    /// section 15.2.
    pub fn accept(&self) {
        self.wanted.set(true);
    }

    pub fn is_wanted(&self) -> bool {
        self.wanted.get()
    }

    /// Adds the fields of one response. Those that are too many bytes are left out.
    pub fn push(&self, fields: HeaderMap) {
        let size = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
            name.as_str().len() + value.len() + ": \r\n".len()
        };
        let bytes = self.bytes.get() + fields.iter().map(size).sum::<usize>();
        if !self.wanted.get() || fields.is_empty() || bytes > MAX_BYTES {
            return;
        }
        self.bytes.set(bytes);
        self.pending.borrow_mut().push(fields);
    }

    /// What came since the last time, each to be a response of its own.
    pub fn take(&self) -> Vec<HeaderMap> {
        self.pending.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use http::header::LINK;

    fn fields(length: usize) -> HeaderMap {
        let value = HeaderValue::try_from("a".repeat(length)).expect("letters");
        [(LINK, value)].into_iter().collect()
    }

    #[test]
    fn hints_are_kept_only_for_a_client_that_can_take_them() {
        let hints = EarlyHints::default();
        hints.push(fields(1));
        assert!(hints.take().is_empty());
        hints.accept();
        hints.push(fields(1));
        hints.push(fields(2));
        hints.push(HeaderMap::new());
        assert_eq!(hints.take().len(), 2);
        assert!(hints.take().is_empty());
    }

    #[test]
    fn hints_have_a_bounded_size_in_all() {
        let hints = EarlyHints::default();
        hints.accept();
        for _ in 0..10 {
            hints.push(fields(MAX_BYTES / 3));
        }
        assert_eq!(hints.take().len(), 2);
        hints.push(fields(MAX_BYTES / 3));
        assert!(hints.take().is_empty(), "what was sent counts as well");
    }
}
