//! Bounds what answers hold until their clients have read them.
//!
//! A list has up to a megabyte, and hyper keeps an answer until the last byte of it is written. A
//! client that asks and does not read would hold it until its connection is dropped, and hundreds of
//! them hundreds of megabytes.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
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
    pub(super) async fn admit(&self, answer: AdminResponse) -> AdminResponse {
        let (parts, body) = answer.into_parts();
        let Ok(body) = body.collect().await;
        let bytes = body.to_bytes();
        if bytes.len() <= SMALL {
            return AdminResponse::from_parts(parts, Full::new(bytes));
        }
        // One that is larger than all of it goes alone.
        let kib = u32::try_from(bytes.len() / 1024).unwrap_or(u32::MAX).min(MAX_HELD_KIB);
        match self.0.clone().try_acquire_many_owned(kib) {
            Ok(permit) => {
                let held = Bytes::from_owner(HeldAnswer { bytes, _permit: permit });
                AdminResponse::from_parts(parts, Full::new(held))
            }
            Err(_) => api_error::too_many_unread(),
        }
    }
}

/// A body that gives its room back when hyper lets go of it.
struct HeldAnswer {
    bytes: Bytes,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for HeldAnswer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use http::{Response, StatusCode};

    use super::*;

    fn answer(bytes: usize) -> AdminResponse {
        Response::new(Full::new(vec![0; bytes].into()))
    }

    #[tokio::test]
    async fn large_answers_are_refused_while_others_are_not_read() {
        let held = HeldAnswers::new();
        let mut unread = Vec::new();
        while let answer = held.admit(answer(1 << 20)).await
            && answer.status() == StatusCode::OK
        {
            unread.push(answer);
        }
        assert_eq!(unread.len(), 32);
        assert_eq!(held.admit(answer(SMALL)).await.status(), StatusCode::OK);
        // One of them is read.
        let read = unread.pop().expect("an answer").into_body().collect().await;
        drop(read);
        assert_eq!(held.admit(answer(1 << 20)).await.status(), StatusCode::OK);
        drop(unread);
        assert_eq!(held.admit(answer(64 << 20)).await.status(), StatusCode::OK, "alone");
    }
}
