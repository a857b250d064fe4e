//! One HTTP/2 connection to a server, with the streams that are open on it.
//!
//! hyper reads and writes the frames in tasks of the worker. A connection that ends, for whatever
//! reason, is marked here and takes no further requests; those under way end by themselves.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::http2_body::RequestBody;
use super::http2_senders::Senders;
use super::http2_stream::Http2Stream;
use super::http2_uploads::Uploads;
use super::record::ConnectionRecord;
use super::shared::LiveConnection;
use super::worker_connections::ConnectionReservation;
use crate::http2::LocalExecutor;
use crate::stream::{Stream, write_through_stream};

/// Streams at a time, if the server allows that many: as browsers and other proxies have it.
const MAX_STREAMS: usize = 100;
/// What a server may send of one response before it is passed on.
const STREAM_WINDOW: u32 = 64 * 1024;
/// Streams of events and of gRPC come in messages that are not much smaller than this.
const SMALL_MESSAGE: u32 = 16;
/// Room for all streams, so that clients that do not read hold up nobody else. Servers keep to the window
/// of each stream; this is larger because h2 charges some 256 bytes for each small frame that nobody has
/// read, and ends the connection when half of this window is charged.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW / SMALL_MESSAGE * 256 * MAX_STREAMS as u32 * 2;
/// How many streams that were reset are remembered, and for how long: what a server has sent by then is
/// still on its way, and legal. Each takes a few hundred bytes.
const REMEMBERED_RESETS: usize = 10_000;
const REMEMBERED_FOR: Duration = Duration::from_secs(5);
/// How often a server may send something for a stream that is forgotten. h2 never forgives any of it, so
/// its own 1024 would end a connection of many cancelled calls with all that are under way.
const STRAY_FRAMES: usize = 100_000;
/// How many more requests may be given up than are answered. Each resets its stream, and servers that
/// guard against floods of these end the connection after some hundred, with all that is under way.
const MAX_GIVEN_UP: u32 = 64;
/// What waits to be sent of one request.
const SEND_BUFFER: usize = 64 * 1024;
/// The largest head that the codec takes. It ends the whole connection over one that is four times as
/// large, or comes in a quarter more frames than this takes; so this is far more than a response may have.
const MAX_HEADER_LIST: u32 = 1024 * 1024;
/// How long a connection with open streams may be silent before it is asked for a sign of life. gRPC
/// servers end connections that ask more often than every five minutes.
const PING_INTERVAL: Duration = Duration::from_secs(305);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

type Driver = http2::Connection<TokioIo<ObservedStream>, RequestBody, LocalExecutor>;
/// What comes of a request.
pub(super) type SentRequest =
    Pin<Box<dyn Future<Output = Result<Response<Incoming>, TrySendError<Request<RequestBody>>>>>>;

#[derive(Debug)]
pub(super) struct Http2Connection {
    sender: http2::SendRequest<RequestBody>,
    /// Polled by its task; here it is only asked how many streams there may be. `None` once it has
    /// ended: requests that it has not taken up are returned when it is dropped.
    driver: Rc<RefCell<Option<Driver>>>,
    state: Rc<ConnectionState>,
    record: Box<ConnectionRecord>,
    /// It was made for one request, and no other is sent on it.
    pub(super) is_exclusive: bool,
    streams: Cell<usize>,
    /// Of these, the ones that did not end while it was given up for requests of other workers.
    long_streams: Cell<usize>,
    /// How often it was given up and taken back. Streams that were opened before are long.
    taken_back: Cell<u32>,
    /// Requests that were given up, less those that were answered since.
    given_up: Cell<u32>,
    pub(super) senders: Senders,
    pub(super) uploads: Rc<Uploads>,
    idle_since: Cell<Instant>,
    /// Requests that wait for a stream at this server.
    freed: Rc<Notify>,
    /// Among the connections of its worker, where these are counted.
    pub(super) reservation: Option<ConnectionReservation>,
}

