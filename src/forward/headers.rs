//! Which headers reach the upstream, and which come back.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::rc::Rc;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

use super::field_rules::{HeadSender, RouteFields};
use crate::byte_set::letters_digits_and;
use crate::caller::{Caller, Peer};
use crate::config::settings::HeaderEdits;
use crate::field_class::{X_WEIR_DEGRADED, X_WEIR_WARNING};
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
    /// Who the caller is, in the headers that tell upstreams so.
    pub identity: &'a [(HeaderName, HeaderValue)],
    pub upgrade: bool,
    /// What the configuration says of fields on this route.
    pub fields: &'a Rc<RouteFields>,
}

/// What takes the fields of a head, in their order.
pub(crate) trait FieldSink {
    /// A field as the client or the configuration has it.
    fn keep(&mut self, name: &HeaderName, value: &HeaderValue);

    /// A field that was written for this request.
    fn write(&mut self, name: &HeaderName, value: &[u8]);
}

impl<F: FnMut(&HeaderName, &[u8])> FieldSink for F {
    #[inline]
    fn keep(&mut self, name: &HeaderName, value: &HeaderValue) {
        self(name, value.as_bytes());
    }

    #[inline]
    fn write(&mut self, name: &HeaderName, value: &[u8]) {
        self(name, value);
    }
}

/// Leaves out what the route sets or removes: its own edits win.
struct Unedited<'a, S> {
    sink: &'a mut S,
    edits: Option<&'a HeaderEdits>,
}

impl<S> Unedited<'_, S> {
    #[inline]
    fn passes(&self, name: &HeaderName) -> bool {
        self.edits.is_none_or(|edits| !is_edited(edits, name))
    }
}

/// Apart from its caller, which is inlined: most routes have no edits.
#[inline(never)]
fn is_edited(edits: &HeaderEdits, name: &HeaderName) -> bool {
    edits.names().any(|edited| edited == name)
}

impl<S: FieldSink> FieldSink for Unedited<'_, S> {
    #[inline]
    fn keep(&mut self, name: &HeaderName, value: &HeaderValue) {
        if self.passes(name) {
            self.sink.keep(name, value);
        }
    }

    #[inline]
    fn write(&mut self, name: &HeaderName, value: &[u8]) {
        if self.passes(name) {
            self.sink.write(name, value);
        }
    }
}

