//! One stream of the server: what it is answered with.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::sync::watch;

use super::{Control, Http2Received, Seen};

/// One request, as long as it is served.
pub(super) struct Stream {
    pub(super) respond: SendResponse<Bytes>,
    pub(super) seen: Arc<Mutex<Seen>>,
    pub(super) commands: watch::Receiver<Control>,
    pub(super) number: usize,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.seen.lock().unwrap().open -= 1;
    }
}

impl Stream {
    pub(super) async fn serve(mut self, request: Request<RecvStream>) {
        let (head, body) = request.into_parts();
        let held = self.commands.borrow().released;
        {
            let mut seen = self.seen.lock().unwrap();
            seen.open += 1;
            seen.most_open = seen.most_open.max(seen.open);
        }
        let path = head.uri.path().to_owned();
        if self.refuses(&path) {
            return;
        }
        if path == "/early" {
            // Dropping the body without reading it resets the stream once the answer is out.
            self.reply(413, "too much").await;
            return;
        }
        if path == "/echo" {
            self.echo(body).await;
            return;
        }
        let slot = {
            let mut seen = self.seen.lock().unwrap();
            seen.requests.push(Http2Received {
                connection: self.number,
                method: head.method.to_string(),
                uri: head.uri.clone(),
                headers: head.headers.clone(),
                body: 0,
                trailers: None,
            });
            seen.requests.len() - 1
        };
        let Some((length, trailers)) = read_whole(body).await else {
            self.seen.lock().unwrap().resets += 1;
            return;
        };
        {
            let mut seen = self.seen.lock().unwrap();
            (seen.requests[slot].body, seen.requests[slot].trailers) = (length, trailers);
        }
        self.answer(&path, held).await;
    }

    /// Whether it was reset without being looked at.
    fn refuses(&mut self, path: &str) -> bool {
        let refused = {
            let mut seen = self.seen.lock().unwrap();
            let times = seen.refused.entry(path.to_owned()).or_default();
            *times += 1;
            *times
        };
        let reason = match path {
            "/refuse" if refused == 1 => Reason::REFUSED_STREAM,
            "/refuse-always" => Reason::REFUSED_STREAM,
            "/reset" => Reason::INTERNAL_ERROR,
            _ => return false,
        };
        self.respond.send_reset(reason);
        true
    }

