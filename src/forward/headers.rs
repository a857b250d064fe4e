//! Which headers reach the upstream, and which come back.

use http::header::{self, HeaderMap, HeaderName};
use smallvec::SmallVec;

use crate::caller::{Caller, Peer};
use crate::config::settings::HeaderEdits;
use crate::http1::head::Noted;

const FORWARDED: HeaderName = header::FORWARDED;
const X_FORWARDED_FOR: HeaderName = crate::caller::address::X_FORWARDED_FOR;
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// What is added to and taken from a request's headers on their way out.
#[derive(Debug)]
pub struct Outbound<'a> {
    pub peer: &'a Peer,
    pub caller: &'a Caller,
    /// As the client asked for it; empty if it did not.
    pub host: &'a str,
    /// This process's name on the way: `weir-…`.
    pub via: &'a str,
    /// The version in which the request came, as `Via` names it.
    pub received: &'a str,
    /// Whether others are named there already.
    pub has_via: bool,
    pub edits: &'a HeaderEdits,
    /// The one header in which trusted proxies name their caller, if one is named.
    pub address_header: Option<&'a HeaderName>,
    /// The headers that callers are told apart by: a client must not be able to strip one.
    pub counted: &'a [HeaderName],
    /// Those of them that have a `_`, written with `-`: some upstreams cannot tell the two apart.
    pub doubles: &'a [String],
    /// Whether routes or limits depend on the method, so that no other header may change it.
    pub by_method: bool,
    /// Whether requests may be marked as degraded: then the mark is the gateway's own.
    pub degrades: bool,
    pub upgrade: bool,
}

impl Outbound<'_> {
    /// Hands every header that the upstream is to see to `written`, except those that frame the body.
    pub fn visit(&self, headers: &HeaderMap, mut written: impl FnMut(&HeaderName, &[u8])) {
        let listed = listed(headers);
        let edited = !(self.edits.set.is_empty() && self.edits.remove.is_empty());
        // The route has the last word on whatever it names.
        let mut put = |name: &HeaderName, value: &[u8]| {
            if !edited || !self.is_edited(name) {
                written(name, value);
            }
        };
        if !self.host.is_empty() {
            put(&header::HOST, self.host.as_bytes());
        }
        for (name, value) in headers {
            if !self.is_withheld(name, &listed) {
                put(name, value.as_bytes());
            }
        }
        if self.upgrade {
            put(&header::CONNECTION, b"Upgrade");
            if let Some(protocol) = headers.get(header::UPGRADE) {
                put(&header::UPGRADE, protocol.as_bytes());
            }
        }
        self.forwarding(headers, &mut put);
        for (name, value) in &self.edits.set {
            written(name, value.as_bytes());
        }
    }

    fn is_edited(&self, name: &HeaderName) -> bool {
        self.edits.remove.contains(name) || self.edits.set.iter().any(|(set, _)| set == name)
    }

    fn is_withheld(&self, name: &HeaderName, listed: &[&[u8]]) -> bool {
        let is_listed =
            |text: &str| listed.iter().any(|name| name.eq_ignore_ascii_case(text.as_bytes()));
        match name.as_str() {
            // Hop by hop, or written anew for the next hop: RFC 9110 section 7.6.1.
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
            | "x-forwarded-for" => true,
            "x-forwarded-proto" | "x-forwarded-host" => true,
            // CGI would make HTTP_PROXY of it, which the program's own requests would obey.
            "proxy" => true,
            "x-http-method-override" | "x-http-method" | "x-method-override" => self.by_method,
            // What callers were told apart by is not for a client to take away again.
            "authorization" | "cookie" | "content-type" | "content-encoding" => false,
            "x-weir-degraded" if self.degrades => false,
            // Only a gateway says so.
            "x-weir-degraded" | "x-weir-warning" => true,
            // CGI and its heirs cannot tell `_` from `-`: what must not come from a client must
            // not come in disguise either.
            text if text.contains('_') && self.is_disguised(text) => true,
            // The upstream may believe it as we do.
            _ if self.address_header == Some(name) => !self.caller.via_trusted,
            text if !self.caller.via_trusted && is_claim(text) => !self.counted.contains(name),
            text => {
                (is_listed(text) && !self.counted.contains(name))
                    || self.doubles.iter().any(|double| double == text)
            }
        }
    }

    fn is_disguised(&self, text: &str) -> bool {
        let meant = text.replace('_', "-");
        match meant.as_str() {
            "content-length" | "transfer-encoding" | "host" | "connection" => true,
            "via" | "forwarded" => true,
            "x-http-method-override" | "x-http-method" | "x-method-override" => self.by_method,
            "x-weir-degraded" => self.degrades,
            _ if is_claim(&meant) => true,
            // What the route sets or removes is not for the client to say.
            _ if self.edits.remove.iter().any(|name| name.as_str() == meant) => true,
            _ if self.edits.set.iter().any(|(name, _)| name.as_str() == meant) => true,
            // Unless it is the very name that is counted.
            _ => {
                let same = |name: &&HeaderName| name.as_str().replace('_', "-") == meant;
                let counted = || self.counted.iter().filter(same);
                counted().next().is_some() && !counted().any(|name| name.as_str() == text)
            }
        }
    }

    /// Whether what the peer says in one of the two lists of addresses is kept. Proxies that are read
    /// by one of them do not mind the other: a client may have written it.
    fn is_believed(&self, name: &HeaderName) -> bool {
        let read = self.address_header.filter(|it| **it == X_FORWARDED_FOR || **it == FORWARDED);
        self.caller.via_trusted && read.is_none_or(|read| read == name)
    }

    /// `Via`, `X-Forwarded-*` and `Forwarded`: what was said before us is kept if the peer is
    /// trusted, and replaced if it is not.
    fn forwarding(&self, headers: &HeaderMap, put: &mut impl FnMut(&HeaderName, &[u8])) {
        let mut line = SmallVec::<[u8; 256]>::new();
        let mut append = |name: &HeaderName, keep: bool, own: &[&[u8]]| {
            line.clear();
            if keep {
                for value in headers.get_all(name) {
                    line.extend_from_slice(value.as_bytes());
                    line.extend_from_slice(b", ");
                }
            }
            own.iter().for_each(|piece| line.extend_from_slice(piece));
            put(name, &line);
        };
        let (trusted, host) = (self.caller.via_trusted, self.host.as_bytes());
        let via = [self.received.as_bytes(), b" ", self.via.as_bytes()];
        append(&header::VIA, self.has_via, &via);
        // A chain that was told in one of the two headers only cannot be told in the other in part.
        let told = |name: &HeaderName| self.is_believed(name) && headers.contains_key(name);
        let (listed, forwarded) = (told(&X_FORWARDED_FOR), told(&FORWARDED));
        if listed || !forwarded {
            append(&X_FORWARDED_FOR, listed, &[self.peer.text.as_bytes()]);
        }
        let untold = listed && !forwarded;
        let node = self.peer.node.as_bytes();
        match (host.is_empty(), is_token(host)) {
            _ if untold => {}
            (true, _) => append(&FORWARDED, forwarded, &[b"for=", node, b";proto=http"]),
            (_, true) => {
                append(&FORWARDED, forwarded, &[b"for=", node, b";host=", host, b";proto=http"]);
            }
            (_, false) => {
                append(
                    &FORWARDED,
                    forwarded,
                    &[b"for=", node, b";host=\"", host, b"\";proto=http"],
                );
            }
        }
        let said = |name: &HeaderName| if trusted { headers.get(name) } else { None };
        put(&X_FORWARDED_PROTO, said(&X_FORWARDED_PROTO).map_or(b"http", |said| said.as_bytes()));
        let host = said(&X_FORWARDED_HOST).map_or(host, |said| said.as_bytes());
        if !host.is_empty() {
            put(&X_FORWARDED_HOST, host);
        }
    }
}

