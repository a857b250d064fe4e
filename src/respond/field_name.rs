//! The names of the header fields that Weir writes itself.
//!
//! They are few and known, so an answer stores a name as one byte and no codec has to hash or
//! allocate one.

use http::HeaderName;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};

use crate::field_class;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FieldName {
    CacheControl,
    ContentType,
    GrpcMessage,
    GrpcStatus,
    ProxyStatus,
    RateLimit,
    RateLimitPolicy,
    RateLimitLimit,
    RateLimitRemaining,
    RateLimitReset,
    RetryAfter,
    XRateLimitLimit,
    XRateLimitRemaining,
    XRateLimitReset,
    XWeirWarning,
}

impl FieldName {
    /// In the order of their numbers.
    pub const ALL: [FieldName; 15] = [
        FieldName::CacheControl,
        FieldName::ContentType,
        FieldName::GrpcMessage,
        FieldName::GrpcStatus,
        FieldName::ProxyStatus,
        FieldName::RateLimit,
        FieldName::RateLimitPolicy,
        FieldName::RateLimitLimit,
        FieldName::RateLimitRemaining,
        FieldName::RateLimitReset,
        FieldName::RetryAfter,
        FieldName::XRateLimitLimit,
        FieldName::XRateLimitRemaining,
        FieldName::XRateLimitReset,
        FieldName::XWeirWarning,
    ];

    /// As the documentation spells it. HTTP does not distinguish case; people do.
    pub const fn as_str(self) -> &'static str {
        match self {
            FieldName::CacheControl => "Cache-Control",
            FieldName::ContentType => "Content-Type",
            FieldName::GrpcMessage => "grpc-message",
            FieldName::GrpcStatus => "grpc-status",
            FieldName::ProxyStatus => "Proxy-Status",
            FieldName::RateLimit => "RateLimit",
            FieldName::RateLimitPolicy => "RateLimit-Policy",
            FieldName::RateLimitLimit => "RateLimit-Limit",
            FieldName::RateLimitRemaining => "RateLimit-Remaining",
            FieldName::RateLimitReset => "RateLimit-Reset",
            FieldName::RetryAfter => "Retry-After",
            FieldName::XRateLimitLimit => "X-RateLimit-Limit",
            FieldName::XRateLimitRemaining => "X-RateLimit-Remaining",
            FieldName::XRateLimitReset => "X-RateLimit-Reset",
            FieldName::XWeirWarning => "X-Weir-Warning",
        }
    }

    /// The same for a header map.
    pub const fn header(self) -> HeaderName {
        match self {
            FieldName::CacheControl => CACHE_CONTROL,
            FieldName::ContentType => CONTENT_TYPE,
            FieldName::GrpcMessage => HeaderName::from_static("grpc-message"),
            FieldName::GrpcStatus => HeaderName::from_static("grpc-status"),
            FieldName::ProxyStatus => HeaderName::from_static("proxy-status"),
            FieldName::RateLimit => HeaderName::from_static("ratelimit"),
            FieldName::RateLimitPolicy => HeaderName::from_static("ratelimit-policy"),
            FieldName::RateLimitLimit => HeaderName::from_static("ratelimit-limit"),
            FieldName::RateLimitRemaining => HeaderName::from_static("ratelimit-remaining"),
            FieldName::RateLimitReset => HeaderName::from_static("ratelimit-reset"),
            FieldName::RetryAfter => RETRY_AFTER,
            FieldName::XRateLimitLimit => HeaderName::from_static("x-ratelimit-limit"),
            FieldName::XRateLimitRemaining => HeaderName::from_static("x-ratelimit-remaining"),
            FieldName::XRateLimitReset => HeaderName::from_static("x-ratelimit-reset"),
            FieldName::XWeirWarning => field_class::WARNING,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_its_number_and_one_spelling() {
        for (number, name) in FieldName::ALL.into_iter().enumerate() {
            assert_eq!(name as usize, number, "{name:?}");
            assert_eq!(name.header().as_str(), name.as_str().to_ascii_lowercase(), "{name:?}");
        }
    }
}
