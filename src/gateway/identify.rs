//! Who a request is from, and which limits apply to it.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, header};

use super::checks::Checks;
use super::{Gateway, Visit};
use crate::body::Body;
use crate::caller::access::Verdict;
use crate::caller::jwt::Claims;
use crate::caller::{Access, Caller};
use crate::clock::unix_second;
use crate::limit::source::{self, Evidence, Form, Said, Subject};
use crate::respond::Fault;
use crate::route::bare_host;
use crate::telemetry::Admittance;

/// As much of a form as is looked at.
const FORM: usize = 64 * 1024;

impl Gateway {
    /// Collects the checks of a request, once it is known who sent it. None for those who are never
    /// limited.
    ///
    /// # Errors
    /// If the caller is not let in, or has to say more of itself.
    pub(super) fn identify<'a>(
        &self,
        visit: &Visit<'a>,
        caller: &Caller,
        (headers, form): (&HeaderMap, &[u8]),
        checks: &mut Checks<'a>,
    ) -> Result<(), Fault> {
        let Visit { live, way, parts, .. } = *visit;
        let shared = &*live.shared;
        let claims = self.token(visit, headers)?;
        let host = if shared.counts_host { bare_host(way.host()) } else { Cow::Borrowed("") };
        let evidence = Evidence {
            headers,
            host: &host,
            query: parts.uri.query(),
            form: Form { text: form, whole: form.len() < FORM },
            claims: claims.as_deref().map(|claims| claims as &dyn source::Claims),
        };
        let who = shared.identity.of(&evidence, way.needs.who)?;
        if !shared.access.is_empty() {
            let (user, client) = (text(&who.user), text(&who.client));
            let mut allowed = false;
            for access in &shared.access {
                match access.judge(caller.ip, user, client) {
                    Verdict::Denied => {
                        live.access_meter.count(Admittance::Denied);
                        return Err(Fault::Denied);
                    }
                    Verdict::Allowed => allowed = true,
                    Verdict::Neither => {}
                }
            }
            if allowed {
                live.access_meter.count(Admittance::Allowed);
                return Ok(());
            }
        }
        let subject = Subject {
            ip: shared.addresses.counted(caller.ip),
            whole_ip: caller.ip,
            route: &way.settings.name,
            evidence,
            who: &who,
        };
        checks.collect(&self.hasher, shared, way, &parts.method, &subject)
    }

    /// The beginning of a form, where somebody needs it.
    pub(super) async fn form(
        &self,
        visit: &Visit<'_>,
        caller: &Caller,
        headers: &HeaderMap,
        body: &mut Body,
    ) -> Result<Bytes, Fault> {
        if !visit.way.needs.form || !is_form(headers) {
            return Ok(Bytes::new());
        }
        // Whoever does not get in need not be asked for a body.
        self.token(visit, headers)?;
        let denies = |access: &Arc<Access>| access.deny.holds(caller.ip, None, None);
        if visit.live.shared.access.iter().any(denies) {
            visit.live.access_meter.count(Admittance::Denied);
            return Err(Fault::Denied);
        }
        Ok(body.look(FORM).await?)
    }

    /// What the caller's token says, if there is one that can be believed.
    fn token(&self, visit: &Visit<'_>, headers: &HeaderMap) -> Result<Option<Arc<Claims>>, Fault> {
        let shared = &*visit.live.shared;
        let Some(verifier) = shared.verifier.as_ref() else { return Ok(None) };
        if !visit.way.needs.token && !shared.token_required {
            return Ok(None);
        }
        let now = unix_second();
        let verified = bearer(headers).map(|token| self.tokens.verify(verifier, token, now));
        match verified {
            Some(Ok(claims)) => Ok(Some(claims)),
            _ if shared.token_required => Err(Fault::Unauthorized),
            _ => Ok(None),
        }
    }
}

/// RFC 6750 section 2.1. One who sends two sends none: gateway and upstream might each believe
/// another one.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (first, second) = (values.next()?, values.next());
    let (scheme, token) = first.as_bytes().split_at_checked(7)?;
    (second.is_none() && scheme.eq_ignore_ascii_case(b"bearer ")).then(|| token.trim_ascii())
}

/// Whether anybody might take the body for a form: of two types, each may believe another one.
fn is_form(headers: &HeaderMap) -> bool {
    headers.get_all(header::CONTENT_TYPE).iter().any(|kind| {
        let kind = kind.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
        kind.trim_ascii().eq_ignore_ascii_case(b"application/x-www-form-urlencoded")
    })
}

fn text<'a>(said: &'a Said<'_>) -> Option<&'a str> {
    said.as_deref().and_then(|said| std::str::from_utf8(said).ok())
}