/// What the tasks of a connection tell of it.
#[derive(Debug, Default)]
struct ConnectionState {
    /// When something was last received.
    last_read: Cell<Option<Instant>>,
    /// It takes no further requests.
    retired: Cell<bool>,
    /// Counts it as long as it takes requests of anybody.
    live: RefCell<Option<LiveConnection>>,
    /// Of who waits for the first frame of the server.
    settings_waker: RefCell<Option<Waker>>,
    /// Of the task that drives the connection. It learns of a GOAWAY only when it is polled.
    driver_waker: RefCell<Option<Waker>>,
}

impl ConnectionState {
    fn note_read(&self) {
        self.last_read.set(Some(Instant::now()));
        if let Some(waker) = &*self.driver_waker.borrow() {
            waker.wake_by_ref();
        }
        self.wake_handshake();
    }

    fn wake_handshake(&self) {
        if let Some(waker) = self.settings_waker.take() {
            waker.wake();
        }
    }

    fn retire(&self) {
        self.retired.set(true);
        self.live.take();
        self.wake_handshake();
    }
}

impl Http2Connection {
    /// Speaks first, and waits until the server has said what it allows.
    ///
    /// # Errors
    /// If it does not speak HTTP/2.
    pub(super) async fn handshake(
        stream: Stream,
        record: Box<ConnectionRecord>,
        freed: Rc<Notify>,
    ) -> io::Result<Self> {
        let state = Rc::<ConnectionState>::default();
        let io = TokioIo::new(ObservedStream { stream, state: state.clone() });
        let (sender, driver) = http2::Builder::new(LocalExecutor)
            .timer(TokioTimer::new())
            // None until the server has said how many: so nothing is sent that it would refuse, and
            // this is how it shows that it has.
            .initial_max_send_streams(0)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(SEND_BUFFER)
            .max_header_list_size(MAX_HEADER_LIST)
            .max_concurrent_reset_streams(REMEMBERED_RESETS)
            .reset_stream_duration(REMEMBERED_FOR)
            .max_local_error_reset_streams(STRAY_FRAMES)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .handshake(io)
            .await
            .map_err(io::Error::other)?;
        let driver = Rc::new(RefCell::new(Some(driver)));
        tokio::task::spawn_local(drive(driver.clone(), state.clone()));
        let (streams, idle_since) = (Cell::new(0), Cell::new(Instant::now()));
        let connection = Http2Connection {
            sender,
            driver,
            state,
            record,
            is_exclusive: false,
            streams,
            long_streams: Cell::new(0),
            taken_back: Cell::new(0),
            given_up: Cell::new(0),
            senders: Senders::default(),
            uploads: Rc::default(),
            idle_since,
            freed,
            reservation: None,
        };
        poll_fn(|cx| connection.poll_settings(cx)).await?;
        Ok(connection)
    }

