//! Which requests are kept off the HTTP/2 connections that others share: those over which a server may
//! end its connection, and with it all that is under way there.

use http::{HeaderMap, HeaderName, HeaderValue, Version, header};

use super::UpstreamRequest;
use crate::upstream::ConnectionSharing;

/// The size of a head from which on servers may end an HTTP/2 connection over it, as nginx does: RFC 9113
/// section 10.5.1 leaves that to them. Most take this much.
const LARGE_HEAD: usize = 8 * 1024;

impl UpstreamRequest<'_> {
    /// With whom the request may share its connection. Trailers are dropped where others share it.
    pub(super) fn sharing(&self, headers: &HeaderMap, bodiless: bool) -> ConnectionSharing {
        if head_size(self.target, headers) > LARGE_HEAD {
            ConnectionSharing::Alone
        } else if !bodiless && self.announces_trailers(headers) {
            ConnectionSharing::PreferablyAlone
        } else {
            ConnectionSharing::Shared
        }
    }

    /// Whether the client says that trailers come behind the body: RFC 9110 section 6.6.2. nginx ends the
    /// connection over any. Those of HTTP/1.1 go no further.
    pub(super) fn announces_trailers(&self, headers: &HeaderMap) -> bool {
        self.outbound.protocol.version == Version::HTTP_2 && headers.contains_key(header::TRAILER)
    }
}

/// What the client has sent of a head. Weir adds little to it. Nothing is counted for a field beside its
/// name and value, unlike in a response: servers bound the text of a head, and a request with many small
/// fields need not be alone.
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
