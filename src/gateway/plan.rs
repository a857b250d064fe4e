//! What the gateway is going to do about a request, before it does anything.
//!
//! A plan follows from the compiled configuration, the head and the peer: the route and why, the
//! caller and where each of its names was found, what the access lists say, how far it is trusted, and
//! each limit with its bucket, numbers and cost. Nothing here waits, counts or asks a store, so the
//! same functions serve requests and can explain them.
//!
//! Two inputs have to be waited for, on the routes that need them: the claims of a token and the
//! beginning of a form. [`Planner`] has the steps one by one for the gateway, which waits between
//! them; [`RequestPlan::of`] is all of them at once, for those who have every input. A plan borrows
//! nothing from the headers; what it says of them in words is made on demand ([`PlanTexts`]).

mod access;
mod affinity;
mod caller;
mod guards;
mod identity_fields;
mod limits;
mod route;
mod tenants;
mod texts;
mod trust;

use std::borrow::Cow;

use http::{HeaderMap, Method, Uri, request};

pub use access::{AccessReason, AccessSubject, AccessVerdict};
pub use affinity::{RequestAffinity, RouteAffinity};
pub use caller::{CallerAddress, FORM_BYTES, FormBody, FormStep, PlannedCaller, TokenStep};
pub use guards::{PendingInputs, PlannedGuard, PlannedGuards};
pub use identity_fields::IdentityFields;
pub use limits::{DeferredLimit, PlannedLimits, SkipReason, SkippedLimit};
pub use route::{RouteMatch, RouteReason};
pub use texts::{CallerTexts, PlanSource, PlanTexts};
pub use trust::{PlannedTrust, ScoreReason};

use super::compiled::Compiled;
use crate::caller::Peer;
use crate::caller::identity::{FoundNames, NameSources, WantedNames};
use crate::caller::jwt::{Claims, Rejection};
use crate::limit::key::KeyError;
use crate::limit::source::{self, ClientCertificate, Identities, KeyInput, RequestFacts};
use crate::limit::tenants::TenantTree;
use crate::respond::Fault;
use crate::route::bare_host;
use crate::store::BucketHasher;
use crate::trust::TrustTable;

/// Everything that is going to be done about one request.
#[derive(Debug)]
pub struct RequestPlan<'a> {
    pub route: RouteMatch<'a>,
    pub caller: PlannedCaller<'a>,
    pub access: AccessVerdict,
    /// None for a caller that a list allows or denies, and so the limits.
    pub guards: PlannedGuards<'a>,
    /// Where a limit of the route is adaptive.
    pub trust: Option<PlannedTrust>,
    pub limits: PlannedLimits<'a>,
    /// Where the upstream's servers are chosen by something of the request.
    pub affinity: RequestAffinity,
}

/// The head of a request. The headers live apart: they are used up while the rest is still needed.
#[derive(Debug, Clone, Copy)]
pub struct RequestHead<'a, 'h> {
    pub method: &'a Method,
    pub uri: &'a Uri,
    pub headers: &'h HeaderMap,
}

/// What a route may need of a request beyond its head.
#[derive(Debug, Clone, Copy)]
pub struct RequestInputs<'h> {
    /// What came of verifying the token, if the request has one.
    pub token: Option<Result<&'h Claims, Rejection>>,
    /// The beginning of the body, if there is one.
    pub body: Option<&'h [u8]>,
    /// What the client's certificate says, if it has shown one.
    pub certificate: Option<&'h ClientCertificate>,
}

/// The same, once it is clear what of it counts.
#[derive(Debug, Clone, Copy)]
pub struct AcceptedInputs<'h> {
    pub claims: Option<&'h Claims>,
    pub form: FormBody<'h>,
    pub certificate: Option<&'h ClientCertificate>,
}

/// Plans requests by one configuration.
#[derive(Debug, Clone, Copy)]
pub struct Planner<'a> {
    pub compiled: &'a Compiled,
    pub hasher: &'a BucketHasher,
    /// This process's name in `Via`.
    pub via: &'a str,
    /// What is known of users.
    pub trust: &'a TrustTable,
}

impl<'a, 'h> RequestHead<'a, 'h> {
    /// A head whose headers were taken out of it.
    pub fn of(parts: &'a request::Parts, headers: &'h HeaderMap) -> Self {
        RequestHead { method: &parts.method, uri: &parts.uri, headers }
    }
}