    fn poll_settings(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.max_streams() > 0 {
            return Poll::Ready(Ok(()));
        }
        if self.state.retired.get() {
            let message = "it ended before it said anything in HTTP/2";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, message)));
        }
        *self.state.settings_waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }

    pub(super) fn record(&self) -> &ConnectionRecord {
        &self.record
    }

    /// It takes requests of anybody from now on.
    pub(super) fn count_live(&self, live: LiveConnection) {
        let live = Some(live).filter(|_| !self.is_retired());
        *self.state.live.borrow_mut() = live;
    }

    /// Whether it takes no further requests.
    pub(super) fn is_retired(&self) -> bool {
        // The server may have said so, and finish what is under way.
        if self.sender.is_closed() && !self.state.retired.get() {
            self.retire();
        }
        self.state.retired.get()
    }

    /// Has it take no further requests.
    pub(super) fn retire(&self) {
        self.state.retire();
    }

    pub(super) fn has_room(&self) -> bool {
        self.streams.get() < self.max_streams() && !self.is_retired()
    }

    /// Whether it takes several requests at a time.
    pub(super) fn is_shared(&self) -> bool {
        self.max_streams() > 1 && !self.is_retired()
    }

    /// How many streams there are.
    pub(super) fn streams(&self) -> usize {
        self.streams.get()
    }

    /// Whether it has a stream that may last as long as it likes, as far as is known.
    pub(super) fn has_long_streams(&self) -> bool {
        self.long_streams.get() > 0
    }

    /// It was given up for requests of other workers, and has not become free in time.
    pub(super) fn note_taken_back(&self) {
        self.taken_back.set(self.taken_back.get().wrapping_add(1));
        self.long_streams.set(self.streams.get());
        self.record.note_taken_back();
    }

    /// How many streams there may be at a time.
    fn max_streams(&self) -> usize {
        let driver = self.driver.borrow();
        driver.as_ref().map_or(0, |it| it.current_max_send_streams().min(MAX_STREAMS))
    }

    pub(super) fn is_idle(&self) -> bool {
        self.streams.get() == 0
    }

    /// Whether it has been idle for so long.
    pub(super) fn is_idle_for(&self, time: Duration, now: Instant) -> bool {
        self.is_idle() && now.saturating_duration_since(self.idle_since.get()) >= time
    }

    /// Takes room for one request until what this returns is dropped.
    pub(super) fn open_stream(self: &Rc<Self>) -> Http2Stream {
        self.streams.set(self.streams.get() + 1);
        Http2Stream::new(self.clone(), self.taken_back.get())
    }

    /// `taken_back`: how often it was when the stream was opened.
    pub(super) fn close_stream(&self, taken_back: u32) {
        self.streams.set(self.streams.get() - 1);
        if taken_back != self.taken_back.get() {
            self.long_streams.set(self.long_streams.get() - 1);
        }
        if self.is_idle() {
            self.idle_since.set(Instant::now());
            self.uploads.clear();
        }
        self.freed.notify_one();
    }

    pub(super) fn send(&self, request: Request<RequestBody>) -> SentRequest {
        Box::pin(self.sender.clone().try_send_request(request))
    }

    /// Whether anything was received within that time.
    pub(super) fn has_read_within(&self, time: Duration) -> bool {
        self.state.last_read.get().is_some_and(|last| last.elapsed() < time)
    }

    /// A request was given up before the head of its response came.
    pub(super) fn note_given_up(&self) {
        self.given_up.set(self.given_up.get().saturating_add(1));
    }

    /// The head of a response has come. It makes up for a request that was given up before.
    pub(super) fn note_answered(&self) {
        self.given_up.set(self.given_up.get().saturating_sub(1));
    }

    /// Whether the server may soon take it for the connection of an attacker.
    pub(super) fn is_worn(&self) -> bool {
        self.given_up.get() >= MAX_GIVEN_UP
    }
}

/// Has a connection do its work until it takes no further requests.
async fn drive(driver: Rc<RefCell<Option<Driver>>>, state: Rc<ConnectionState>) {
    let ended = poll_fn(|cx| {
        state.driver_waker.borrow_mut().get_or_insert_with(|| cx.waker().clone());
        match &mut *driver.borrow_mut() {
            Some(driver) => Pin::new(driver).poll(cx),
            None => Poll::Ready(Ok(())),
        }
    });
    if let Err(error) = ended.await {
        tracing::debug!(%error, "an HTTP/2 connection to an upstream has failed");
    }
    state.driver_waker.take();
    state.retire();
    let ended = driver.take();
    drop(ended);
}

/// The stream under a connection, which counts what comes.
#[derive(Debug)]
struct ObservedStream {
    stream: Stream,
    state: Rc<ConnectionState>,
}

impl AsyncRead for ObservedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if read.is_ready() {
            self.state.note_read();
        }
        read
    }
}

write_through_stream!(ObservedStream);
