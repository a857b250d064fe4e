//! Who a request is from, and which limits apply to it.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, header};

use super::checks::Checks;
use super::compiled::Compiled;
use super::{Gateway, Visit};
use crate::body::Body;
use crate::caller::access::Verdict;
use crate::caller::form::BodyKind;
use crate::caller::jwt::{self, Claims, Rejection, Verifier};
use crate::caller::{Access, Caller};
use crate::clock::unix_second;
use crate::http1::Framing;
use crate::limit::Source;
use crate::limit::credentials::{CredentialsError, bearer};
use crate::limit::key::KeyError;
use crate::limit::source::{self, Evidence, Form, Said, Subject, UnreadForm};
use crate::respond::Fault;
use crate::route::bare_host;
use crate::telemetry::Admittance;

/// As much of a form as is looked at.
const FORM: usize = 64 * 1024;

/// A body that was looked into for a form, where somebody needs one.
#[derive(Debug)]
pub(super) enum Looked {
    NoForm,
    Form(Bytes),
    Unread(UnreadForm),
}

impl Looked {
    fn form(&self) -> Form<'_> {
        match self {
            Looked::NoForm => Form::None,
            Looked::Form(text) if text.len() < FORM => Form::Whole(text),
            Looked::Form(_) => Form::Long,
            Looked::Unread(why) => Form::Unread(*why),
        }
    }
}

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
        (headers, form): (&HeaderMap, &Looked),
        claims: Option<&Claims>,
        checks: &mut Checks<'a>,
    ) -> Result<(), Fault> {
        let Visit { live, way, parts, .. } = *visit;
        let shared = &*live.shared;
        let host = if shared.counts_host { bare_host(way.host()) } else { Cow::Borrowed("") };
        let evidence = Evidence {
            headers,
            host: &host,
            query: parts.uri.query(),
            form: form.form(),
            claims: claims.map(|claims| claims as &dyn source::Claims),
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
    ) -> Result<Looked, Fault> {
        if matches!(body.framing(), Framing::Empty | Framing::Length(0)) {
            return Ok(Looked::NoForm);
        }
        match BodyKind::of(headers) {
            BodyKind::Form => {}
            BodyKind::Other => return Ok(Looked::NoForm),
            BodyKind::Unread(why) => return Ok(Looked::Unread(why)),
        }
        // Whoever does not get in need not be asked for a body.
        let denies = |access: &Arc<Access>| access.deny.holds(caller.ip, None, None);
        if visit.live.shared.access.iter().any(denies) {
            visit.live.access_meter.count(Admittance::Denied);
            return Err(Fault::Denied);
        }
        Ok(Looked::Form(body.look(FORM).await?))
    }

    /// The request's token, where somebody needs it.
    pub(super) fn token<'h>(
        &self,
        visit: &Visit<'_>,
        headers: &'h HeaderMap,
    ) -> Result<Token<'h>, Fault> {
        let shared = &*visit.live.shared;
        let Some(verifier) = shared.verifier.as_ref() else { return Ok(Token::Known(None)) };
        if !visit.way.needs.token && !shared.token_required {
            return Ok(Token::Known(None));
        }
        let sent = bearer(headers, jwt::is_token).map_err(KeyError::from)?;
        let Some(token) = sent else {
            return believed(shared, Err(Rejection::Malformed), b"").map(Token::Known);
        };
        match self.tokens.recall(verifier, token, unix_second()) {
            Some(known) => believed(shared, known, token).map(Token::Known),
            None => Ok(Token::Unknown(verifier.clone(), token)),
        }
    }

    /// What the caller's token says, if it can be believed.
    pub(super) async fn claims(
        &self,
        visit: &Visit<'_>,
        caller: &Caller,
        token: Token<'_>,
    ) -> Result<Option<Arc<Claims>>, Fault> {
        let shared = &*visit.live.shared;
        match token {
            Token::Known(claims) => Ok(claims),
            Token::Unknown(verifier, token) => {
                let caller = shared.addresses.counted(caller.ip);
                let verified = self.tokens.verify(&verifier, token, caller, unix_second).await;
                believed(shared, verified, token)
            }
        }
    }
}

/// A token, before anything costly was done about it.
#[derive(Debug)]
pub(super) enum Token<'a> {
    /// What it says, if that can be believed.
    Known(Option<Arc<Claims>>),
    Unknown(Arc<Verifier>, &'a [u8]),
}

/// A token that is not believed is no identity. One that could not be checked may be anybody's: that
/// it is nobody's would be a way around a limit.
fn believed(
    shared: &Compiled,
    verified: Result<Arc<Claims>, Rejection>,
    token: &[u8],
) -> Result<Option<Arc<Claims>>, Fault> {
    match verified {
        Ok(claims) => Ok(Some(claims)),
        // An upstream whose decoder is less strict would believe it.
        Err(Rejection::Malformed) if jwt::is_misspelled(token) => {
            Err(KeyError::from(CredentialsError::Bearer).into())
        }
        Err(Rejection::PutOff) => Err(Fault::Unchecked),
        Err(_) if shared.token_required => Err(Fault::Unauthorized),
        Err(_) => Ok(None),
    }
}

/// Refuses a request that says two things in one source of an identity, whether somebody asks there
/// or not: gateway and upstream might each believe another one.
pub(super) fn refuse_doubled(shared: &Compiled, headers: &HeaderMap) -> Result<(), Fault> {
    // Most requests have no field twice, and pay for no look-up.
    if headers.len() == headers.keys_len() {
        return Ok(());
    }
    let doubled = |name: &&HeaderName| headers.get_all(*name).iter().nth(1).is_some();
    if doubled(&&header::AUTHORIZATION) {
        return Err(KeyError::from(CredentialsError::Doubled).into());
    }
    match shared.identity.headers().find(doubled) {
        Some(name) => Err(KeyError::Ambiguous(Source::Header(name.clone())).into()),
        None => Ok(()),
    }
}

fn text<'a>(said: &'a Said<'_>) -> Option<&'a str> {
    said.as_deref().and_then(|said| std::str::from_utf8(said).ok())
}
