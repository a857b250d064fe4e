//! What a plan needs beyond the head of a request: the claims of its token, and the beginning of a
//! form. Most requests have nothing to wait for here, and pay for no future.

use std::mem;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;

use super::guarding::GuardBlock;
use super::plan::{
    AcceptedInputs, FORM_BYTES, FormBody, FormStep, PendingInputs, Planner, RequestHead,
    RequestPlan, TokenStep,
};
use super::{Gateway, RequestContext};
use crate::body::Body;
use crate::caller::Peer;
use crate::caller::jwt::{Claims, Rejection, Verifier};
use crate::clock::{self, unix_second};
use crate::http1::{BodyError, Framing};
use crate::limit::source::ClientCertificate;
use crate::respond::Fault;

/// The inputs of a plan, as far as they are there.
#[derive(Debug)]
pub(super) struct PlanInputs<'p> {
    certificate: Option<&'p ClientCertificate>,
    claims: Option<Arc<Claims>>,
    form: FormInput,
}

#[derive(Debug)]
enum FormInput {
    Known(FormBody<'static>),
    Read(Bytes),
}

impl<'p> PlanInputs<'p> {
    /// What is there before anything was read.
    pub(super) fn of(peer: &'p Peer) -> Self {
        let certificate = peer.certificate.as_deref();
        PlanInputs { certificate, claims: None, form: FormInput::Known(FormBody::None) }
    }

    pub(super) fn accepted(&self) -> AcceptedInputs<'_> {
        let form = match &self.form {
            FormInput::Known(form) => *form,
            FormInput::Read(bytes) => FormBody::Read(bytes),
        };
        let (certificate, claims) = (self.certificate, self.claims.as_deref());
        AcceptedInputs { claims, form, certificate }
    }
}

/// What there is to wait for.
#[derive(Debug)]
pub(super) struct InputSteps<'a, 'h> {
    /// A token that was not seen before.
    token: Option<UnverifiedToken<'a, 'h>>,
    /// Whether the body may be read.
    body: Result<(), BodyError>,
    reads_form: bool,
}

#[derive(Debug)]
struct UnverifiedToken<'a, 'h> {
    verifier: &'a Arc<Verifier>,
    token: &'h [u8],
}

/// Why the inputs of a request are not all there.
#[derive(Debug)]
pub(super) enum InputError<'a> {
    Fault(Fault),
    /// A guard has blocked the caller.
    Blocked(GuardBlock<'a>),
}

impl<F: Into<Fault>> From<F> for InputError<'_> {
    fn from(fault: F) -> Self {
        InputError::Fault(fault.into())
    }
}

impl Gateway {
    /// Fills in the inputs that are there, and finds out what there is to wait for.
    ///
    /// # Errors
    /// If the request is refused for its body, for what it says twice, or for its token.
    pub(super) fn known_inputs<'a, 'h>(
        &self,
        planner: Planner<'a>,
        plan: &RequestPlan<'_>,
        headers: &'h HeaderMap,
        body: &Body,
        inputs: &mut PlanInputs<'_>,
    ) -> Result<Option<InputSteps<'a, 'h>>, Fault> {
        let mut steps =
            InputSteps { token: None, body: body.reject_too_large(), reads_form: false };
        // Guards count a request by its caller, though its body is too large.
        if plan.route.guards.is_empty() {
            mem::replace(&mut steps.body, Ok(()))?;
        }
        planner.reject_duplicates(headers)?;
        match planner.token(&plan.route, headers)? {
            TokenStep::Unneeded => {}
            TokenStep::Absent => {
                inputs.claims = planner.accept_token(b"", Err(Rejection::Malformed))?;
            }
            TokenStep::Verify(verifier, token) => {
                match self.tokens.recall(verifier, token, unix_second()) {
                    Some(verified) => inputs.claims = planner.accept_token(token, verified)?,
                    None => steps.token = Some(UnverifiedToken { verifier, token }),
                }
            }
        }
        if steps.token.is_none() {
            mem::replace(&mut steps.body, Ok(()))?;
        }
        let has_body = || !matches!(body.framing(), Framing::Empty | Framing::Length(0));
        match planner.form(&plan.route, &plan.caller.address, headers, has_body) {
            FormStep::Known(form) => inputs.form = FormInput::Known(form),
            FormStep::Read => steps.reads_form = true,
        }
        Ok((steps.token.is_some() || steps.reads_form).then_some(steps))
    }

    /// Verifies the token, then reads the form. All of the body is still there to be forwarded. The
    /// caller that a guard has blocked costs neither.
    ///
    /// # Errors
    /// If there is no claim to go by, or the body cannot be read, or the caller is blocked.
    pub(super) async fn await_inputs<'a>(
        &'a self,
        request: &RequestContext<'a>,
        plan: &mut RequestPlan<'a>,
        steps: InputSteps<'_, '_>,
        headers: &HeaderMap,
        body: &mut Body,
        inputs: &mut PlanInputs<'_>,
    ) -> Result<(), InputError<'a>> {
        let planner = self.planner(request.config);
        let head = RequestHead::of(request.parts, headers);
        let form = steps.reads_form;
        if let Some(UnverifiedToken { verifier, token }) = steps.token {
            let pending = PendingInputs { token: true, form };
            self.reject_blocked(request, plan, head, inputs.accepted(), pending)?;
            let caller = planner.compiled.addresses.counted(plan.caller.address.caller.ip);
            let verified = self.tokens.verify(verifier, token, caller, unix_second).await;
            inputs.claims = planner.accept_token(token, verified)?;
        }
        steps.body.map_err(Fault::from)?;
        if form {
            let pending = PendingInputs { token: false, form };
            self.reject_blocked(request, plan, head, inputs.accepted(), pending)?;
            let beginning = body.read_ahead(FORM_BYTES).await.map_err(Fault::from)?;
            inputs.form = FormInput::Read(beginning);
        }
        // How long the store may take to decide is counted from the cached instant, which is from
        // before the wait.
        clock::refresh();
        Ok(())
    }

    /// Ends the way of a caller that a guard has blocked, as far as that is known yet.
    fn reject_blocked<'a>(
        &'a self,
        request: &RequestContext<'a>,
        plan: &mut RequestPlan<'a>,
        head: RequestHead<'_, '_>,
        inputs: AcceptedInputs<'_>,
        pending: PendingInputs,
    ) -> Result<(), InputError<'a>> {
        plan.plan_guards(self.planner(request.config), head, inputs, pending);
        match self.find_block(request, &plan.guards) {
            Some(block) => Err(InputError::Blocked(block)),
            None => Ok(()),
        }
    }
}
