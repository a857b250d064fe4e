//! Who sends a request: its address, what its token and its form are good for, and its names.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, header};

use super::access::AccessVerdict;
use super::identity_fields::IdentityFields;
use super::route::RouteMatch;
use crate::caller::form::BodyKind;
use crate::caller::identity::NameSources;
use crate::caller::jwt::{self, Rejection, Verifier};
use crate::caller::{AddressSource, Caller};
use crate::gateway::compiled::Compiled;
use crate::limit::Source;
use crate::limit::credentials::{CredentialsError, bearer};
use crate::limit::key::KeyError;
use crate::limit::source::{Form, UnreadForm};
use crate::respond::Fault;

/// As much of a form as is read.
pub const FORM_BYTES: usize = 64 * 1024;

/// The caller of a request, and where each part of it was found.
#[derive(Debug)]
pub struct PlannedCaller<'a> {
    pub address: CallerAddress<'a>,
    /// Which names it has, and from where. The names themselves are texts of the request: see
    /// [`PlanTexts`](super::PlanTexts).
    pub names: NameSources<'a>,
    /// What the upstream is told of it.
    pub identity: IdentityFields,
}

/// The address of a request's caller, and what the access lists say of it.
#[derive(Debug, Clone, Copy)]
pub struct CallerAddress<'a> {
    pub caller: Caller,
    pub source: AddressSource<'a>,
    pub access: AccessVerdict,
}

/// What is to be done about a request's token.
#[derive(Debug)]
pub enum TokenStep<'a, 'h> {
    /// Nothing needs one.
    Unneeded,
    /// One is needed, and the request has none.
    Absent,
    Verify(&'a Arc<Verifier>, &'h [u8]),
}

/// What is to be done about a request's body before its limits are planned.
#[derive(Debug)]
pub enum FormStep {
    Known(FormBody<'static>),
    /// Read up to [`FORM_BYTES`] of it.
    Read,
}

/// The form in a request's body, where its route needs one.
#[derive(Debug, Clone, Copy)]
pub enum FormBody<'h> {
    /// There is none, or nothing needs it.
    None,
    /// Its beginning, of about [`FORM_BYTES`] at most.
    Read(&'h [u8]),
    /// Not read, though an upstream might find a form there.
    Unread(UnreadForm),
    /// Not read, because the caller's address is denied anyway.
    Denied,
}

impl<'h> FormBody<'h> {
    pub(super) fn form(self) -> Form<'h> {
        match self {
            FormBody::None | FormBody::Denied => Form::None,
            FormBody::Read(text) if text.len() < FORM_BYTES => Form::Whole(text),
            FormBody::Read(_) => Form::Long,
            FormBody::Unread(why) => Form::Unread(why),
        }
    }
}

/// What is to be done about the token.
///
/// # Errors
/// If it is ambiguous which one that is.
pub(super) fn token_step<'a, 'h>(
    compiled: &'a Compiled,
    route: &RouteMatch<'_>,
    headers: &'h HeaderMap,
) -> Result<TokenStep<'a, 'h>, Fault> {
    let Some(verifier) = compiled.verifier.as_ref() else { return Ok(TokenStep::Unneeded) };
    if !route.needs.token && !compiled.token_required {
        return Ok(TokenStep::Unneeded);
    }
    match bearer(headers, jwt::is_token).map_err(KeyError::from)? {
        Some(token) => Ok(TokenStep::Verify(verifier, token)),
        None => Ok(TokenStep::Absent),
    }
}

/// The claims to go by. A token that does not verify is no identity. One that could not be checked
/// is refused: it may be anybody's, and counting it as nobody's would be a way around a limit. Any
/// token can be made too long by letters that some decoders pass over.
///
/// # Errors
/// If the request cannot be served with such a token, or without one.
pub(super) fn accept_token<C>(
    compiled: &Compiled,
    token: &[u8],
    verified: Result<C, Rejection>,
) -> Result<Option<C>, Fault> {
    match verified {
        Ok(claims) => Ok(Some(claims)),
        // An upstream whose decoder is less strict would accept it.
        Err(Rejection::Malformed) if jwt::is_misspelled(token) => {
            Err(KeyError::from(CredentialsError::Bearer).into())
        }
        Err(Rejection::TooLong) => Err(KeyError::from(CredentialsError::LongToken).into()),
        Err(Rejection::OverBudget) => Err(Fault::Unchecked),
        Err(_) if compiled.token_required => Err(Fault::Unauthorized),
        Err(_) => Ok(None),
    }
}

/// What is to be done about the body. A caller whose address is denied is not asked for one.
pub(super) fn form_step(
    route: &RouteMatch<'_>,
    address: &CallerAddress<'_>,
    headers: &HeaderMap,
    has_body: impl FnOnce() -> bool,
) -> FormStep {
    if !route.needs.form || !has_body() {
        return FormStep::Known(FormBody::None);
    }
    match BodyKind::of(headers) {
        BodyKind::Other => FormStep::Known(FormBody::None),
        BodyKind::Unread(why) => FormStep::Known(FormBody::Unread(why)),
        BodyKind::Form if address.access.is_denied() => FormStep::Known(FormBody::Denied),
        BodyKind::Form => FormStep::Read,
    }
}

/// Refuses a request that says two things in one source of an identity, whether its route reads that
/// source or not: gateway and upstream might each believe another one.
///
/// # Errors
/// If it does.
pub(super) fn reject_duplicates(compiled: &Compiled, headers: &HeaderMap) -> Result<(), Fault> {
    // Most requests have no field twice, and pay for no look-up.
    if headers.len() == headers.keys_len() {
        return Ok(());
    }
    let doubled = |name: &&HeaderName| headers.get_all(*name).iter().nth(1).is_some();
    if doubled(&&header::AUTHORIZATION) {
        return Err(KeyError::from(CredentialsError::Doubled).into());
    }
    match compiled.identity.headers().find(doubled) {
        Some(name) => Err(KeyError::Ambiguous(Source::Header(name.clone())).into()),
        None => Ok(()),
    }
}
