//! The gateway's response onto the wire.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Poll, ready};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{CONTENT_LENGTH, DATE};
use http::{HeaderMap, StatusCode};

use super::presence::Presence;
use super::request::Terms;
use tokio::time::Instant;

use crate::body::Body;
use crate::clock;
use crate::http1::{Framing, Inbound, encode};
use crate::respond::Answer;

/// How a response left the connection.
#[derive(Debug)]
pub struct Written {
    /// To be filled by the next request.
    pub headers: HeaderMap,
    /// The body has no end of its own: the connection must end instead.
    pub until_close: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("the client is gone")]
    Client(#[from] io::Error),
    /// The client must be able to tell: its answer ends short of what was announced.
    #[error("the body ended early")]
    Truncated,
}

/// Writes head and body. Small answers leave in one piece; large ones as they arrive.
///
/// # Errors
/// If either side fails before the end. The connection must be closed then.
pub async fn write(
    inbound: &Rc<RefCell<Inbound>>,
    answer: Answer,
    terms: &Terms,
    keep_alive: bool,
    stall: Duration,
) -> Result<Written, WriteError> {
    let (parts, mut body) = answer.response.into_parts();
    let bodiless = terms.wants_no_body
        || parts.status == StatusCode::NO_CONTENT
        || parts.status == StatusCode::NOT_MODIFIED
        || parts.status.is_informational();
    let framing = body.framing();
    let chunked = framing == Framing::Chunked && !terms.http10 && !bodiless;
    let until_close = framing == Framing::Chunked && terms.http10 && !bodiless;
    {
        let inbound = &mut *inbound.borrow_mut();
        inbound.awaits_continue = false;
        // What is still queued from the answer before stays in front.
        let out = inbound.wire.outbox();
        encode::status_line(out, parts.status);
        for (name, value) in &parts.headers {
            encode::field(out, name, value.as_bytes());
        }
        out.extend_from_slice(answer.fields.as_bytes());
        if !parts.headers.contains_key(DATE) {
            date(out);
        }
        if chunked {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        } else if says_length(parts.status, terms.wants_no_body, &parts.headers, framing) {
            encode::content_length(
                out,
                if let Framing::Length(length) = framing { length } else { 0 },
            );
        }
        if parts.status == StatusCode::SWITCHING_PROTOCOLS {
            out.extend_from_slice(b"Connection: Upgrade\r\n");
        } else if !keep_alive || until_close {
            out.extend_from_slice(b"Connection: close\r\n");
        } else if terms.http10 {
            out.extend_from_slice(b"Connection: keep-alive\r\n");
        }
        encode::end_of_head(out);
    }
    if !bodiless && !body.append_text(inbound.borrow_mut().wire.outbox()) {
        stream(inbound, &mut body, chunked, stall).await?;
    }
    Ok(Written { headers: parts.headers, until_close })
}

/// Whether the answer needs a length of ours. Without a body it keeps what it came with: for
/// HEAD and 304 that is the length of the body it stands for.
fn says_length(status: StatusCode, head: bool, headers: &HeaderMap, framing: Framing) -> bool {
    if status == StatusCode::NO_CONTENT || status.is_informational() {
        return false;
    }
    match framing {
        Framing::Chunked | Framing::UntilClose => false,
        _ if headers.contains_key(CONTENT_LENGTH) => false,
        Framing::Length(0) | Framing::Empty => !head && status != StatusCode::NOT_MODIFIED,
        Framing::Length(_) => true,
    }
}

async fn stream(
    inbound: &Rc<RefCell<Inbound>>,
    body: &mut Body,
    chunked: bool,
    stall: Duration,
) -> Result<(), WriteError> {
    let (mut chunk_open, mut presence) = (false, Presence::default());
    inbound.borrow_mut().wire.set_patience(stall);
    poll_fn(|cx| {
        loop {
            // The body may need the same connection to read from, so it is polled unborrowed.
            if inbound.borrow().wire.is_full() {
                ready!(inbound.borrow_mut().wire.poll_flush(cx))?;
            }
            let next = body.poll_data(cx);
            let inbound = &mut *inbound.borrow_mut();
            let wire = &mut inbound.wire;
            if chunk_open && !matches!(next, Poll::Pending) {
                wire.outbox().extend_from_slice(encode::CHUNK_END);
                chunk_open = false;
            }
            match next {
                Poll::Ready(Some(Ok(data))) => {
                    if chunked {
                        encode::chunk_size(wire.outbox(), data.len());
                        chunk_open = true;
                    }
                    wire.queue(data);
                }
                Poll::Ready(Some(Err(_))) => return Poll::Ready(Err(WriteError::Truncated)),
                Poll::Ready(None) => {
                    if chunked {
                        wire.outbox().extend_from_slice(encode::LAST_CHUNK);
                    }
                    return Poll::Ready(Ok(()));
                }
                Poll::Pending => {
                    if chunk_open && !wire.is_full() {
                        wire.outbox().extend_from_slice(encode::CHUNK_END);
                        chunk_open = false;
                    }
                    // Whoever waits for the upstream may leave meanwhile.
                    if wire.poll_flush(cx)?.is_ready() {
                        presence.check(inbound, false, cx)?;
                    }
                    return Poll::Pending;
                }
            }
        }
    })
    .await
}

/// `Date`, formatted once a second.
fn date(out: &mut Vec<u8>) {
    thread_local! {
        static CACHED: RefCell<Option<(Instant, String)>> = const { RefCell::new(None) };
    }
    CACHED.with_borrow_mut(|cached| {
        let fresh = |(until, _): &mut (Instant, String)| clock::recent() < *until;
        if !cached.as_mut().is_some_and(fresh) {
            let wall = SystemTime::now();
            let into = wall.duration_since(UNIX_EPOCH).unwrap_or_default().subsec_nanos();
            let left = Duration::from_secs(1) - Duration::from_nanos(into.into());
            let text = format!("Date: {}\r\n", httpdate::fmt_http_date(wall));
            *cached = Some((clock::look() + left, text));
        }
        if let Some((_, text)) = cached {
            out.extend_from_slice(text.as_bytes());
        }
    });
}
