//! The head of a request as HTTP/2 has it.

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri, Version, header};

use super::UpstreamRequest;
use super::headers::FieldSink;
use crate::respond::Fault;
use crate::upstream::Server;

impl UpstreamRequest<'_> {
    /// `sends_trailers`: those that come behind the body are passed on.
    ///
    /// # Errors
    /// If host or path have no form in HTTP/2.
    pub(super) fn http2_head(
        &self,
        server: &Server,
        headers: &HeaderMap,
        sends_trailers: bool,
    ) -> Result<Request<()>, Fault> {
        let mut fields = Http2Fields {
            fields: HeaderMap::with_capacity(headers.len() + 8),
            key_headers: &self.outbound.fields.rules.key_headers,
        };
        self.outbound.write_to(headers, &mut fields);
        let mut fields = fields.fields;
        if self.outbound.protocol.version == Version::HTTP_2 && accepts_trailers(headers) {
            fields.insert(header::TE, HeaderValue::from_static("trailers"));
        }
        // The next gateway may share its connections as this one does, and has to know as well.
        if sends_trailers && self.announces_trailers(headers) {
            for value in headers.get_all(header::TRAILER) {
                fields.append(header::TRAILER, value.clone());
            }
        }
        let host = self.outbound.host;
        let authority = if host.is_empty() { server.authority.as_str() } else { host };
        let authority = Authority::try_from(authority);
        let authority = authority.map_err(|_| Fault::Target("the host has no form in HTTP/2"))?;
        let path = PathAndQuery::try_from(self.target);
        let path = path.map_err(|_| Fault::Target("the path has no form in HTTP/2"))?;
        let mut uri = http::uri::Parts::default();
        uri.scheme = Some(if server.is_tls() { Scheme::HTTPS } else { Scheme::HTTP });
        uri.authority = Some(authority);
        uri.path_and_query = Some(path);
        let uri = Uri::from_parts(uri);
        let uri = uri.map_err(|_| Fault::Target("the target has no form in HTTP/2"))?;
        let mut head = Request::new(());
        *head.method_mut() = self.method.clone();
        *head.version_mut() = Version::HTTP_2;
        *head.uri_mut() = uri;
        *head.headers_mut() = fields;
        Ok(head)
    }
}

/// The fields of a head, of which `Host` is not one.
struct Http2Fields<'a> {
    fields: HeaderMap,
    key_headers: &'a [HeaderName],
}

impl Http2Fields<'_> {
    fn append(&mut self, name: &HeaderName, mut value: HeaderValue) {
        // Many callers share a connection, and so what it remembers to compress headers: no one must
        // be able to find out another's secret by guessing.
        if *name == header::AUTHORIZATION
            || *name == header::COOKIE
            || self.key_headers.contains(name)
        {
            value.set_sensitive(true);
        }
        self.fields.append(name.clone(), value);
    }
}

impl FieldSink for Http2Fields<'_> {
    fn keep(&mut self, name: &HeaderName, value: &HeaderValue) {
        self.append(name, value.clone());
    }

    fn write(&mut self, name: &HeaderName, value: &[u8]) {
        // It is `:authority` here.
        if *name == header::HOST {
            return;
        }
        // What is written is made of values.
        if let Ok(value) = HeaderValue::from_bytes(value) {
            self.append(name, value);
        }
    }
}

/// Whether the client wants to see trailers. gRPC servers ask for that.
fn accepts_trailers(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::TE).into_iter();
    let mut options = values.flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
    options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"trailers"))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn what_is_kept_is_not_copied_and_no_secret_is_indexed() {
        let value = HeaderValue::from_maybe_shared(Bytes::copy_from_slice(b"Bearer t")).unwrap();
        let key = HeaderName::from_static("x-api-key");
        let mut fields =
            Http2Fields { fields: HeaderMap::new(), key_headers: std::slice::from_ref(&key) };
        for name in [&header::AUTHORIZATION, &header::COOKIE, &key, &header::ACCEPT] {
            fields.keep(name, &value);
            let kept = &fields.fields[name];
            assert_eq!(kept.as_bytes().as_ptr(), value.as_bytes().as_ptr(), "{name}");
            assert_eq!(kept.is_sensitive(), *name != header::ACCEPT, "{name}");
        }
        fields.write(&header::HOST, b"weir.test");
        fields.write(&header::VIA, b"1.1 weir-1");
        assert!(!fields.fields.contains_key(header::HOST), "it is `:authority`");
        assert_eq!(fields.fields[header::VIA], "1.1 weir-1");
        // Whoever said that a value must not be indexed is heard.
        let mut value = HeaderValue::from_static("s");
        value.set_sensitive(true);
        fields.keep(&header::REFERER, &value);
        assert!(fields.fields[header::REFERER].is_sensitive());
    }
}
