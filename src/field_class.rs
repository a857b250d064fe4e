//! What the name of a header field means to a gateway, whoever sends the field.
//!
//! The one list of these names: the heads of requests, trailers and names in the configuration all ask
//! here, so that what one of them withholds no other lets pass.

use http::HeaderName;

/// Names the limits that did not admit a request which is forwarded all the same.
pub(crate) const X_WEIR_DEGRADED: &str = "x-weir-degraded";
/// Names the guards that warn of a caller.
pub(crate) const X_WEIR_WARNING: &str = "x-weir-warning";

pub(crate) const DEGRADED: HeaderName = HeaderName::from_static(X_WEIR_DEGRADED);
pub(crate) const WARNING: HeaderName = HeaderName::from_static(X_WEIR_WARNING);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldClass {
    /// Of one hop, RFC 9110 section 7.6.1, or written anew for the next one.
    Hop,
    /// One by which some frameworks replace the method.
    MethodOverride,
    /// Says who calls or what the body is. Limits may be keyed by it.
    Counted,
    /// The id of a request or of a trace.
    Id,
    /// [`X_WEIR_DEGRADED`]
    Degraded,
    /// [`X_WEIR_WARNING`]
    Warning,
    /// One by which proxies tell upstreams of their client: address, scheme, host, who it is, or the
    /// path it asked for, which would bypass its route. Only trusted proxies may send these.
    Claim,
    Other,
}

impl FieldClass {
    /// Of a name in lower case.
    #[inline]
    pub(crate) fn of(name: &str) -> Self {
        match name {
            "host"
            | "connection"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authorization"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
            | "content-length"
            | "expect"
            | "via"
            | "forwarded"
            | "x-forwarded-for" => FieldClass::Hop,
            "x-forwarded-proto" | "x-forwarded-host" => FieldClass::Hop,
            // CGI would make HTTP_PROXY of it, which the program's own requests would obey.
            "proxy" => FieldClass::Hop,
            "x-http-method-override" | "x-http-method" | "x-method-override" | "x-method" => {
                FieldClass::MethodOverride
            }
            "authorization" | "cookie" | "content-type" | "content-encoding" => FieldClass::Counted,
            "x-request-id" | "traceparent" | "tracestate" => FieldClass::Id,
            X_WEIR_DEGRADED => FieldClass::Degraded,
            X_WEIR_WARNING => FieldClass::Warning,
            _ if is_claim(name) => FieldClass::Claim,
            _ => FieldClass::Other,
        }
    }
}

/// Whether two names are one to CGI and its like, which do not distinguish `_` from `-`.
pub(crate) fn is_look_alike(name: &str, other: &str) -> bool {
    let meant = |byte: u8| if byte == b'_' { b'-' } else { byte };
    let same = |(byte, other): (u8, u8)| meant(byte) == meant(other);
    name.len() == other.len() && name.bytes().zip(other.bytes()).all(same)
}

fn is_claim(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("x-") else {
        return matches!(
            name,
            "client-ip"
                | "proxy-client-ip"
                | "wl-proxy-client-ip"
                | "fly-client-ip"
                | "forwarded-for"
                | "cf-connecting-ipv6"
                | "true-client-ip"
                | "cf-connecting-ip"
                | "cf-visitor"
                | "fastly-client-ip"
                | "incap-client-ip"
                | "ali-cdn-real-ip"
                | "cdn-src-ip"
                | "cloudfront-viewer-address"
                | "front-end-https"
                | "remote-addr"
                | "remote-user"
        );
    };
    match rest {
        "real-ip" | "client-ip" | "cluster-client-ip" | "proxyuser-ip" | "originating-ip" => true,
        "remote-ip" | "remote-addr" | "remote-user" => true,
        "original-url" | "original-uri" | "original-path" | "original-method" => true,
        "original-host" | "original-remote-addr" | "original-forwarded-for" => true,
        "envoy-original-path" | "envoy-internal" | "envoy-external-address" => true,
        "azure-clientip" | "azure-socketip" => true,
        "appengine-user-ip" | "appengine-remote-addr" => true,
        "forwarded" | "host" | "http-host-override" | "rewrite-url" => true,
        "scheme" | "url-scheme" => true,
        _ => rest.starts_with("forwarded-") || rest.starts_with("ssl-client-"),
    }
}
