//! Who a request is from, and which limits apply to it.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, header};

use super::checks::Checks;
use super::{Gateway, Visit};
use crate::body::Body;
use crate::caller::Caller;
use crate::caller::access::Verdict;
use crate::caller::jwt::Claims;
use crate::limit::source::{self, Evidence, Identities, Said, Subject};
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
            form: Some(whole_fields(form)).filter(|form| !form.is_empty()),
            claims: claims.as_deref().map(|claims| claims as &dyn source::Claims),
        };
        let who = match way.needs.who {
            true => shared.identity.of(&evidence)?,
            false => Identities::default(),
        };
        if !shared.access.is_empty() {
            let text = |said: &Said<'_>| {
                said.as_deref().and_then(|said| std::str::from_utf8(said).ok()).map(str::to_owned)
            };
            let (user, client) = (text(&who.user), text(&who.client));
            let mut allowed = false;
            for access in &shared.access {
                match access.judge(caller.ip, user.as_deref(), client.as_deref()) {
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
        headers: &HeaderMap,
        body: &mut Body,
    ) -> Result<Bytes, Fault> {
        let wanted = visit.way.needs.form && is_form(headers);
        if wanted { Ok(body.look(FORM).await?) } else { Ok(Bytes::new()) }
    }

    /// What the caller's token says, if there is one that can be believed.
    fn token(&self, visit: &Visit<'_>, headers: &HeaderMap) -> Result<Option<Arc<Claims>>, Fault> {
        let shared = &*visit.live.shared;
        let Some(verifier) = shared.verifier.as_ref() else { return Ok(None) };
        if !visit.way.needs.token && !shared.token_required {
            return Ok(None);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
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

/// The fields that end within the look, however much has arrived: one that is cut would name
/// somebody else.
fn whole_fields(form: &[u8]) -> &[u8] {
    match form.get(..FORM) {
        None => form,
        Some(look) => &look[..look.iter().rposition(|byte| *byte == b'&').unwrap_or(0)],
    }
}

fn is_form(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(|kind| kind.as_bytes()).unwrap_or_default();
    let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default();
    kind.trim_ascii().eq_ignore_ascii_case(b"application/x-www-form-urlencoded")
}