impl OutboundHeaders<'_> {
    /// Gives `sink` every header that the upstream is to see, except those that frame the body.
    pub(crate) fn write_to(&self, headers: &HeaderMap, sink: &mut impl FieldSink) {
        let listed = listed(headers);
        let sender = HeadSender { is_trusted: self.caller.via_trusted, listed: &listed };
        let edits = &self.fields.request_edits;
        let mut unedited = Unedited { sink, edits: (!edits.is_empty()).then_some(edits) };
        if !self.host.is_empty() {
            unedited.write(&header::HOST, self.host.as_bytes());
        }
        for (name, value) in headers {
            if !self.fields.is_withheld(name, sender) {
                unedited.keep(name, value);
            }
        }
        if self.upgrade {
            unedited.write(&header::CONNECTION, b"Upgrade");
            if let Some(protocol) = headers.get(header::UPGRADE) {
                unedited.keep(&header::UPGRADE, protocol);
            }
        }
        self.forwarding(headers, &mut unedited);
        for (name, value) in self.identity {
            unedited.keep(name, value);
        }
        for (name, value) in &edits.set {
            sink.keep(name, value);
        }
    }

    /// Whether the addresses that came in `X-Forwarded-For` or `Forwarded` are kept: those that were
    /// read. If trusted proxies use another header, or the other of the two, a client may have written
    /// this one.
    fn is_believed(&self, name: &HeaderName) -> bool {
        self.caller.via_trusted && self.address_header().is_none_or(|read| read == name)
    }

    fn address_header(&self) -> Option<&HeaderName> {
        self.fields.rules.address_header.as_ref()
    }

    /// The caller, if a header of the trusted peer's own names it: then neither of the two does.
    fn caller_elsewhere(&self) -> Option<IpAddr> {
        let read = self.address_header()?;
        let is_elsewhere = *read != X_FORWARDED_FOR && *read != FORWARDED;
        let found = self.caller.via_trusted && self.caller.ip != self.peer.ip;
        (is_elsewhere && found).then_some(self.caller.ip)
    }

    /// `Via`, `X-Forwarded-*` and `Forwarded`: earlier values are kept if the peer is trusted, and
    /// replaced if it is not.
    fn forwarding(&self, headers: &HeaderMap, sink: &mut impl FieldSink) {
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
            sink.write(name, &line);
        };
        let (trusted, host) = (self.caller.via_trusted, self.host.as_bytes());
        let via = [self.protocol.via_version().as_bytes(), b" ", self.via.as_bytes()];
        append(&header::VIA, self.has_via, &via);
        // The caller comes before the peer that speaks for it. Most requests have no such caller, and
        // an empty string costs nothing.
        let (mut address, mut element) = (String::new(), String::new());
        if let Some(ip) = self.caller_elsewhere() {
            // Writing to a string cannot fail.
            let _ = write!(address, "{ip}, ");
            let _ = match ip {
                IpAddr::V4(ip) => write!(element, "for={ip}, "),
                IpAddr::V6(ip) => write!(element, "for=\"[{ip}]\", "),
            };
        }
        // If a proxy has used one of the two headers only, the other would show part of the chain.
        let chained = |name: &HeaderName| self.is_believed(name) && headers.contains_key(name);
        let (listed, forwarded) = (chained(&X_FORWARDED_FOR), chained(&FORWARDED));
        if listed || !forwarded {
            append(&X_FORWARDED_FOR, listed, &[address.as_bytes(), self.peer.text.as_bytes()]);
        }
        let node = self.peer.node.as_bytes();
        let proto: &[u8] = match self.protocol.scheme {
            Scheme::Http => b";proto=http",
            Scheme::Https => b";proto=https",
        };
        let element = element.as_bytes();
        if forwarded || !listed {
            let mut append = |own: &[&[u8]]| append(&FORWARDED, forwarded, own);
            match (host.is_empty(), is_token(host)) {
                (true, _) => append(&[element, b"for=", node, proto]),
                (_, true) => append(&[element, b"for=", node, b";host=", host, proto]),
                (_, false) => append(&[element, b"for=", node, b";host=\"", host, b"\"", proto]),
            }
        }
        let trusted_value = |name: &HeaderName| if trusted { headers.get(name) } else { None };
        let scheme = self.protocol.scheme.as_str().as_bytes();
        let proto = trusted_value(&X_FORWARDED_PROTO).map_or(scheme, |value| value.as_bytes());
        sink.write(&X_FORWARDED_PROTO, proto);
        let host = trusted_value(&X_FORWARDED_HOST).map_or(host, |value| value.as_bytes());
        if !host.is_empty() {
            sink.write(&X_FORWARDED_HOST, host);
        }
    }
}

/// Whether a host can stand in `Forwarded` without quotes.
fn is_token(host: &[u8]) -> bool {
    host.iter().all(|byte| UNQUOTED[usize::from(*byte)])
}

/// What most hosts are made of: every request that is forwarded has one.
const UNQUOTED: [bool; 256] = letters_digits_and(b"-.");

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
        for name in [X_WEIR_WARNING, X_WEIR_DEGRADED] {
            headers.remove(name);
        }
    }
}

/// Leaves of the fields of a `103 Early Hints` what may be passed on. What the route sets or removes
/// in answers is not for its upstream to say.
pub(crate) fn clean_hints(headers: &mut HeaderMap, flags: HeadFlags, edits: &HeaderEdits) {
    clean_response(headers, flags, false);
    headers.remove(header::CONTENT_LENGTH);
    headers.remove(header::TRANSFER_ENCODING);
    for name in edits.names() {
        headers.remove(name);
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