/// Whether a header tells upstreams what a proxy knows of its client: address, scheme, host, or the
/// path it asked for, which would dodge its route. Only trusted proxies may.
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
                | "fastly-client-ip"
                | "front-end-https"
        );
    };
    match rest {
        "real-ip" | "client-ip" | "cluster-client-ip" => true,
        "original-url" | "original-uri" | "original-method" | "original-host" => true,
        "original-forwarded-for" | "rewrite-url" | "envoy-external-address" => true,
        "forwarded" | "http-host-override" => true,
        "scheme" | "url-scheme" => true,
        _ => rest.starts_with("forwarded-"),
    }
}

/// Whether a host can stand in `Forwarded` without quotes.
fn is_token(host: &[u8]) -> bool {
    host.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(byte))
}

/// The names that `Connection` lists, beyond its own options.
fn listed(headers: &HeaderMap) -> SmallVec<[&[u8]; 4]> {
    let values = headers.get_all(header::CONNECTION).into_iter();
    let names = values.flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
    names.map(<[u8]>::trim_ascii).filter(|name| !name.is_empty()).collect()
}

/// Takes what concerns only the upstream's connection out of a response.
pub fn clean_response(headers: &mut HeaderMap, noted: Noted, upgrade: bool) {
    if noted.listed > 0 {
        let names: SmallVec<[HeaderName; 4]> = listed(headers)
            .iter()
            .filter_map(|name| HeaderName::from_bytes(name).ok())
            .filter(|name| name != header::CONTENT_LENGTH && name != header::UPGRADE)
            .collect();
        for name in names {
            headers.remove(name);
        }
        headers.remove(header::CONNECTION);
    }
    if noted.hop {
        for name in ["keep-alive", "proxy-connection", "te", "trailer"] {
            headers.remove(name);
        }
        if !upgrade {
            headers.remove(header::UPGRADE);
        }
    }
}

/// Whether the request asks to switch to a protocol that a gateway may carry. HTTP itself is not
/// one: requests inside such a tunnel would pass every limit unseen.
#[must_use]
pub fn wants_upgrade(headers: &HeaderMap) -> bool {
    let Some(protocol) = headers.get(header::UPGRADE) else { return false };
    let asked = listed(headers).iter().any(|option| option.eq_ignore_ascii_case(b"upgrade"));
    let mut protocols = protocol.as_bytes().split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    let is_http = |name: &[u8]| {
        let starts = |prefix: &[u8]| {
            name.len() >= prefix.len() && name[..prefix.len()].eq_ignore_ascii_case(prefix)
        };
        starts(b"h2c") || starts(b"http") || starts(b"tls")
    };
    asked && !protocols.any(is_http)
}

/// Whether the request has passed through this process before.
#[must_use]
pub fn has_passed(headers: &HeaderMap, via: &str) -> bool {
    let values = headers.get_all(header::VIA);
    values.iter().any(|value| memchr::memmem::find(value.as_bytes(), via.as_bytes()).is_some())
}

#[cfg(test)]
#[path = "headers/tests.rs"]
mod tests;
