//! One client connection that speaks HTTP/2: hyper reads and writes its frames, and each stream is a
//! request of its own, with its own task, signals and deadlines.

mod activity;
mod answer_body;
mod frame_budget;
mod frame_scanner;
mod guarded_io;
mod request;
mod response;
mod stream_answer;
mod stream_executor;
mod stream_progress;
mod stream_service;
mod unanswered_streams;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use hyper::server::conn::http2;
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use super::connection::{ConnectionContext, DRAIN_GRACE};
use super::service::ConnectionService;
use crate::config::settings;
use crate::deadline::Deadline;
use crate::http1::BufferedStream;
use crate::http2::ConnectionIo;
use activity::ConnectionActivity;
use frame_budget::FloodError;
use guarded_io::GuardedIo;
use stream_executor::StreamExecutor;
use stream_service::StreamService;

/// The largest window there is: RFC 9113 section 6.9.1.
const MAX_WINDOW: u32 = i32::MAX as u32;
/// How much of one stream's answer the codec may hold until the client has room for it.
const SEND_BUFFER: usize = 32 * 1024;

type Connection = http2::Connection<TokioIo<GuardedIo>, StreamService, StreamExecutor>;

/// Serves one connection to its end.
pub(super) async fn serve(
    io: BufferedStream,
    context: ConnectionContext,
    service: ConnectionService,
) {
    let settings = context.settings.borrow().clone();
    let http2 = settings.http2.unwrap_or_default();
    let activity = Rc::new(ConnectionActivity::new(http2.max_streams));
    let io = GuardedIo::new(
        ConnectionIo::from(io),
        activity.clone(),
        context.settings.clone(),
        http2.max_streams,
    );
    let executor = StreamExecutor::new(activity.clone(), context.settings.clone());
    let builder = builder(&settings, http2, executor);
    let streams = StreamService {
        service: service.clone(),
        context: context.clone(),
        activity: activity.clone(),
    };
    let mut lifetime = Lifetime {
        context,
        activity: activity.clone(),
        deadline: Deadline::default(),
        ending: None,
    };
    let error = {
        let mut connection = pin!(builder.serve_connection(io, streams));
        poll_fn(|cx| lifetime.poll(connection.as_mut(), cx)).await
    };
    let by_codec = || error.as_ref().and_then(FloodError::seen_by_codec);
    if let Some(flood) = activity.flood().or_else(by_codec) {
        service.note_flood(flood.reason());
    }
    // The worker counts the connection, and a drain waits for it, until this is done.
    activity.all_ended().await;
}

fn builder(
    settings: &settings::Server,
    http2: settings::Http2,
    executor: StreamExecutor,
) -> http2::Builder<StreamExecutor> {
    let mut builder = http2::Builder::new(executor);
    builder
        .max_concurrent_streams(http2.max_streams)
        .max_header_list_size(u32::try_from(settings.max_header_bytes).unwrap_or(u32::MAX))
        .initial_stream_window_size(http2.stream_window)
        // Room for all of them, so that bodies that no upstream takes hold up no other: whoever is
        // waited for has a window.
        .initial_connection_window_size(
            http2.stream_window.saturating_mul(http2.max_streams).min(MAX_WINDOW),
        )
        .max_send_buf_size(SEND_BUFFER);
    builder
}

/// When a connection ends that its client does not end.
struct Lifetime {
    context: ConnectionContext,
    activity: Rc<ConnectionActivity>,
    deadline: Deadline,
    /// Since when the client has been told to open no more streams.
    ending: Option<Instant>,
}

impl Lifetime {
    /// Ready when the connection is over, with the error that ended it, if one did.
    fn poll(
        &mut self,
        mut connection: Pin<&mut Connection>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Error>> {
        loop {
            if self.context.control.draining.get() && self.ending.is_none() {
                self.end(connection.as_mut());
            }
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                return Poll::Ready(ended.err());
            }
            let Some(at) = self.ends_at() else { return Poll::Pending };
            self.deadline.set(at);
            if self.deadline.poll::<()>(cx).is_pending() {
                return Poll::Pending;
            }
            if self.ending.is_some() || !self.is_idle() {
                return Poll::Ready(None);
            }
            self.end(connection.as_mut());
        }
    }

    /// Tells the client to open no more streams; those that are open go on. hyper takes further ones
    /// until the client has confirmed that with a `PING`, which it may never do.
    fn end(&mut self, connection: Pin<&mut Connection>) {
        connection.graceful_shutdown();
        let now = Instant::now();
        let grace = DRAIN_GRACE.min(self.context.settings.borrow().drain);
        self.activity.close_at(now + grace);
        self.ending = Some(now);
    }

    /// Whether the client has been served and asks for nothing more: then it is told so first.
    fn is_idle(&self) -> bool {
        self.activity.seen() > 0 && self.activity.partial_since().is_none()
    }

    /// When it is over if nothing changes until then.
    fn ends_at(&self) -> Option<Instant> {
        let settings = self.context.settings.borrow();
        // Waiting for the end of a header, whatever else is under way.
        let header = self.activity.partial_since().map(|since| since + settings.header_timeout);
        let idle = self.activity.idle_since().map(|since| match self.ending {
            Some(told) => since.max(told) + DRAIN_GRACE.min(settings.drain),
            None if self.activity.seen() > 0 => since + settings.idle_timeout,
            None => since + settings.header_timeout,
        });
        header.into_iter().chain(idle).min()
    }
}
