//! What hyper calls once for each stream of a connection.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::Service;

use super::activity::ConnectionActivity;
use super::answer_body::AnswerBody;
use super::request::{self, Rejection};
use super::response;
use super::stream_answer::StreamAnswer;
use super::stream_progress::StreamProgress;
use crate::listen::connection::ConnectionContext;
use crate::listen::service::ConnectionService;
use crate::respond::{Answer, Fault};

pub(super) struct StreamService {
    pub(super) service: ConnectionService,
    pub(super) context: ConnectionContext,
    pub(super) activity: Rc<ConnectionActivity>,
}

/// A stream that is reset, and that is all the client hears: its message is malformed, or it came too
/// late.
#[derive(Debug, thiserror::Error)]
#[error("the stream is reset")]
pub(super) struct StreamReset(#[source] h2::Error);

/// What comes of a stream.
pub(super) enum StreamOutcome {
    Answer(StreamAnswer),
    Rejected(Option<Box<Response<AnswerBody>>>),
    Reset(h2::Reason),
}

impl Service<Request<Incoming>> for StreamService {
    type Response = Response<AnswerBody>;
    type Error = StreamReset;
    type Future = StreamOutcome;

    fn call(&self, request: Request<Incoming>) -> StreamOutcome {
        if !self.activity.takes_streams() {
            self.activity.note_refused();
            // It was not looked at, so the client may send it again elsewhere: RFC 9113 section 8.7.
            return StreamOutcome::Reset(h2::Reason::REFUSED_STREAM);
        }
        let progress = StreamProgress::begin(&self.activity);
        self.activity.hand_over(progress.clone());
        let settings = self.context.settings.borrow().clone();
        let method = request.method().clone();
        match request::accept(request, &settings, &self.context.control.lingering) {
            Ok(request) => {
                let (client, control) = (request.into(), self.context.control.clone());
                let answer = StreamAnswer::new(client, &self.service, progress, control);
                StreamOutcome::Answer(answer)
            }
            Err(Rejection::Fault(fault)) => {
                self.service.note_unparsed(&fault);
                let answer = Answer::from(fault);
                StreamOutcome::Rejected(Some(Box::new(response::of_answer(
                    answer, &method, progress,
                ))))
            }
            Err(Rejection::Malformed) => {
                self.service.note_unparsed(&Fault::Target("the stream is malformed"));
                StreamOutcome::Reset(h2::Reason::PROTOCOL_ERROR)
            }
        }
    }
}

impl Future for StreamOutcome {
    type Output = Result<Response<AnswerBody>, StreamReset>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            StreamOutcome::Answer(answer) => answer.poll(cx).map(Ok),
            StreamOutcome::Rejected(response) => match response.take() {
                Some(response) => Poll::Ready(Ok(*response)),
                None => Poll::Pending,
            },
            StreamOutcome::Reset(reason) => Poll::Ready(Err(StreamReset((*reason).into()))),
        }
    }
}
