//! Answering one stream, and what becomes of its request if the client resets it.
//!
//! A request that waits in a queue is dropped, and with it its place. One whose limits are being decided
//! goes on until that is done, so that opening a stream and resetting it at once is charged as any other;
//! one that is charged by its response goes on until that is there. Both do so without the client.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use http::{Method, Response};

use super::answer_body::AnswerBody;
use super::response;
use super::stream_progress::StreamProgress;
use crate::gateway::{ClientRequest, RequestSignals};
use crate::listen::control::ConnectionControl;
use crate::listen::service::ConnectionService;
use crate::respond::{Answer, Fault};

type Answering = Pin<Box<dyn Future<Output = Answer>>>;

/// A request on its way through the gateway.
pub(super) struct StreamAnswer {
    /// `None` once it is answered.
    answering: Option<Answering>,
    signals: Rc<RequestSignals>,
    method: Method,
    progress: StreamProgress,
    control: Rc<ConnectionControl>,
}

impl StreamAnswer {
    pub(super) fn new(
        client: ClientRequest,
        service: &ConnectionService,
        progress: StreamProgress,
        control: Rc<ConnectionControl>,
    ) -> Self {
        let (signals, method) = (Rc::<RequestSignals>::default(), client.parts.method.clone());
        let answering = Box::pin(service.answer_owned(client, signals.clone()));
        StreamAnswer { answering: Some(answering), signals, method, progress, control }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Response<AnswerBody>> {
        let Some(answering) = &mut self.answering else { return Poll::Pending };
        // A panic costs the stream that caused it, and nothing else.
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| answering.as_mut().poll(cx)));
        let answer = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(answer)) => answer,
            Err(_) => Fault::Internal.into(),
        };
        self.answering = None;
        Poll::Ready(response::of_answer(answer, &self.method, self.progress.clone()))
    }
}

impl Drop for StreamAnswer {
    fn drop(&mut self) {
        let Some(answering) = self.answering.take() else { return };
        self.signals.note_client_left();
        if must_go_on(&self.signals) && !self.control.closing.get() {
            tokio::task::spawn_local(finish(
                answering,
                self.signals.clone(),
                self.progress.clone(),
            ));
        }
    }
}

/// Whether a request whose client has left is still to be charged.
fn must_go_on(signals: &RequestSignals) -> bool {
    signals.awaits_charge() || !(signals.is_decided() || signals.is_waiting())
}

/// Drives a request without its client until nothing is left to be charged.
async fn finish(mut answering: Answering, signals: Rc<RequestSignals>, _progress: StreamProgress) {
    poll_fn(|cx| match answering.as_mut().poll(cx) {
        Poll::Pending if must_go_on(&signals) => Poll::Pending,
        _ => Poll::Ready(()),
    })
    .await;
}