impl<'a> RequestPlan<'a> {
    /// The plan of a request whose inputs are all there.
    ///
    /// # Errors
    /// If the request is answered without asking a limit, except by an access list.
    pub fn of(
        planner: Planner<'a>,
        head: RequestHead<'a, '_>,
        peer: &Peer,
        inputs: RequestInputs<'_>,
    ) -> Result<Self, Fault> {
        let route = planner.route(head)?;
        let address = planner.address(peer, head.headers);
        planner.reject_duplicates(head.headers)?;
        let inputs = planner.accept(&route, &address, head.headers, inputs)?;
        let mut plan = RequestPlan::begin(route, address);
        plan.complete(planner, planner.compiled.tenants.tree(), head, inputs)?;
        Ok(plan)
    }

    /// A plan of which route and address are known.
    #[inline(always)]
    pub fn begin(route: RouteMatch<'a>, address: CallerAddress<'a>) -> Self {
        let (access, names) = (address.access, NameSources::default());
        let caller = PlannedCaller { address, names, identity: IdentityFields::new() };
        let (guards, limits) = (PlannedGuards::default(), PlannedLimits::default());
        let affinity = RequestAffinity::default();
        RequestPlan { route, caller, access, guards, trust: None, limits, affinity }
    }

    /// The last step: names, access, guards and limits. They are filled in where the plan lies,
    /// because it is large and a request should not pay for moving it. `tree` has the tenants of the
    /// configuration.
    ///
    /// # Errors
    /// If the request lacks something that a limit needs, or says something twice that a limit or a
    /// guard asks for. Its guards are planned all the same.
    pub fn complete(
        &mut self,
        planner: Planner<'a>,
        tree: &TenantTree,
        head: RequestHead<'_, '_>,
        inputs: AcceptedInputs<'_>,
    ) -> Result<(), Fault> {
        if matches!(inputs.form, FormBody::Denied) {
            return Ok(());
        }
        let host = planner.counted_host(&self.route);
        let facts = facts(head, &host, inputs);
        let (mut found, mut readable) = (FoundNames::default(), Ok(()));
        // Most routes ask for no name, and pay for none.
        if self.route.needs.names != WantedNames::default() {
            match planner.names(&self.route, &facts) {
                Ok(names) => found = names,
                Err(error) => readable = Err(error),
            }
            self.caller.names = found.sources;
            self.access = self.access.with_names(&planner.compiled.access, &found.names);
        }
        let forward = &planner.compiled.settings.identity.forward;
        if !forward.is_empty() {
            let ip = self.caller.address.caller.ip;
            self.caller.identity = identity_fields::identity_fields(forward, &found.names, ip);
        }
        let is_counted = self.access == AccessVerdict::Neither;
        let key = planner.key_input(&self.route, &self.caller.address, facts, &found.names);
        if is_counted && !self.route.guards.is_empty() {
            let (pending, keys) = (PendingInputs::default(), &mut self.limits.keys);
            let guards = self.route.guards;
            let guarded = self.guards.collect(planner, guards, pending, head.method, &key, keys);
            readable = readable.and(guarded);
        }
        readable?;
        if let Some(affinity) = self.route.affinity {
            self.affinity = affinity.of(&key);
        }
        if is_counted {
            if self.route.needs.trust {
                let trust = PlannedTrust::of(planner, &key.facts, &found);
                self.limits.score = trust.score;
                self.trust = Some(trust);
            }
            self.limits.collect(planner, self.route.limits, head.method, &key)?;
            if let Some(tenants) = self.route.tenants {
                self.limits.collect_tenants(planner, tree, tenants, head.method, &key)?;
            }
        }
        Ok(())
    }

    /// The guards alone: of a request that gets no further, or that has inputs to wait for. While an
    /// access list may still have a say, there are none.
    pub fn plan_guards(
        &mut self,
        planner: Planner<'a>,
        head: RequestHead<'_, '_>,
        inputs: AcceptedInputs<'_>,
        pending: PendingInputs,
    ) {
        self.guards = PlannedGuards::default();
        let Compiled { identity, access, .. } = planner.compiled;
        let is_unsure = access.iter().any(|list| pending.concern_access(identity, list));
        if self.route.guards.is_empty() || is_unsure {
            return;
        }
        let host = planner.counted_host(&self.route);
        let facts = facts(head, &host, inputs);
        // Names that can be read in two ways are nobody's.
        let found = planner.names(&self.route, &facts).unwrap_or_default();
        let access = self.access.with_names(access, &found.names);
        if access == AccessVerdict::Neither {
            let key = planner.key_input(&self.route, &self.caller.address, facts, &found.names);
            let (guards, keys) = (self.route.guards, &mut self.limits.keys);
            // The request is refused for what it has failed with, or by the whole plan.
            let _ = self.guards.collect(planner, guards, pending, head.method, &key, keys);
        }
    }
}

