//! Headers by which a proxy describes its client, and which upstreams trust.

use crate::support::{Config, Upstream, Weir, get_with};

/// Headers by which proxies describe a client's address, scheme, host or path, or who it is.
const CLAIMS: [&str; 43] = [
    "X-Forwarded-Ssl",
    "X-Forwarded-Scheme",
    "X-Forwarded-Server",
    "X-Forwarded-Port",
    "X-Forwarded-Prefix",
    "X-Forwarded-User",
    "X-Client-IP",
    "Client-IP",
    "True-Client-IP",
    "X-Real-IP",
    "X-Cluster-Client-IP",
    "CF-Connecting-IP",
    "Front-End-Https",
    "X-Original-URL",
    "X-Original-Host",
    "X-URL-Scheme",
    "X-Rewrite-URL",
    "CF-Visitor",
    "CF-Connecting-IPv6",
    "Fastly-Client-IP",
    "X-Azure-ClientIP",
    "X-Azure-SocketIP",
    "X-AppEngine-User-IP",
    "X-AppEngine-Remote-Addr",
    "CloudFront-Viewer-Address",
    "Incap-Client-IP",
    "Ali-CDN-Real-IP",
    "CDN-Src-IP",
    "X-ProxyUser-IP",
    "X-Remote-IP",
    "X-Remote-Addr",
    "Remote-Addr",
    "X-Originating-IP",
    "X-Host",
    "X-Envoy-Original-Path",
    "X-Envoy-Internal",
    "X-Envoy-External-Address",
    "X-Original-Path",
    "X-Original-Remote-Addr",
    "Remote-User",
    "X-Remote-User",
    "X-SSL-Client-Cert",
    "X-SSL-Client-Verify",
];

const TRUSTING: &str = "[identity]\ntrusted_proxies = [\"127.0.0.1\"]";

/// Whether the upstream sees a header that the client sends.
fn arrives(upstream: &Upstream, weir: &Weir, name: &str) -> bool {
    assert_eq!(weir.ask(get_with("/", &format!("{name}: 1\r\n"))).status, 200, "{name}");
    upstream.last().has(name)
}

#[test]
fn untrusted_peer_sets_no_client_headers() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&Config::to(&upstream).open());
    for name in CLAIMS {
        assert!(!arrives(&upstream, &weir, name), "{name} went through");
        let disguised = name.replace('-', "_");
        assert!(!arrives(&upstream, &weir, &disguised), "{disguised} went through");
    }
    for name in ["X-Client-Version", "X_Client_Version", "Proxy-Features", "X-Real-Estate"] {
        assert!(arrives(&upstream, &weir, name), "{name} claims nothing");
    }
}

#[test]
fn trusted_proxy_may_set_client_headers_under_their_exact_names() {
    let upstream = Upstream::ok();
    let weir = Weir::start(&Config::to(&upstream).open().also(TRUSTING));
    for name in CLAIMS {
        assert!(arrives(&upstream, &weir, name), "{name} was taken out");
        let disguised = name.replace('-', "_");
        assert!(!arrives(&upstream, &weir, &disguised), "{disguised} went through");
    }
}

#[test]
fn proxy_header_never_reaches_upstream() {
    // httpoxy: CGI turns `Proxy` into HTTP_PROXY, which clients of the program's own obey.
    let upstream = Upstream::ok();
    for more in ["", TRUSTING] {
        let weir = Weir::start(&Config::to(&upstream).open().also(more));
        assert!(!arrives(&upstream, &weir, "Proxy"), "with {more:?}");
    }
}

#[test]
fn marks_of_the_gateway_come_from_no_client() {
    let upstream = Upstream::ok();
    for more in ["", TRUSTING] {
        let weir = Weir::start(&Config::to(&upstream).open().also(more));
        for name in ["X-Weir-Warning", "X_Weir_Warning", "X-Weir-Degraded", "X-Weir_Degraded"] {
            assert!(!arrives(&upstream, &weir, name), "{name} with {more:?}");
        }
    }
}

#[test]
fn identity_header_in_use_is_passed_on() {
    let upstream = Upstream::ok();
    let limit = "key = \"header:x-forwarded-user\"\nrate = \"1/hour\"\nburst = 5";
    let weir = Weir::start(&Config::to(&upstream).limit(limit));
    assert!(arrives(&upstream, &weir, "X-Forwarded-User"));
    assert!(!arrives(&upstream, &weir, "X_Forwarded_User"));
    assert!(!arrives(&upstream, &weir, "X-Forwarded-Email"));
}
