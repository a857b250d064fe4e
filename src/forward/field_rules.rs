//! Which fields may pass the gateway: one set of rules, made when a configuration is compiled, that
//! heads and trailers ask alike.

use std::borrow::Cow;
use std::sync::Arc;

use http::{HeaderMap, HeaderName};

use crate::config::settings::HeaderEdits;
use crate::field_class::{FieldClass, is_look_alike};
use crate::respond::FieldName;

/// What a configuration says of fields on all its routes.
#[derive(Debug, Default)]
pub(crate) struct FieldRules {
    /// The headers that tell upstreams who the caller is, whether or not they are sent. Nobody else
    /// can send them.
    pub identity_names: Vec<HeaderName>,
    /// The one header in which trusted proxies name their client's address, if one is configured.
    pub address_header: Option<HeaderName>,
    /// The headers that limits are keyed by: listing one in `Connection` must not strip it.
    pub key_headers: Vec<HeaderName>,
    /// Those of them that have a `_`, written with `-`.
    pub key_header_aliases: Vec<String>,
    /// Whether routes or limits depend on the method, so that no header may override it.
    pub by_method: bool,
    /// Whether requests may be marked as degraded: then the mark is the gateway's own.
    pub degrades: bool,
    /// Whether requests may be marked with a guard's warning: likewise.
    pub warns: bool,
    /// Whether ids of requests and traces may be the gateway's own: `Connection` cannot strip them then.
    pub has_ids: bool,
}

/// The same on one route.
#[derive(Debug, Default)]
pub(crate) struct RouteFields {
    pub rules: Arc<FieldRules>,
    pub request_edits: HeaderEdits,
    pub response_edits: HeaderEdits,
}

/// Who sends a head.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeadSender<'a> {
    /// Whether the peer is a trusted proxy.
    pub is_trusted: bool,
    /// The names that `Connection` lists.
    pub listed: &'a [&'a [u8]],
}

/// A client, of which nothing more is known.
const ANY_CLIENT: HeadSender<'static> = HeadSender { is_trusted: false, listed: &[] };

impl RouteFields {
    /// Whether a field in the head of a request does not reach the upstream. What the route edits is
    /// not asked here.
    #[inline]
    pub(crate) fn is_withheld(&self, name: &HeaderName, sender: HeadSender<'_>) -> bool {
        self.rules.is_withheld(name, sender, &self.request_edits)
    }

    /// Removes what may not stand behind the body of a request.
    pub(crate) fn clean_request_trailers(&self, trailers: &mut HeaderMap) {
        self.rules.clean_trailers(trailers, &self.request_edits);
    }

    /// Removes what may not stand behind the body of a response.
    pub(crate) fn clean_response_trailers(&self, trailers: &mut HeaderMap) {
        self.rules.clean_trailers(trailers, &self.response_edits);
    }
}

impl FieldRules {
    #[inline]
    fn is_withheld(&self, name: &HeaderName, sender: HeadSender<'_>, edits: &HeaderEdits) -> bool {
        let text = name.as_str();
        // Whoever sends them: they are the gateway's own.
        if self.identity_names.iter().any(|own| is_look_alike(text, own.as_str())) {
            return true;
        }
        match FieldClass::of(text) {
            FieldClass::Hop => true,
            FieldClass::MethodOverride => self.by_method,
            // `Connection` cannot strip them.
            FieldClass::Counted => false,
            FieldClass::Id if self.has_ids => false,
            // Only a gateway may set these.
            FieldClass::Degraded => !self.degrades,
            FieldClass::Warning => !self.warns,
            // CGI does not distinguish `_` from `-`, so a name that is withheld is withheld in that
            // spelling, too.
            _ if text.contains('_') && self.is_disguised(text, edits) => true,
            // The upstream may trust it as Weir does, so only trusted proxies may send it.
            _ if self.address_header.as_ref() == Some(name) => !sender.is_trusted,
            FieldClass::Claim if !sender.is_trusted => !self.key_headers.contains(name),
            FieldClass::Id | FieldClass::Claim | FieldClass::Other => {
                let is_listed =
                    sender.listed.iter().any(|it| it.eq_ignore_ascii_case(text.as_bytes()));
                (is_listed && !self.key_headers.contains(name))
                    || self.key_header_aliases.iter().any(|alias| alias == text)
                    || is_alias_of_edited(text, edits)
            }
        }
    }

    /// Whether a name with a `_` may be taken for another that is not the sender's to say.
    fn is_disguised(&self, text: &str, edits: &HeaderEdits) -> bool {
        match FieldClass::of(&text.replace('_', "-")) {
            FieldClass::MethodOverride => self.by_method,
            FieldClass::Id => self.has_ids,
            // What is counted says whether there is a form in the body that a limit counts by.
            FieldClass::Hop | FieldClass::Counted | FieldClass::Claim => true,
            FieldClass::Degraded | FieldClass::Warning => true,
            FieldClass::Other => {
                // Unless it is the very name that is counted.
                let counted = || self.key_headers.iter().map(HeaderName::as_str);
                let is_counted = counted().any(|it| is_look_alike(text, it));
                is_alias_of_edited(text, edits) || (is_counted && !counted().any(|it| it == text))
            }
        }
    }

    /// RFC 9110 section 6.5.1: nothing that frames a message, routes it, says who sent it or changes
    /// what it means, since this has been acted on before trailers come. A receiver that merges
    /// trailers into the head would otherwise see what limits and routes have not.
    fn is_withheld_behind_body(&self, name: &HeaderName, edits: &HeaderEdits) -> bool {
        let text = name.as_str();
        let meant = match text.contains('_') {
            true => Cow::Owned(text.replace('_', "-")),
            false => Cow::Borrowed(text),
        };
        let own = edits.names().chain(&self.key_headers).chain(&self.address_header);
        self.is_withheld(name, ANY_CLIENT, edits)
            || FieldClass::of(&meant) != FieldClass::Other
            || is_head_only(&meant)
            || own.map(HeaderName::as_str).any(|it| is_look_alike(text, it))
    }

    fn clean_trailers(&self, trailers: &mut HeaderMap, edits: &HeaderEdits) {
        let denied = |name: &&HeaderName| self.is_withheld_behind_body(name, edits);
        let names: Vec<_> = trailers.keys().filter(denied).cloned().collect();
        for name in names {
            trailers.remove(name);
        }
    }
}

/// Whether an upstream may take a field for one that the route sets or removes.
#[inline]
fn is_alias_of_edited(text: &str, edits: &HeaderEdits) -> bool {
    edits.names().any(|it| is_look_alike(text, it.as_str()) && text != it.as_str())
}

/// Whether a field that passes in a head means something there that it cannot mean later, or is one
/// that Weir writes. What gRPC says behind a body is the upstream's, and so is `Proxy-Status`, which
/// RFC 9209 section 2 allows there.
fn is_head_only(name: &str) -> bool {
    let passes = [FieldName::GrpcMessage, FieldName::GrpcStatus, FieldName::ProxyStatus];
    let mut own = FieldName::ALL.into_iter().filter(|it| !passes.contains(it));
    match name {
        "max-forwards" | "content-range" | "set-cookie" | "www-authenticate" => true,
        "proxy-authenticate" | "authentication-info" | "pragma" | "age" | "expires" => true,
        "date" | "vary" | "location" | "range" => true,
        _ => {
            name.starts_with("x-weir-")
                || name.starts_with("if-")
                || own.any(|it| it.as_str().eq_ignore_ascii_case(name))
        }
    }
}

#[cfg(test)]
mod tests;
