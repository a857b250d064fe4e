//! Which headers reach the upstream, and which come back.

use http::header::{self, HeaderMap, HeaderName};
use smallvec::SmallVec;

use crate::caller::{Caller, Peer};
use crate::config::settings::HeaderEdits;
use crate::http1::HeadFlags;
use crate::protocol::{Protocol, Scheme};
use crate::respond::Scratch;

const FORWARDED: HeaderName = header::FORWARDED;
const X_FORWARDED_FOR: HeaderName = crate::caller::address::X_FORWARDED_FOR;
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// What is added to and taken from a request's headers on their way out.
#[derive(Debug)]
pub(crate) struct OutboundHeaders<'a> {
    pub peer: &'a Peer,
    pub caller: &'a Caller,
    /// As the client named it; empty if it did not.
    pub host: &'a str,
    /// This process's name in `Via`: `weir-…`.
    pub via: &'a str,
    /// By which the request came.
    pub protocol: Protocol,
    /// Whether `Via` names other gateways already.
    pub has_via: bool,
    pub edits: &'a HeaderEdits,
    /// The one header in which trusted proxies name their client's address, if one is configured.
    pub address_header: Option<&'a HeaderName>,
    /// The headers that limits are keyed by: listing one in `Connection` must not strip it.
    pub key_headers: &'a [HeaderName],
    /// Those of them that have a `_`, written with `-`: some upstreams do not distinguish the two.
    pub key_header_aliases: &'a [String],
    /// Whether routes or limits depend on the method, so that no header may override it.
    pub by_method: bool,
    /// Whether requests may be marked as degraded: then the mark is the gateway's own.
    pub degrades: bool,
    /// Whether requests may be marked with a guard's warning: likewise.
    pub warns: bool,
    pub upgrade: bool,
}

impl OutboundHeaders<'_> {
    /// Calls `written` with every header that the upstream is to see, except those that frame the
    /// body.
    pub(crate) fn for_each(
        &self,
        headers: &HeaderMap,
        mut written: impl FnMut(&HeaderName, &[u8]),
    ) {
        let listed = listed(headers);
        let edited = !(self.edits.set.is_empty() && self.edits.remove.is_empty());
        // The route's own edits win.
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
            _ if overrides_method(name.as_str()) => self.by_method,
            // Limits may be keyed by these, so `Connection` cannot strip them.
            "authorization" | "cookie" | "content-type" | "content-encoding" => false,
            "x-weir-degraded" if self.degrades => false,
            "x-weir-warning" if self.warns => false,
            // Only a gateway may set these.
            "x-weir-degraded" | "x-weir-warning" => true,
            // CGI does not distinguish `_` from `-`, so a name that is withheld is withheld in that
            // spelling, too.
            text if text.contains('_') && self.is_disguised(text) => true,
            // The upstream may trust it as Weir does, so only trusted proxies may send it.
            _ if self.address_header == Some(name) => !self.caller.via_trusted,
            text if !self.caller.via_trusted && is_claim(text) => !self.key_headers.contains(name),
            text => {
                (is_listed(text) && !self.key_headers.contains(name))
                    || self.key_header_aliases.iter().any(|double| double == text)
            }
        }
    }

    fn is_disguised(&self, text: &str) -> bool {
        let meant = text.replace('_', "-");
        match meant.as_str() {
            "content-length" | "transfer-encoding" | "host" | "connection" => true,
            "via" | "forwarded" => true,
            // They say whether there is a form in the body that a limit counts by.
            "content-type" | "content-encoding" => true,
            "x-weir-degraded" | "x-weir-warning" => true,
            _ if overrides_method(&meant) => self.by_method,
            _ if is_claim(&meant) => true,
            // What the route sets or removes.
            _ if self.edits.remove.iter().any(|name| name.as_str() == meant) => true,
            _ if self.edits.set.iter().any(|(name, _)| name.as_str() == meant) => true,
            // Unless it is the very name that is counted.
            _ => {
                let same = |name: &&HeaderName| name.as_str().replace('_', "-") == meant;
                let counted = || self.key_headers.iter().filter(same);
                counted().next().is_some() && !counted().any(|name| name.as_str() == text)
            }
        }
    }

    /// Whether the addresses that came in `X-Forwarded-For` or `Forwarded` are kept. If trusted
    /// proxies use one of the two, a client may have written the other.
    fn is_believed(&self, name: &HeaderName) -> bool {
        let read = self.address_header.filter(|it| **it == X_FORWARDED_FOR || **it == FORWARDED);
        self.caller.via_trusted && read.is_none_or(|read| read == name)
    }

    /// `Via`, `X-Forwarded-*` and `Forwarded`: earlier values are kept if the peer is trusted, and
    /// replaced if it is not.
    fn forwarding(&self, headers: &HeaderMap, put: &mut impl FnMut(&HeaderName, &[u8])) {
        let mut line = Scratch::new();
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
        let via = [self.protocol.via_version().as_bytes(), b" ", self.via.as_bytes()];
        append(&header::VIA, self.has_via, &via);
        // If a proxy has used one of the two headers only, the other would show part of the chain.
        let chained = |name: &HeaderName| self.is_believed(name) && headers.contains_key(name);
        let (listed, forwarded) = (chained(&X_FORWARDED_FOR), chained(&FORWARDED));
        if listed || !forwarded {
            append(&X_FORWARDED_FOR, listed, &[self.peer.text.as_bytes()]);
        }
        let node = self.peer.node.as_bytes();
        let proto: &[u8] = match self.protocol.scheme {
            Scheme::Http => b";proto=http",
            Scheme::Https => b";proto=https",
        };
        if forwarded || !listed {
            let mut append = |own: &[&[u8]]| append(&FORWARDED, forwarded, own);
            match (host.is_empty(), is_token(host)) {
                (true, _) => append(&[b"for=", node, proto]),
                (_, true) => append(&[b"for=", node, b";host=", host, proto]),
                (_, false) => append(&[b"for=", node, b";host=\"", host, b"\"", proto]),
            }
        }
        let trusted_value = |name: &HeaderName| if trusted { headers.get(name) } else { None };
        let scheme = self.protocol.scheme.as_str().as_bytes();
        let proto = trusted_value(&X_FORWARDED_PROTO).map_or(scheme, |value| value.as_bytes());
        put(&X_FORWARDED_PROTO, proto);
        let host = trusted_value(&X_FORWARDED_HOST).map_or(host, |value| value.as_bytes());
        if !host.is_empty() {
            put(&X_FORWARDED_HOST, host);
        }
    }
}

