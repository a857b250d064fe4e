//! Sending clients of plain listeners to HTTPS, where the configuration says so.
//!
//! A client is sent to the host that it asked for, and only if a certificate of the gateway is for that
//! host: so the host of a forged request leads nowhere.

use std::net::IpAddr;

use http::header::{HOST, HeaderMap, HeaderValue, LOCATION};
use http::{Response, StatusCode, Uri};

use crate::body::Body;
use crate::caller::address::UNIX_PEER;
use crate::caller::{Addresses, Peer};
use crate::config::settings::{self, HttpsPort, ListenAddress};
use crate::protocol::Scheme;
use crate::respond::{Answer, Content, Fault};
use crate::route::{bare_host, normalize};

/// Where authorities look for what proves that a host is ours, before it has a certificate: RFC 8555
/// section 8.3. It is served as any other path.
const CHALLENGES: &str = "/.well-known/acme-challenge/";
const FORWARDED_PROTO: &str = "x-forwarded-proto";

/// The answer to a request that came in the clear and should not have. `None`: it is served.
#[inline]
pub(super) fn answer(
    server: &settings::Server,
    addresses: &Addresses,
    peer: &Peer,
    scheme: Scheme,
    uri: &Uri,
    headers: &HeaderMap,
) -> Option<Result<Answer, Fault>> {
    let port = server.redirect_https?;
    if scheme == Scheme::Https || was_secure(addresses, peer.ip, headers) || is_exempt(uri) {
        return None;
    }
    Some(location(server, port, uri, headers).map(|location| {
        let mut response = Response::new(Content::Body(Body::empty()));
        *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
        response.headers_mut().insert(LOCATION, location);
        response.into()
    }))
}

/// Whether the request has come to a proxy by TLS already, or from this machine.
fn was_secure(addresses: &Addresses, peer: IpAddr, headers: &HeaderMap) -> bool {
    let says = || headers.get(FORWARDED_PROTO).is_some_and(|it| it.as_bytes() == b"https");
    peer == UNIX_PEER || (addresses.is_trusted(peer) && says())
}

fn is_exempt(uri: &Uri) -> bool {
    // What cannot be read is rejected where routes are found.
    normalize(uri.path())
        .map_or(true, |path| path.matched.as_bytes().starts_with(CHALLENGES.as_bytes()))
}

fn location(
    server: &settings::Server,
    port: HttpsPort,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<HeaderValue, Fault> {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let host = bare_host(host);
    let mut secure = server.listen.iter().filter(|it| it.tls.is_some());
    let name = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(&host);
    let covered = |it: &settings::Listener| it.tls.as_ref().is_some_and(|tls| tls.covers(name));
    let known = match secure.clone().next() {
        Some(_) => secure.clone().any(covered),
        // Somebody else has the certificates.
        None => true,
    };
    if host.is_empty() || !known {
        return Err(Fault::UnknownHost);
    }
    let port = match (port, secure.next().map(|it| &it.address)) {
        (HttpsPort::Port(port), _) => port,
        (HttpsPort::OfListener, Some(ListenAddress::Tcp(address))) => address.port(),
        (HttpsPort::OfListener, _) => 443,
    };
    let target = uri.path_and_query().map_or("/", |it| it.as_str());
    let slash = if target.starts_with('/') { "" } else { "/" };
    let location = match port {
        443 => format!("https://{host}{slash}{target}"),
        port => format!("https://{host}:{port}{slash}{target}"),
    };
    HeaderValue::try_from(location).map_err(|_| Fault::UnknownHost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    const ROUTE: &str = "[[routes]]\nname = \"r\"\npath = \"/*\"\nupstream = \"echo\"\n";

    /// Where a request goes: its status, and the Location or an empty text.
    fn redirected(server: &str, peer: &str, target: &str, lines: &[(&str, &str)]) -> (u16, String) {
        let text =
            format!("{ROUTE}[server]\n{server}\n[identity]\ntrusted_proxies = [\"10.0.0.1\"]");
        let settings = config::parse("c.toml", &text).unwrap().settings;
        let addresses = Addresses::new(&settings.identity);
        let peer = Peer::new(peer.parse().unwrap());
        let mut headers = HeaderMap::new();
        for &(name, value) in lines {
            headers.insert(http::HeaderName::try_from(name).unwrap(), value.parse().unwrap());
        }
        let uri = target.parse().unwrap();
        match answer(&settings.server, &addresses, &peer, Scheme::Http, &uri, &headers) {
            Some(answer) => {
                let answer = answer.unwrap_or_else(Answer::from);
                let location = answer.response.headers().get(LOCATION);
                let location = location.map_or("", |it| it.to_str().unwrap()).to_owned();
                (answer.response.status().as_u16(), location)
            }
            None => (0, String::new()),
        }
    }

    #[test]
    fn clients_are_sent_to_the_host_and_path_they_asked_for() {
        let go = |server, target, host| redirected(server, "9.9.9.9:1", target, &[("host", host)]);
        let to = |text: &str| (308, text.to_owned());
        let port = "redirect_https = 443";
        assert_eq!(go(port, "/a?b=c", "A.example:80"), to("https://a.example/a?b=c"));
        assert_eq!(go(port, "//b.example/", "a.example"), to("https://a.example//b.example/"));
        assert_eq!(go(port, "/", "[::1]:80"), to("https://[::1]/"));
        assert_eq!(go("redirect_https = 8443", "/", "a"), to("https://a:8443/"));
        assert_eq!(go(port, "/", ""), (400, String::new()));
        assert_eq!(go("redirect_https = false", "/", "a"), (0, String::new()));
    }

    #[test]
    fn challenges_and_what_was_secure_already_are_served() {
        let server = "redirect_https = 443";
        let served = (0, String::new());
        let host = ("host", "a");
        let untrusted = |target| redirected(server, "9.9.9.9:1", target, &[host]);
        assert_eq!(untrusted("/.well-known/acme-challenge/x"), served);
        assert_eq!(untrusted("/.well-known/acme-challenge/../x").0, 308);
        let lines = [host, ("x-forwarded-proto", "https")];
        assert_eq!(redirected(server, "10.0.0.1:1", "/", &lines), served);
        assert_eq!(redirected(server, "10.0.0.1:1", "/", &lines[..1]).0, 308);
        assert_eq!(redirected(server, "9.9.9.9:1", "/", &lines).0, 308);
        assert_eq!(redirected(server, "[::]:0", "/", &[host]), served);
    }
}
