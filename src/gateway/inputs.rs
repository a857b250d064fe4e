//! What a plan needs beyond the head of a request: the claims of its token, and the beginning of a
//! form. Most requests have nothing to wait for here, and pay for no future.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;

use super::Gateway;
use super::plan::{
    AcceptedInputs, FORM_BYTES, FormBody, FormStep, Planner, RequestPlan, TokenStep,
};
use crate::body::Body;
use crate::caller::jwt::{Claims, Rejection, Verifier};
use crate::clock::unix_second;
use crate::http1::Framing;
use crate::respond::Fault;

/// All inputs of a plan.
#[derive(Debug)]
pub(super) struct PlanInputs {
    claims: Option<Arc<Claims>>,
    form: FormInput,
}

#[derive(Debug)]
enum FormInput {
    Known(FormBody<'static>),
    Read(Bytes),
}

impl PlanInputs {
    pub(super) fn accepted(&self) -> AcceptedInputs<'_> {
        let form = match &self.form {
            FormInput::Known(form) => *form,
            FormInput::Read(bytes) => FormBody::Read(bytes),
        };
        AcceptedInputs { claims: self.claims.as_deref(), form }
    }
}

/// What is known of the inputs without waiting.
#[derive(Debug)]
pub(super) struct InputSteps<'a, 'h> {
    token: TokenClaims<'a, 'h>,
    form: FormStep,
}

/// The claims of a request's token, or what it takes to have them.
#[derive(Debug)]
enum TokenClaims<'a, 'h> {
    /// The claims to go by, if any are.
    Known(Option<Arc<Claims>>),
    /// The token was not seen before.
    Unverified(&'a Arc<Verifier>, &'h [u8]),
}

impl InputSteps<'_, '_> {
    /// The inputs, if there is nothing to wait for.
    pub(super) fn known(self) -> Result<PlanInputs, Self> {
        match self {
            InputSteps { token: TokenClaims::Known(claims), form: FormStep::Known(form) } => {
                Ok(PlanInputs { claims, form: FormInput::Known(form) })
            }
            waiting => Err(waiting),
        }
    }
}

impl Gateway {
    /// Finds out what there is to wait for.
    pub(super) fn input_steps<'a, 'h>(
        &self,
        planner: Planner<'a>,
        plan: &RequestPlan<'_>,
        headers: &'h HeaderMap,
        body: &Body,
    ) -> Result<InputSteps<'a, 'h>, Fault> {
        let token = match planner.token(&plan.route, headers)? {
            TokenStep::Unneeded => TokenClaims::Known(None),
            TokenStep::Absent => {
                TokenClaims::Known(planner.accept_token(b"", Err(Rejection::Malformed))?)
            }
            TokenStep::Verify(verifier, token) => {
                match self.tokens.recall(verifier, token, unix_second()) {
                    Some(verified) => TokenClaims::Known(planner.accept_token(token, verified)?),
                    None => TokenClaims::Unverified(verifier, token),
                }
            }
        };
        let has_body = || !matches!(body.framing(), Framing::Empty | Framing::Length(0));
        let form = planner.form(&plan.route, &plan.caller.address, headers, has_body);
        Ok(InputSteps { token, form })
    }

    /// Verifies the token, then reads the form. All of the body is still there to be forwarded.
    pub(super) async fn await_inputs(
        &self,
        planner: Planner<'_>,
        plan: &RequestPlan<'_>,
        steps: InputSteps<'_, '_>,
        body: &mut Body,
    ) -> Result<PlanInputs, Fault> {
        let claims = match steps.token {
            TokenClaims::Known(claims) => claims,
            TokenClaims::Unverified(verifier, token) => {
                let caller = planner.compiled.addresses.counted(plan.caller.address.caller.ip);
                let verified = self.tokens.verify(verifier, token, caller, unix_second).await;
                planner.accept_token(token, verified)?
            }
        };
        let form = match steps.form {
            FormStep::Known(form) => FormInput::Known(form),
            FormStep::Read => FormInput::Read(body.read_ahead(FORM_BYTES).await?),
        };
        Ok(PlanInputs { claims, form })
    }
}