    /// `held` is how often streams had been released when this one came.
    async fn answer(&mut self, path: &str, held: usize) {
        let number = |prefix: &str| path.strip_prefix(prefix)?.parse::<usize>().ok();
        if path.starts_with("/held") {
            let mut commands = self.commands.clone();
            tokio::select! {
                _ = commands.wait_for(|it| it.released > held) => {}
                _ = poll_fn(|cx| self.respond.poll_reset(cx)) => {
                    self.seen.lock().unwrap().resets += 1;
                    return;
                }
            }
        }
        match path {
            "/silent" => {
                let _ = poll_fn(|cx| self.respond.poll_reset(cx)).await;
                self.seen.lock().unwrap().resets += 1;
            }
            "/cut" => {
                let mut body = self.head(&[]);
                send(&mut body, Bytes::from_static(b"half"), false).await;
                // What was sent has to go first.
                tokio::time::sleep(Duration::from_millis(20)).await;
                body.send_reset(Reason::INTERNAL_ERROR);
            }
            "/stall" => {
                let mut body = self.head(&[]);
                send(&mut body, Bytes::from_static(b"half"), false).await;
                let _ = poll_fn(|cx| body.poll_reset(cx)).await;
                self.seen.lock().unwrap().resets += 1;
            }
            "/longer" => self.stated("5", b"0123456789").await,
            "/shorter" => self.stated("20", b"0123456789").await,
            _ => {
                if let Some(length) = number("/bytes/") {
                    let mut body = self.head(&[]);
                    let piece = Bytes::from(vec![b'x'; 16 * 1024]);
                    let mut left = length;
                    while left > 0 {
                        let piece = piece.slice(..left.min(piece.len()));
                        left -= piece.len();
                        if !send(&mut body, piece, left == 0).await {
                            self.seen.lock().unwrap().resets += 1;
                            return;
                        }
                    }
                } else if let Some(length) = number("/headers/") {
                    let mut body = self.head(&[("x-large", &"x".repeat(length))]);
                    send(&mut body, Bytes::from_static(b"ok"), true).await;
                } else if let Some(length) = number("/heads/") {
                    let value = "x".repeat(1000);
                    let mut body = self.head(&vec![("x-large", value.as_str()); length / 1000]);
                    send(&mut body, Bytes::from_static(b"ok"), true).await;
                } else if let Some(length) = number("/large-trailers/") {
                    let mut body = self.head(&[]);
                    send(&mut body, Bytes::from_static(b"message"), false).await;
                    let value = HeaderValue::from_bytes(&vec![b'x'; length]).unwrap();
                    let name = http::HeaderName::from_static("x-large");
                    let _ = body.send_trailers([(name, value)].into_iter().collect());
                } else if let Some(count) = number("/fields/") {
                    let names: Vec<String> = (0..count).map(|it| format!("x-field-{it}")).collect();
                    let fields: Vec<_> = names.iter().map(|it| (it.as_str(), "1")).collect();
                    send(&mut self.head(&fields), Bytes::from_static(b"ok"), true).await;
                } else if let Some(names) = path.strip_prefix("/trailers/") {
                    let mut body = self.head(&[]);
                    send(&mut body, Bytes::from_static(b"message"), false).await;
                    let name = |it: &str| http::HeaderName::from_bytes(it.as_bytes()).unwrap();
                    let field = |it| (name(it), HeaderValue::from_static("0"));
                    let _ = body.send_trailers(names.split(',').map(field).collect());
                } else if let Some(status) = number("/status/") {
                    self.reply(status as u16, "status").await;
                } else {
                    self.reply(200, "ok").await;
                }
            }
        }
    }

    fn head(&mut self, fields: &[(&str, &str)]) -> SendStream<Bytes> {
        let mut response = Response::builder().status(200);
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        self.respond.send_response(response.body(()).unwrap(), false).unwrap()
    }

    async fn reply(&mut self, status: u16, text: &'static str) {
        let response = Response::builder().status(status).header("content-length", text.len());
        if let Ok(mut body) = self.respond.send_response(response.body(()).unwrap(), false) {
            send(&mut body, Bytes::from_static(text.as_bytes()), true).await;
        }
    }

    async fn stated(&mut self, length: &str, body: &'static [u8]) {
        let mut stream = self.head(&[("content-length", length)]);
        send(&mut stream, Bytes::from_static(body), true).await;
    }

    async fn echo(&mut self, mut body: RecvStream) {
        let mut answer = self.head(&[]);
        while let Some(data) = body.data().await {
            let Ok(data) = data else {
                self.seen.lock().unwrap().resets += 1;
                return;
            };
            let _ = body.flow_control().release_capacity(data.len());
            if !send(&mut answer, data, false).await {
                return;
            }
        }
        match body.trailers().await {
            Ok(Some(trailers)) => drop(answer.send_trailers(trailers)),
            _ => drop(answer.send_data(Bytes::new(), true)),
        }
    }
}

/// The length of a body and its trailers; `None` if it is broken off.
async fn read_whole(mut body: RecvStream) -> Option<(usize, Option<HeaderMap>)> {
    let mut length = 0;
    while let Some(data) = body.data().await {
        let data = data.ok()?;
        length += data.len();
        let _ = body.flow_control().release_capacity(data.len());
    }
    Some((length, body.trailers().await.ok()?))
}

/// Waits for room as large as the piece; false if the stream is gone.
async fn send(stream: &mut SendStream<Bytes>, mut data: Bytes, end: bool) -> bool {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        match poll_fn(|cx| stream.poll_capacity(cx)).await {
            Some(Ok(room)) => {
                let piece = data.split_to(room.min(data.len()));
                let last = end && data.is_empty();
                if stream.send_data(piece, last).is_err() {
                    return false;
                }
            }
            _ => return false,
        }
    }
    true
}
