//! One client connection: requests in, answers out, in order, until either side has enough.

use std::cell::{Cell, OnceCell, RefCell};
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tower::Service;

use super::ending::End;
use super::presence::Presence;
use super::request::{self, Terms};
use super::response::{self, WriteError};
use crate::body::Body;
use crate::caller::Peer;
use crate::clock;
use crate::config::settings;
use crate::http1::{Decoder, Framing, Head, Inbound, Wire};
use crate::respond::{Answer, Fault};

/// What is left of a refused body is read and dropped up to this size; beyond it the connection
/// is closed instead.
const DISCARD: u64 = 64 * 1024;
/// While draining, a connection without a request gets this long to send one more.
pub(super) const GRACE: Duration = Duration::from_secs(1);
/// After so many answers the other connections get their turn, however much is pipelined here.
const TURN: u32 = 32;

/// What a worker and its connections tell each other.
#[derive(Debug, Default)]
pub struct Control {
    pub(super) draining: Cell<bool>,
    pub(super) closing: Cell<bool>,
    /// How many connections of the worker are read from only to be closed.
    pub(super) lingering: Rc<Cell<usize>>,
    waker: RefCell<Option<Waker>>,
    task: OnceCell<AbortHandle>,
}

impl Control {
    #[must_use]
    pub fn new(lingering: &Rc<Cell<usize>>) -> Self {
        Control { lingering: lingering.clone(), ..Control::default() }
    }

    /// Answer what is under way, then close.
    pub fn drain(&self) {
        self.draining.set(true);
        self.wake();
    }

    /// Close tunnels, too.
    pub fn close(&self) {
        self.closing.set(true);
        self.wake();
    }

    /// Has the task that asks woken by what it is told. Its waker never changes, so it is kept once
    /// and not with every poll.
    pub(super) async fn attend(&self) {
        poll_fn(|cx| {
            *self.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Ready(())
        })
        .await;
    }

    /// What serves the connection.
    pub fn is_served_by(&self, task: AbortHandle) {
        let _ = self.task.set(task);
    }

