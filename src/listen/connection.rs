//! One client connection: requests in, answers out, in order, until either side has enough.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tower::Service;

use super::Inbound;
use super::request::{self, Terms};
use super::response::{self, WriteError};
use crate::body::Body;
use crate::config::settings;
use crate::forward::tunnel::Tunnel;
use crate::http1::{Decoder, Framing, Head, Wire};
use crate::respond::{Answer, Fault};

/// What is left of a refused body is read and dropped up to this size; beyond it the connection
/// is closed instead.
const DISCARD: u64 = 64 * 1024;
/// How much and how long a closing connection is read from, so that the client can read its
/// last answer before a reset reaches it.
const LINGER: usize = 1024 * 1024;
const LINGER_TIME: Duration = Duration::from_secs(2);
/// While draining, a connection without a request gets this long to send one more.
const GRACE: Duration = Duration::from_secs(1);
/// How far a client may pipeline ahead of the answers.
const AHEAD: usize = 64 * 1024;

/// How a worker tells a connection to come to an end.
#[derive(Debug, Default)]
pub struct Control {
    draining: Cell<bool>,
    closing: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Control {
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

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

/// Serves one connection to its end.
pub async fn serve<S>(
    stream: TcpStream,
    settings: &settings::Server,
    control: &Control,
    mut service: S,
) where
    S: Service<Request<Body>, Response = Answer, Error = Infallible>,
{
    // The task's waker never changes, so it is kept once and not with every poll.
    poll_fn(|cx| {
        *control.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Ready(())
    })
    .await;
    let inbound = Rc::new(RefCell::new(Inbound::new(Wire::new(stream))));
    let mut connection = Connection { inbound, settings, control };
    match connection.run(&mut service).await {
        End::Politely => connection.part(LINGER).await,
        End::Quietly => connection.part(0).await,
        End::Abruptly => {}
    }
}

struct Connection<'a> {
    inbound: Rc<RefCell<Inbound>>,
    settings: &'a settings::Server,
    control: &'a Control,
}

/// How a connection ends.
enum End {
    /// The last answer was sent and is given time to be read.
    Politely,
    /// Nothing is under way; what is queued is sent.
    Quietly,
    Abruptly,
}

impl Connection<'_> {
    async fn run<S>(&mut self, service: &mut S) -> End
    where
        S: Service<Request<Body>, Response = Answer, Error = Infallible>,
    {
        let mut search = Head::default();
        let mut headers = HeaderMap::with_capacity(16);
        let mut first = true;
        loop {
            let head = match self.head(&mut search, first).await {
                Ok(Some(head)) => head,
                Ok(None) => return End::Quietly,
                Err(Unreadable::Fault(fault)) => return self.complain(fault).await,
                Err(Unreadable::Gone) => return End::Abruptly,
            };
            first = false;
            let (request, terms) = match request::read(&head, headers, self.settings.max_body) {
                Ok(read) => read,
                Err(fault) => return self.complain(fault).await,
            };
            drop(head);
            let Some(mut answer) = self.call(service, request, &terms).await else {
                return End::Abruptly;
            };
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
                Err(WriteError::Truncated) => {
                    // A reset, where an orderly end could be taken for the end of the body.
                    return if terms.http10 { self.reset() } else { self.flush_and_drop().await };
                }
                Err(WriteError::Client(_)) => return End::Abruptly,
            }
            if self.discard_body().await.is_err() {
                return End::Politely;
            }
            if self.inbound.borrow().wire.inbox.is_empty() && self.flush().await.is_err() {
                return End::Abruptly;
            }
        }
    }

    fn stall(&self) -> Duration {
        self.settings.request_timeout
    }

    /// The next head. `None`: there will be none, and nobody is waiting.
    async fn head(&self, search: &mut Head, first: bool) -> Result<Option<Bytes>, Unreadable> {
        let mut phase = Phase::Idle;
        let (idle, max) = (self.settings.idle_timeout, self.settings.max_header_bytes);
        let patience = if first { self.settings.header_timeout } else { idle };
        self.inbound.borrow_mut().wire.set_deadline(Instant::now() + patience);
        poll_fn(|cx| {
            let wire = &mut self.inbound.borrow_mut().wire;
            loop {
                if let Some(head) = search.take(&mut wire.inbox, max).map_err(Fault::from)? {
                    return Poll::Ready(Ok(Some(head)));
                }
                if !wire.inbox.is_empty() && phase != Phase::Reading {
                    phase = Phase::Reading;
                    wire.set_deadline(Instant::now() + self.settings.header_timeout);
                }
                if self.control.draining.get() && phase == Phase::Idle {
                    phase = Phase::Leaving;
                    wire.set_deadline(Instant::now() + GRACE.min(self.settings.drain));
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

    /// Hands the request to the gateway. `None`: the client has gone, and so has the request.
    async fn call<S>(
        &self,
        service: &mut S,
        mut request: Request<Body>,
        terms: &Terms,
    ) -> Option<Answer>
    where
        S: Service<Request<Body>, Response = Answer, Error = Infallible>,
    {
        {
            let inbound = &mut *self.inbound.borrow_mut();
            let decoder = Decoder::new(terms.framing);
            inbound.expect_body(decoder, self.settings.max_body, self.stall());
            inbound.awaits_continue = terms.awaits_continue;
        }
        if terms.framing != Framing::Empty {
            *request.body_mut() = Body::client(self.inbound.clone());
        }
        let mut answering = pin!(service.call(request));
        poll_fn(|cx| {
            // A panic costs the request that caused it, and nothing else.
            let polled = std::panic::catch_unwind(AssertUnwindSafe(|| answering.as_mut().poll(cx)));
            match polled {
                Ok(Poll::Ready(Ok(answer))) => return Poll::Ready(Some(answer)),
                Ok(Poll::Ready(Err(never))) => match never {},
                Ok(Poll::Pending) => {}
                Err(_) => {
                    self.inbound.borrow_mut().broken = true;
                    return Poll::Ready(Some(Fault::Internal.into()));
                }
            }
            let inbound = &mut *self.inbound.borrow_mut();
            match inbound.wire.poll_flush(cx) {
                Poll::Ready(Ok(())) if watch(inbound, cx).is_ok() => Poll::Pending,
                Poll::Pending => Poll::Pending,
                Poll::Ready(_) => Poll::Ready(None),
            }
        })
        .await
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

    async fn flush(&self) -> io::Result<()> {
        self.inbound.borrow_mut().wire.set_patience(self.stall());
        poll_fn(|cx| self.inbound.borrow_mut().wire.poll_flush(cx)).await
    }

    /// Answers a request that could not be read, and ends.
    async fn complain(&self, fault: Fault) -> End {
        let terms = Terms {
            head: false,
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

    async fn tunnel(&self, mut answer: Answer, terms: &Terms, upstream: Option<Box<Wire>>) -> End {
        // The meter runs with the body, and the body is what the tunnel carries.
        let body = std::mem::replace(answer.response.body_mut(), Body::empty());
        let written = response::write(&self.inbound, answer, terms, true, self.stall()).await;
        if let (Ok(_), Some(upstream)) = (written, upstream) {
            self.inbound.borrow_mut().wire.clear_deadline();
            let mut tunnel = Tunnel::new(upstream);
            poll_fn(|cx| {
                let over = self.control.closing.get();
                let carried = tunnel.poll(&mut self.inbound.borrow_mut().wire, cx);
                if over || carried.is_ready() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
        drop(body);
        End::Abruptly
    }

    /// Sends what is queued, says that nothing follows, and waits for the client to have read it.
    async fn part(&self, mut budget: usize) {
        let until = Instant::now() + LINGER_TIME.min(self.stall());
        self.inbound.borrow_mut().wire.set_deadline(until);
        let mut finished = false;
        poll_fn(|cx| {
            let wire = &mut self.inbound.borrow_mut().wire;
            if !finished {
                ready!(wire.poll_finish(cx))?;
                finished = true;
            }
            while budget > 0 {
                wire.inbox.clear();
                match ready!(wire.poll_fill(cx, true))? {
                    0 => break,
                    read => budget = budget.saturating_sub(read),
                }
            }
            Poll::Ready(io::Result::Ok(()))
        })
        .await
        // Whatever went wrong, the connection is over.
        .unwrap_or_default();
    }

    async fn flush_and_drop(&self) -> End {
        let _ = self.flush().await;
        End::Abruptly
    }

    fn reset(&self) -> End {
        self.inbound.borrow().wire.reset_on_close();
        End::Abruptly
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

/// Notices a client that resets its connection while its answer is being made. One that has only
/// finished sending still wants the answer.
fn watch(inbound: &mut Inbound, cx: &mut Context<'_>) -> io::Result<()> {
    while inbound.decoder.is_done() && inbound.wire.inbox.len() < AHEAD {
        match inbound.wire.poll_fill(cx, false) {
            Poll::Pending | Poll::Ready(Ok(0)) => break,
            Poll::Ready(Ok(_)) => {}
            Poll::Ready(Err(error)) => return Err(error),
        }
    }
    Ok(())
}
