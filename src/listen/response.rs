//! The gateway's answer, written as HTTP/1.1.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Poll, ready};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{CONTENT_LENGTH, DATE};
use http::{HeaderMap, StatusCode};
use tokio::time::Instant;

use super::presence::{Awaited, ClientPresence};
use super::request::RequestMeta;
use crate::body::Body;
use crate::clock;
use crate::http1::encode::{self, Label};
use crate::http1::{Framing, Inbound};
use crate::respond::{Answer, Content, FieldName};

#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    #[error("the client is gone")]
    Client(#[from] io::Error),
    /// The response ends short of what was announced. The client has to be able to see that.
    #[error("the body ended early")]
    Truncated,
}

/// What becomes of the connection after a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterResponse {
    KeepAlive,
    Close,
}

/// Writes head and body. Small answers leave in one piece; large ones as they arrive.
///
/// # Errors
/// If either side fails before the end. The connection must be closed then.
pub(super) async fn write(
    inbound: &Rc<RefCell<Inbound>>,
    answer: &mut Answer,
    meta: &RequestMeta,
    keep_alive: bool,
    stall_timeout: Duration,
) -> Result<AfterResponse, WriteError> {
    let status = answer.response.status();
    let bodiless = meta.wants_no_body
        || status == StatusCode::NO_CONTENT
        || status == StatusCode::NOT_MODIFIED
        || status.is_informational();
    let unsized_body = answer.response.body().framing() == Framing::Chunked && !bodiless;
    // HTTP/1.0 has no chunks: the end of the connection is the end of the body.
    let chunked = unsized_body && !meta.http10;
    let after = match keep_alive && !(unsized_body && meta.http10) {
        true => AfterResponse::KeepAlive,
        false => AfterResponse::Close,
    };
    {
        let inbound = &mut *inbound.borrow_mut();
        inbound.awaits_continue = false;
        // What is still queued from the answer before stays in front.
        write_head(inbound.io.write_buf(), answer, meta, chunked, after);
    }
    let Answer { response, end, .. } = answer;
    let mut note_sent = |bytes: usize| {
        if let Some(end) = end {
            end.note_sent(bytes);
        }
    };
    match response.body_mut() {
        Content::Body(body) if !bodiless => {
            let written = body.append_text(inbound.borrow_mut().io.write_buf());
            match written {
                Some(length) => note_sent(length),
                None => stream(inbound, body, chunked, stall_timeout, note_sent).await?,
            }
        }
        Content::Body(_) | Content::Tunnel(_) => {}
    }
    Ok(after)
}

/// Writes a response before the response: RFC 8297.
pub(super) fn write_hints(out: &mut Vec<u8>, hints: &HeaderMap) {
    encode::status_line(out, StatusCode::EARLY_HINTS);
    for (name, value) in hints {
        encode::field(out, name, value.as_bytes());
    }
    encode::end_of_head(out);
}

#[inline]
fn write_head(
    out: &mut Vec<u8>,
    answer: &Answer,
    meta: &RequestMeta,
    chunked: bool,
    after: AfterResponse,
) {
    let (status, headers) = (answer.response.status(), answer.response.headers());
    encode::status_line(out, status);
    // Seen in passing: to look them up would cost more.
    let (mut has_date, mut has_length) = (false, false);
    for (name, value) in headers {
        has_date |= *name == DATE;
        has_length |= *name == CONTENT_LENGTH;
        encode::field(out, name, value.as_bytes());
    }
    for field in answer.fields.iter() {
        encode::labelled_field(out, &LABELS[field.name as usize], field.value);
    }
    if !has_date {
        date(out);
    }
    let framing = answer.response.body().framing();
    if chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    } else if needs_content_length(status, meta.wants_no_body, has_length, framing) {
        encode::content_length(out, if let Framing::Length(length) = framing { length } else { 0 });
    }
    if status == StatusCode::SWITCHING_PROTOCOLS {
        out.extend_from_slice(b"Connection: Upgrade\r\n");
    } else if after == AfterResponse::Close {
        out.extend_from_slice(b"Connection: close\r\n");
    } else if meta.http10 {
        out.extend_from_slice(b"Connection: keep-alive\r\n");
    }
    encode::end_of_head(out);
}

/// The names of Weir's own fields, ready to be written.
static LABELS: [Label; FieldName::ALL.len()] = {
    let mut labels = [Label::new(""); FieldName::ALL.len()];
    let mut number = 0;
    while number < labels.len() {
        labels[number] = Label::new(FieldName::ALL[number].as_str());
        number += 1;
    }
    labels
};

/// Whether `Content-Length` has to be added. A response without a body keeps the one it came with:
/// for HEAD and 304 that is the length of the body it stands for.
pub(super) fn needs_content_length(
    status: StatusCode,
    head: bool,
    has_length: bool,
    framing: Framing,
) -> bool {
    if status == StatusCode::NO_CONTENT || status.is_informational() {
        return false;
    }
    match framing {
        Framing::Chunked | Framing::UntilClose => false,
        _ if has_length => false,
        Framing::Length(0) | Framing::Empty => !head && status != StatusCode::NOT_MODIFIED,
        Framing::Length(_) => true,
    }
}

async fn stream(
    inbound: &Rc<RefCell<Inbound>>,
    body: &mut Body,
    chunked: bool,
    stall_timeout: Duration,
    mut note_sent: impl FnMut(usize),
) -> Result<(), WriteError> {
    let (mut chunk_open, mut presence) = (false, ClientPresence::default());
    inbound.borrow_mut().io.set_stall_timeout(stall_timeout);
    poll_fn(|cx| {
        loop {
            // The body may need the same connection to read from, so it is polled unborrowed.
            if inbound.borrow().io.is_full() {
                ready!(inbound.borrow_mut().io.poll_flush(cx))?;
            }
            let next = body.poll_data(cx);
            let inbound = &mut *inbound.borrow_mut();
            let io = &mut inbound.io;
            if chunk_open && !matches!(next, Poll::Pending) {
                io.write_buf().extend_from_slice(encode::CHUNK_END);
                chunk_open = false;
            }
            match next {
                Poll::Ready(Some(Ok(data))) => {
                    note_sent(data.len());
                    if chunked {
                        encode::chunk_size(io.write_buf(), data.len());
                        chunk_open = true;
                    }
                    io.queue(data);
                    presence.end_silence();
                }
                Poll::Ready(Some(Err(_))) => return Poll::Ready(Err(WriteError::Truncated)),
                Poll::Ready(None) => {
                    if chunked {
                        io.write_buf().extend_from_slice(encode::LAST_CHUNK);
                    }
                    return Poll::Ready(Ok(()));
                }
                Poll::Pending => {
                    if chunk_open && !io.is_full() {
                        io.write_buf().extend_from_slice(encode::CHUNK_END);
                        chunk_open = false;
                    }
                    // The client may leave while the upstream has nothing to send.
                    if io.poll_flush(cx)?.is_ready() {
                        presence.check(inbound, Awaited::Body, cx)?;
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
        let fresh = |(until, _): &mut (Instant, String)| clock::cached_now() < *until;
        if !cached.as_mut().is_some_and(fresh) {
            let wall = SystemTime::now();
            let into = wall.duration_since(UNIX_EPOCH).unwrap_or_default().subsec_nanos();
            let left = Duration::from_secs(1) - Duration::from_nanos(into.into());
            let text = format!("Date: {}\r\n", httpdate::fmt_http_date(wall));
            *cached = Some((clock::now() + left, text));
        }
        if let Some((_, text)) = cached {
            out.extend_from_slice(text.as_bytes());
        }
    });
}