    /// End now, whatever is under way.
    pub fn abort(&self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

/// The settings of the configuration that is served now.
pub type ServerSettings = RefCell<Rc<settings::Server>>;

/// Serves one connection to its end. `complained` hears of requests that could not be read and
/// so never reached the service.
pub async fn serve<S>(
    wire: Wire,
    settings: &ServerSettings,
    (control, peer): (&Control, &Peer),
    mut service: S,
    complained: impl Fn(&Fault),
) where
    S: Service<Request<Body>, Response = Answer, Error = Infallible>,
{
    let inbound = Rc::new(RefCell::new(Inbound::new(wire)));
    let current = settings.borrow().clone();
    let mut connection = Connection { inbound, settings: current, control, peer };
    let end = connection.run(settings, &mut service, complained).await;
    connection.end(end).await;
}

pub(super) struct Connection<'a> {
    pub(super) inbound: Rc<RefCell<Inbound>>,
    pub(super) settings: Rc<settings::Server>,
    pub(super) control: &'a Control,
    peer: &'a Peer,
}

impl Connection<'_> {
    async fn run<S>(
        &mut self,
        settings: &ServerSettings,
        service: &mut S,
        complained: impl Fn(&Fault),
    ) -> End
    where
        S: Service<Request<Body>, Response = Answer, Error = Infallible>,
    {
        let mut search = Head::default();
        let mut headers = HeaderMap::with_capacity(16);
        let mut served = 0;
        loop {
            let head = match self.head(settings, &mut search, served == 0).await {
                Ok(Some(head)) => head,
                Ok(None) => return End::Quietly,
                Err(Unreadable::Fault(fault)) => {
                    complained(&fault);
                    return self.complain(fault).await;
                }
                Err(Unreadable::Gone) => return End::Abruptly,
            };
            self.settings = settings.borrow().clone();
            let (mut request, terms) = match request::read(&head, headers) {
                Ok(read) => read,
                Err(fault) => {
                    complained(&fault);
                    return self.complain(fault).await;
                }
            };
            drop(head);
            if self.expect_body(&terms) {
                *request.body_mut() = Body::client(self.inbound.clone());
            }
            // Pinned here and not moved again: with a request in it, it is large.
            let answering = pin!(service.call(request));
            let Some(mut answer) = self.drive(answering).await else { return End::Abruptly };
            if answer.response.status() == StatusCode::SWITCHING_PROTOCOLS {
                let upstream = answer.response.body_mut().take_tunnel();
                return self.tunnel(answer, &terms, upstream).await;
            }
            let keep = terms.keep_alive && !self.control.draining.get() && self.can_go_on();
            match response::write(&self.inbound, answer, &terms, keep, self.stall()).await {
                Ok(written) if keep && !written.until_close => headers = written.headers,
                // A drain does not wait for clients that have sent all they had to send.
                Ok(_) if self.control.draining.get() && self.is_quiet() => return End::Quietly,
                Ok(_) => return End::Politely,
                // A reset, where an orderly end could be taken for the end of the body.
                Err(WriteError::Truncated) if terms.http10 => return End::Reset,
                Err(WriteError::Truncated) => return End::Short,
                Err(WriteError::Client(_)) => return End::Abruptly,
            }
            if self.discard_body().await.is_err() {
                return End::Politely;
            }
            let (more, full) = {
                let wire = &self.inbound.borrow().wire;
                (!wire.inbox.is_empty(), wire.is_full())
            };
            // Answers to pipelined requests leave together, as long as they are few.
            if (!more || full) && self.flush().await.is_err() {
                return End::Abruptly;
            }
            served += 1;
            if more && served % TURN == 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    pub(super) fn stall(&self) -> Duration {
        self.settings.request_timeout
    }

    /// The next head. `None`: there will be none, and nobody is waiting. Its bounds are those of
    /// the configuration at the time it comes, not at the time the connection fell idle.
    async fn head(
        &self,
        settings: &ServerSettings,
        search: &mut Head,
        first: bool,
    ) -> Result<Option<Bytes>, Unreadable> {
        let mut phase = Phase::Idle;
        {
            let wire = &mut self.inbound.borrow_mut().wire;
            wire.slim();
            let (now, patience) = match first {
                true => (clock::look(), self.settings.header_timeout),
                false => (clock::recent(), self.settings.idle_timeout),
            };
            wire.set_deadline(now + patience);
        }
        poll_fn(|cx| {
            let (wire, current) = (&mut self.inbound.borrow_mut().wire, settings.borrow());
            let max = current.max_header_bytes;
            loop {
                if let Some(head) = search.take(&mut wire.inbox, max).map_err(Fault::from)? {
                    return Poll::Ready(Ok(Some(head)));
                }
                if !wire.inbox.is_empty() && phase != Phase::Reading {
                    phase = Phase::Reading;
                    wire.set_deadline(Instant::now() + current.header_timeout);
                }
                if self.control.draining.get() && phase == Phase::Idle {
                    phase = Phase::Leaving;
                    wire.set_deadline(Instant::now() + GRACE.min(current.drain));
                }
                // Answers to pipelined requests leave before we wait for more of them.
                let _ = wire.poll_flush(cx).map_err(|_| Unreadable::Gone)?;
                match ready!(wire.poll_fill(cx, false)) {
                    Ok(0) if phase == Phase::Reading => return Poll::Ready(Err(Unreadable::Gone)),
                    Ok(0) => return Poll::Ready(Ok(None)),
                    Ok(_) => {}
                    Err(error) if error.kind() != io::ErrorKind::TimedOut => {
                        return Poll::Ready(Err(Unreadable::Gone));
                    }
                    Err(_) if phase == Phase::Reading => {
                        return Poll::Ready(Err(Fault::TooSlow.into()));
                    }
                    Err(_) => return Poll::Ready(Ok(None)),
                }
            }
        })
        .await
    }

    /// Gets ready to read the request's body. False: there is none.
    fn expect_body(&self, terms: &Terms) -> bool {
        let inbound = &mut *self.inbound.borrow_mut();
        let decoder = Decoder::new(terms.framing);
        inbound.expect_body(decoder, self.settings.max_body, self.stall());
        inbound.awaits_continue = terms.awaits_continue;
        terms.framing != Framing::Empty
    }

    /// Sees the gateway's answer through. `None`: the client has gone, and so has the request. One
    /// whose response is to be charged stays until that is done, without its client.
    async fn drive<F>(&self, mut answering: Pin<&mut F>) -> Option<Answer>
    where
        F: Future<Output = Result<Answer, Infallible>>,
    {
        let mut presence = Presence::default();
        poll_fn(|cx| {
            // A panic costs the request that caused it, and nothing else.
            let polled = std::panic::catch_unwind(AssertUnwindSafe(|| answering.as_mut().poll(cx)));
            match polled {
                Ok(Poll::Ready(Ok(answer))) => {
                    return Poll::Ready((!self.peer.has_left()).then_some(answer));
                }
                Ok(Poll::Ready(Err(never))) => match never {},
                Ok(Poll::Pending) => {}
                Err(_) => {
                    self.inbound.borrow_mut().broken = true;
                    return Poll::Ready(Some(Fault::Internal.into()));
                }
            }
            if self.peer.has_left() || !self.is_leaving(&mut presence, cx) {
                return Poll::Pending;
            }
            if !self.peer.awaits_charge() {
                return Poll::Ready(None);
            }
            self.peer.note_left();
            Poll::Pending
        })
        .await
    }

    /// Whether the client is seen to have gone, while its answer is being made.
    fn is_leaving(&self, presence: &mut Presence, cx: &mut Context<'_>) -> bool {
        let inbound = &mut *self.inbound.borrow_mut();
        match inbound.wire.poll_flush(cx) {
            Poll::Pending => false,
            Poll::Ready(Err(_)) => true,
            Poll::Ready(Ok(())) => presence.check(inbound, self.peer.waits(), cx).is_err(),
        }
    }

    /// Whether another request can follow on this connection, once what is left of this one's
    /// body is out of the way.
    fn can_go_on(&self) -> bool {
        let inbound = self.inbound.borrow();
        let short = inbound.remaining().is_some_and(|left| left <= DISCARD);
        !inbound.broken && (inbound.decoder.is_done() || (short && !inbound.awaits_continue))
    }

    /// Whether everything the client has sent was read.
    fn is_quiet(&self) -> bool {
        let inbound = self.inbound.borrow();
        inbound.decoder.is_done() && inbound.wire.inbox.is_empty()
    }

    async fn discard_body(&self) -> Result<(), ()> {
        if !self.can_go_on() {
            return Err(());
        }
        while !self.inbound.borrow().decoder.is_done() {
            let next = poll_fn(|cx| self.inbound.borrow_mut().poll_data(cx)).await;
            if let Some(Err(_)) = next {
                return Err(());
            }
        }
        Ok(())
    }

    pub(super) async fn flush(&self) -> io::Result<()> {
        self.inbound.borrow_mut().wire.set_patience(self.stall());
        poll_fn(|cx| self.inbound.borrow_mut().wire.poll_flush(cx)).await
    }

    /// Answers a request that could not be read, and ends.
    async fn complain(&self, fault: Fault) -> End {
        let terms = Terms {
            wants_no_body: false,
            http10: false,
            keep_alive: false,
            awaits_continue: false,
            framing: Framing::Empty,
        };
        match response::write(&self.inbound, fault.into(), &terms, false, self.stall()).await {
            Ok(_) => End::Politely,
            Err(_) => End::Abruptly,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Reading,
    Leaving,
}

enum Unreadable {
    Fault(Fault),
    Gone,
}

impl From<Fault> for Unreadable {
    fn from(fault: Fault) -> Self {
        Unreadable::Fault(fault)
    }
}
