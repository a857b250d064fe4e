//! Which requests are kept off the HTTP/2 connections that others share: those over which a server may
//! end its connection, and with it all that is under way there.

use http::{HeaderMap, HeaderName, HeaderValue, Version, header};

use super::UpstreamRequest;

/// The size of a head from which on servers may end an HTTP/2 connection over it, as nginx does: RFC 9113
/// section 10.5.1 leaves that to them. Most take this much.
const LARGE_HEAD: usize = 8 * 1024;

impl UpstreamRequest<'_> {
    /// Whether the request is to have a connection for itself, where that can be had.
    pub(super) fn goes_alone(&self, headers: &HeaderMap, bodiless: bool) -> bool {
        head_size(self.target, headers) > LARGE_HEAD
            || (!bodiless && self.announces_trailers(headers))
    }

    /// Whether the client says that trailers come behind the body: RFC 9110 section 6.6.2. nginx ends the
    /// connection over any. Those of HTTP/1.1 go no further.
    pub(super) fn announces_trailers(&self, headers: &HeaderMap) -> bool {
        self.outbound.protocol.version == Version::HTTP_2 && headers.contains_key(header::TRAILER)
    }
}

/// What the client has sent of a head. Weir adds little to it.
fn head_size(target: &[u8], headers: &HeaderMap) -> usize {
    let size = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len();
    target.len() + headers.iter().map(size).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_counts_as_the_fields_do() {
        let mut headers = HeaderMap::new();
        headers.insert("x-a", HeaderValue::from_static("12345"));
        headers.append("x-a", HeaderValue::from_static("1"));
        assert_eq!(head_size(b"/?q=1", &headers), 5 + 8 + 4);
    }
}
