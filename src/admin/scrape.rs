//! The answer to a scrape: made on a thread for that, sent from the thread that accepts connections,
//! and both in pieces.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;

use super::{AdminBody, AdminResponse, json, own_headers};
use crate::telemetry::Metrics;

/// How long the thread rests after each piece. A scheduler may let a thread run on for many
/// milliseconds while others wait for the same processor, even others of a higher priority; one that
/// sleeps lets them go first.
const PAUSE: Duration = Duration::from_micros(100);

/// All metrics as they are now, once some have been brought up to date.
pub(super) async fn answer(
    metrics: Metrics,
    update: impl FnOnce(&Metrics) + Send + 'static,
) -> AdminResponse {
    let rendered = tokio::task::spawn_blocking(move || {
        update(&metrics);
        let mut pieces = Vec::new();
        metrics.render(|piece| {
            pieces.push(Bytes::from(piece));
            std::thread::sleep(PAUSE);
        })?;
        Ok::<_, prometheus::Error>(pieces)
    });
    match rendered.await {
        Ok(Ok(pieces)) => page(pieces),
        Ok(Err(error)) => failed(&error),
        Err(panicked) => failed(&panicked),
    }
}

fn page(pieces: Vec<Bytes>) -> AdminResponse {
    let length: usize = pieces.iter().map(Bytes::len).sum();
    let mut answer = Response::new(piecewise(pieces));
    own_headers(&mut answer, "text/plain; version=0.0.4");
    answer.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    answer
}

/// A body that lets others on its thread go first before each of its pieces. Otherwise a client that
/// reads as fast as it is written to would have all of them at once.
fn piecewise(pieces: Vec<Bytes>) -> AdminBody {
    let frames = stream::iter(pieces).then(|piece| async {
        tokio::task::yield_now().await;
        Ok::<_, Infallible>(Frame::data(piece))
    });
    StreamBody::new(frames).boxed_unsync()
}

fn failed(error: &(dyn std::error::Error + 'static)) -> AdminResponse {
    tracing::error!(error, "metrics cannot be rendered");
    json(StatusCode::INTERNAL_SERVER_ERROR, r#"{"error":"internal_error"}"#)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn others_on_the_thread_go_first_before_each_piece() {
        let pieces = [b"one".as_slice(), b"two", b"three"].map(Bytes::from_static);
        let mut body = piecewise(pieces.to_vec());
        for piece in pieces {
            let other = tokio::spawn(async {});
            assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), piece);
            assert!(other.is_finished());
        }
        assert!(body.frame().await.is_none());
    }
}
