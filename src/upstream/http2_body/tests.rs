use super::*;

use std::future::poll_fn;

use http_body_util::BodyExt as _;

fn body(text: &'static str) -> Body {
    Body::full(Bytes::from_static(text.as_bytes()))
}

/// What hyper reads while the request's task feeds.
async fn read(mut body: RequestBody, feeder: &mut BodyFeeder) -> Vec<u8> {
    let mut read = Vec::new();
    poll_fn(|cx| {
        loop {
            feeder.poll(cx).unwrap();
            match Pin::new(&mut body).poll_frame(cx) {
                Poll::Ready(Some(frame)) => read.extend(frame.unwrap().into_data().unwrap()),
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Pending => {}
            }
        }
    })
    .await;
    read
}

#[tokio::test]
async fn nothing_is_read_from_the_client_before_it_is_asked_for() {
    let (mut to_hyper, feeder) = request_body(body("hello"), None, &Rc::default());
    let mut feeder = feeder.expect("there is a body");
    assert_eq!(to_hyper.size_hint().exact(), Some(5));
    poll_fn(|cx| {
        assert!(!feeder.poll(cx).unwrap());
        assert!(Pin::new(&mut to_hyper).poll_frame(cx).is_pending());
        assert!(feeder.poll(cx).unwrap(), "now it is");
        Poll::Ready(())
    })
    .await;
    assert_eq!(read(to_hyper, &mut feeder).await, b"hello");
}

#[tokio::test]
async fn what_was_sent_can_be_taken_back_until_the_response_begins() {
    let (to_hyper, feeder) = request_body(body("hello"), None, &Rc::default());
    let mut feeder = feeder.expect("there is a body");
    assert_eq!(read(to_hyper, &mut feeder).await, b"hello");
    let again = feeder.take_back().expect("it is short");
    assert_eq!(again.framing(), Framing::Length(5));
    let (to_hyper, feeder) = request_body(again, None, &Rc::default());
    let mut feeder = feeder.expect("there is a body");
    assert_eq!(read(to_hyper, &mut feeder).await, b"hello");
    feeder.forget_sent();
    assert!(feeder.take_back().is_none());
    let long = Body::full(vec![b'x'; MAX_KEPT + 1].into());
    let (to_hyper, feeder) = request_body(long, None, &Rc::default());
    let mut feeder = feeder.expect("there is a body");
    assert_eq!(read(to_hyper, &mut feeder).await.len(), MAX_KEPT + 1);
    assert!(feeder.take_back().is_none(), "too long to be kept");
}

#[test]
fn what_was_sent_is_kept_without_a_copy_and_in_its_order() {
    let piece = |byte: u8, length: usize| Bytes::from(vec![byte; length]);
    let (mut sent, whole) = (SentPieces::default(), piece(b'a', MIN_PIECE));
    assert!(sent.keep(&whole));
    assert_eq!(sent.into_bytes().as_ptr(), whole.as_ptr());

    let mut sent = SentPieces::default();
    let pieces =
        [(b'a', 1), (b'b', 2), (b'c', MIN_PIECE), (b'd', 3), (b'e', 2 * MIN_PIECE), (b'f', 1)];
    assert!(pieces.iter().all(|&(byte, length)| sent.keep(&piece(byte, length))));
    assert_eq!(sent.pieces.len(), 4, "small ones together");
    let expected: Vec<u8> = pieces.iter().flat_map(|&(byte, length)| vec![byte; length]).collect();
    assert_eq!(sent.into_bytes(), expected);

    let mut sent = SentPieces::default();
    assert!(sent.keep(&piece(b'a', MAX_KEPT)) && !sent.keep(&piece(b'b', 1)));
}

#[tokio::test]
async fn a_request_that_ends_early_cancels_its_stream() {
    let (mut to_hyper, feeder) = request_body(body("hello"), None, &Rc::default());
    drop(feeder);
    assert!(!to_hyper.is_end_stream());
    let error = to_hyper.frame().await.expect("no end").expect_err("an error");
    assert_eq!(error.reason(), Some(h2::Reason::CANCEL));
}

#[tokio::test]
async fn a_stream_that_has_ended_asks_for_nothing() {
    let (mut to_hyper, feeder) = request_body(body("hello"), None, &Rc::default());
    let mut feeder = feeder.expect("there is a body");
    poll_fn(|cx| {
        assert!(Pin::new(&mut to_hyper).poll_frame(cx).is_pending());
        Poll::Ready(())
    })
    .await;
    drop(to_hyper);
    assert!(!poll_fn(|cx| Poll::Ready(feeder.poll(cx).unwrap())).await);
    let (empty, feeder) = request_body(Body::empty(), None, &Rc::default());
    assert!(empty.is_end_stream() && feeder.is_none());
}
