//! By which protocol a request came: the version of HTTP, and whether TLS was under it.
//!
//! This goes with the request from the connection that read it to the headers that tell upstreams of
//! it. Nothing behind the connection asks for a version in any other way.

use http::Version;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protocol {
    pub version: Version,
    pub scheme: Scheme,
    /// Whether it is a call of gRPC, over HTTP/2.
    pub is_grpc: bool,
}

/// What is under HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// A plain TCP connection.
    Http,
    /// TLS.
    Https,
}

impl Protocol {
    /// The version as `Via` names it: RFC 9110 section 7.6.3.
    pub fn via_version(self) -> &'static str {
        match self.version {
            Version::HTTP_10 => "1.0",
            Version::HTTP_2 => "2",
            Version::HTTP_3 => "3",
            _ => "1.1",
        }
    }

    /// Whether `Upgrade` means anything: HTTP/1.0 does not have it (RFC 9110 section 7.8), and
    /// HTTP/2 has dropped it (RFC 9113 section 8.6).
    pub fn can_upgrade(self) -> bool {
        self.version == Version::HTTP_11
    }
}

impl Scheme {
    pub fn as_str(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_version_has_upgrades() {
        for (version, named, upgrades) in [
            (Version::HTTP_10, "1.0", false),
            (Version::HTTP_11, "1.1", true),
            (Version::HTTP_2, "2", false),
        ] {
            let protocol = Protocol { version, scheme: Scheme::Https, is_grpc: false };
            assert_eq!((protocol.via_version(), protocol.can_upgrade()), (named, upgrades));
        }
    }
}
