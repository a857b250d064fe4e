//! Bounds what answers hold until their clients have read them.
//!
//! A list has up to a megabyte, and hyper keeps an answer until the last byte of it is written. A
//! client that asks and does not read would hold it until its connection is dropped, and hundreds of
//! them hundreds of megabytes.

use std::sync::Arc;

use bytes::Bytes;
use http::header;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Frame};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{AdminResponse, api_error};

/// Answers up to this are not counted: every change is answered, however many lists are not read.
const SMALL: usize = 64 * 1024;
/// What the others may hold together, in KiB.
const MAX_HELD_KIB: u32 = 32 * 1024;

/// What is still to be written of the answers of one kind.
#[derive(Debug, Clone)]
pub(super) struct HeldAnswers(Arc<Semaphore>);

impl HeldAnswers {
    pub(super) fn new() -> Self {
        HeldAnswers(Arc::new(Semaphore::new(MAX_HELD_KIB as usize)))
    }

    /// The same answer, counted until it is written; a refusal if there is no room for it.
    pub(super) fn admit(&self, answer: AdminResponse) -> AdminResponse {
        let length = length_of(&answer);
        if length <= SMALL {
            return answer;
        }
        // One that is larger than all of it goes alone.
        let kib = u32::try_from(length / 1024).unwrap_or(u32::MAX).min(MAX_HELD_KIB);
        match self.0.clone().try_acquire_many_owned(kib) {
            Ok(permit) => {
                let permit = Arc::new(permit);
                answer.map(|body| {
                    let hold = move |bytes| {
                        Bytes::from_owner(HeldPiece { bytes, _permit: permit.clone() })
                    };
                    body.map_frame(move |frame: Frame<Bytes>| frame.map_data(&hold)).boxed_unsync()
                })
            }
            Err(_) => api_error::too_many_unread(),
        }
    }
}

/// Bodies in several pieces say their length in the header.
fn length_of(answer: &AdminResponse) -> usize {
    let said = answer.headers().get(header::CONTENT_LENGTH);
    let said = said.and_then(|it| it.to_str().ok()?.parse().ok());
    said.or(answer.body().size_hint().exact()).unwrap_or(u64::MAX) as usize
}

/// A piece of a body. The room is given back when hyper lets go of the last of them.
struct HeldPiece {
    bytes: Bytes,
    _permit: Arc<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for HeldPiece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use http::{Response, StatusCode};
    use http_body_util::Full;

    use super::*;

    fn answer(bytes: usize) -> AdminResponse {
        Response::new(Full::new(vec![0; bytes].into()).boxed_unsync())
    }

    #[tokio::test]
    async fn large_answers_are_refused_while_others_are_not_read() {
        let held = HeldAnswers::new();
        let mut unread = Vec::new();
        while let answer = held.admit(answer(1 << 20))
            && answer.status() == StatusCode::OK
        {
            unread.push(answer);
        }
        assert_eq!(unread.len(), 32);
        assert_eq!(held.admit(answer(SMALL)).status(), StatusCode::OK);
        // One of them is read.
        let read = unread.pop().expect("an answer").into_body().collect().await;
        drop(read);
        assert_eq!(held.admit(answer(1 << 20)).status(), StatusCode::OK);
        drop(unread);
        assert_eq!(held.admit(answer(64 << 20)).status(), StatusCode::OK, "alone");
    }
}