impl<'a> Planner<'a> {
    /// # Errors
    /// If the request has no route, or must not be forwarded at all.
    pub fn route(self, head: RequestHead<'a, '_>) -> Result<RouteMatch<'a>, Fault> {
        RouteMatch::find(self, head)
    }

    /// Whose address counts, and what the access lists say of it: the one time that they are asked
    /// by address.
    pub fn address(self, peer: &Peer, headers: &HeaderMap) -> CallerAddress<'a> {
        let Compiled { addresses, access, .. } = self.compiled;
        let caller = addresses.caller(peer, headers);
        let source = addresses.source(caller, peer, headers);
        CallerAddress { caller, source, access: AccessVerdict::of_address(access, caller.ip) }
    }

    /// Refuses a request that names its caller twice in one place.
    ///
    /// # Errors
    /// If it does.
    pub fn reject_duplicates(self, headers: &HeaderMap) -> Result<(), Fault> {
        caller::reject_duplicates(self.compiled, headers)
    }

    /// What is to be done about the token.
    ///
    /// # Errors
    /// If it is ambiguous which one that is.
    pub fn token<'h>(
        self,
        route: &RouteMatch<'_>,
        headers: &'h HeaderMap,
    ) -> Result<TokenStep<'a, 'h>, Fault> {
        caller::token_step(self.compiled, route, headers)
    }

    /// The claims to go by, after a token was verified.
    ///
    /// # Errors
    /// If the request cannot be served with such a token, or without one.
    pub fn accept_token<C>(
        self,
        token: &[u8],
        verified: Result<C, Rejection>,
    ) -> Result<Option<C>, Fault> {
        caller::accept_token(self.compiled, token, verified)
    }

    /// What is to be done about the body.
    pub fn form(
        self,
        route: &RouteMatch<'_>,
        address: &CallerAddress<'_>,
        headers: &HeaderMap,
        has_body: impl FnOnce() -> bool,
    ) -> FormStep {
        caller::form_step(route, address, headers, has_body)
    }

    /// Which of the inputs count.
    fn accept<'h>(
        self,
        route: &RouteMatch<'_>,
        address: &CallerAddress<'_>,
        headers: &HeaderMap,
        inputs: RequestInputs<'h>,
    ) -> Result<AcceptedInputs<'h>, Fault> {
        let absent = Err(Rejection::Malformed);
        let claims = match self.token(route, headers)? {
            TokenStep::Unneeded => None,
            TokenStep::Absent => self.accept_token(b"", absent)?,
            TokenStep::Verify(_, token) => {
                self.accept_token(token, inputs.token.unwrap_or(absent))?
            }
        };
        let body = inputs.body.unwrap_or_default();
        let form = match self.form(route, address, headers, || !body.is_empty()) {
            FormStep::Known(form) => form,
            FormStep::Read => FormBody::Read(body),
        };
        Ok(AcceptedInputs { claims, form, certificate: inputs.certificate })
    }

    /// The host in one spelling, if a limit counts by it.
    fn counted_host<'r>(self, route: &'r RouteMatch<'_>) -> Cow<'r, str> {
        if self.compiled.counts_host { bare_host(route.host()) } else { Cow::Borrowed("") }
    }

    fn names<'r>(
        self,
        route: &RouteMatch<'_>,
        facts: &RequestFacts<'r>,
    ) -> Result<FoundNames<'a, 'r>, KeyError>
    where
        'a: 'r,
    {
        self.compiled.identity.find(facts, route.needs.names)
    }

    fn key_input<'r>(
        self,
        route: &RouteMatch<'r>,
        address: &CallerAddress<'_>,
        facts: RequestFacts<'r>,
        names: &'r Identities<'r>,
    ) -> KeyInput<'r> {
        KeyInput {
            ip: self.compiled.addresses.counted(address.caller.ip),
            whole_ip: address.caller.ip,
            route: &route.settings.name,
            facts,
            who: names,
        }
    }
}

fn facts<'r>(
    head: RequestHead<'r, 'r>,
    host: &'r str,
    inputs: AcceptedInputs<'r>,
) -> RequestFacts<'r> {
    RequestFacts {
        headers: head.headers,
        host,
        query: head.uri.query(),
        form: inputs.form.form(),
        claims: inputs.claims.map(|claims| claims as &dyn source::Claims),
        certificate: inputs.certificate,
    }
}

#[cfg(test)]
mod tests;
