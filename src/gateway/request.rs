//! One request on its way: what it is, and what is used up along the way.

use std::rc::Rc;

use http::{HeaderMap, Request, request};
use smallvec::SmallVec;
use tokio::time::Instant;

use super::guard::RequestGuard;
use super::plan::AccessVerdict;
use super::signals::RequestSignals;
use super::worker_config::WorkerConfig;
use crate::body::Body;
use crate::caller::Peer;
use crate::protocol::Protocol;
use crate::respond::{Answer, Fault};
use crate::store::BucketId;
use crate::telemetry::{AccessOutcome, RequestMeter};

/// What ends with a request: its meter is recorded and then its guard dropped, when the body of its
/// answer or its tunnel has ended.
#[derive(Debug)]
pub struct RequestEnd {
    meter: RequestMeter,
    // Declared after the meter, so that it is dropped after it.
    pub(super) _guard: RequestGuard,
}

impl RequestEnd {
    /// Counts what the client is sent of the body.
    #[inline]
    pub(crate) fn note_sent(&mut self, bytes: usize) {
        self.meter.sent(bytes);
    }
}

/// A client's request.
#[derive(Debug)]
pub struct ClientRequest {
    pub parts: request::Parts,
    pub body: Body,
}

impl From<Request<Body>> for ClientRequest {
    fn from(request: Request<Body>) -> Self {
        let (parts, body) = request.into_parts();
        ClientRequest { parts, body }
    }
}

/// A request and the answer to it, which has nothing in it yet. The request is used up and the answer
/// filled in where they lie, because both are large and a request should not pay for moving them.
#[derive(Debug)]
pub struct ClientExchange<'a> {
    pub client: &'a mut ClientRequest,
    pub signals: Rc<RequestSignals>,
    pub answer: &'a mut Answer,
}

/// A request on its way, without what is used up along it.
#[derive(Debug)]
pub(super) struct RequestContext<'a> {
    pub config: &'a Rc<WorkerConfig>,
    pub peer: &'a Peer,
    pub parts: &'a request::Parts,
    pub protocol: Protocol,
    pub started: Instant,
}

/// What is used up along the way of a request.
#[derive(Debug)]
pub(super) struct RequestContent<'a> {
    pub headers: HeaderMap,
    pub body: &'a mut Body,
    pub counted_by: CountedBy,
}

/// The guards that have counted a request, each by its key.
pub(super) type CountedBy = SmallVec<[BucketId; 1]>;

impl RequestContext<'_> {
    /// Counts what the access lists say, and refuses callers that they deny.
    pub(super) fn check_access(&self, access: AccessVerdict) -> Result<(), Fault> {
        match access {
            AccessVerdict::Neither => {}
            AccessVerdict::Allowed(_) => self.config.access_meter.count(AccessOutcome::Allowed),
            AccessVerdict::Denied(_) => {
                self.config.access_meter.count(AccessOutcome::Denied);
                return Err(Fault::Denied);
            }
        }
        Ok(())
    }
}

/// Has an answer take along what ends with it.
#[inline]
pub(super) fn finish(answer: &mut Answer, mut meter: RequestMeter, guard: RequestGuard) {
    if let Some(record) = meter.record() {
        record.mark_answer(answer.response.headers_mut());
    }
    // A request that was only finished for its charges has no client to answer.
    if !guard.signals().client_has_left() {
        meter.answered(answer.response.status());
    }
    answer.end = Some(RequestEnd { meter, _guard: guard });
}