/// Whether a header is one by which some frameworks replace the method.
fn overrides_method(name: &str) -> bool {
    matches!(name, "x-http-method-override" | "x-http-method" | "x-method-override" | "x-method")
}

/// Whether a header is one by which proxies tell upstreams of their client: address, scheme, host, who
/// it is, or the path it asked for, which would bypass its route. Only trusted proxies may send these.
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

/// Removes the hop-by-hop fields of a response, RFC 9110 section 7.6.1, and what only Weir says.
pub(crate) fn clean_response(headers: &mut HeaderMap, flags: HeadFlags, upgrade: bool) {
    if flags.listed > 0 {
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
    if flags.hop {
        for name in ["keep-alive", "proxy-connection", "te", "trailer"] {
            headers.remove(name);
        }
        if !upgrade {
            headers.remove(header::UPGRADE);
        }
    }
    if flags.marks {
        for name in ["x-weir-warning", "x-weir-degraded"] {
            headers.remove(name);
        }
    }
}

/// Whether the request asks to switch to a protocol that a gateway may carry. HTTP itself is not
/// one: requests inside such a tunnel would pass every limit unseen. Neither is what is not spelled as
/// RFC 9110 section 7.8 says, in which an upstream might find HTTP.
pub(crate) fn wants_upgrade(headers: &HeaderMap) -> bool {
    let Some(protocols) = headers.get(header::UPGRADE) else { return false };
    let asked = listed(headers).iter().any(|option| option.eq_ignore_ascii_case(b"upgrade"));
    let mut protocols = protocols.as_bytes().split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    asked && protocols.all(may_be_carried)
}

/// Whether a protocol, `name` or `name/version`, is none that carries HTTP.
fn may_be_carried(protocol: &[u8]) -> bool {
    let is_token = |part: &[u8]| !part.is_empty() && part.iter().all(|byte| is_tchar(*byte));
    let mut parts = protocol.split(|byte| *byte == b'/');
    let is_http = |word: &[u8]| {
        let starts = |prefix: &[u8]| {
            word.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
        };
        starts(b"http") || starts(b"tls") || starts(b"h2") || starts(b"h3")
    };
    // Also behind a sign that a reader may skip, such as `'`.
    let mut words = protocol.split(|byte| !byte.is_ascii_alphanumeric());
    parts.clone().count() <= 2 && parts.all(is_token) && !words.any(is_http)
}

/// RFC 9110 section 5.6.2.
fn is_tchar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether the request has passed through this process before.
pub(crate) fn has_passed(headers: &HeaderMap, via: &str) -> bool {
    let values = headers.get_all(header::VIA);
    values.iter().any(|value| memchr::memmem::find(value.as_bytes(), via.as_bytes()).is_some())
}

#[cfg(test)]
#[path = "headers/tests.rs"]
mod tests;
