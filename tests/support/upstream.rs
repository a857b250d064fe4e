//! A scriptable origin that records what it received.
//!
//! It reads requests strictly: one that a careful origin would not accept is a fault of the
//! gateway, kept and raised when the upstream goes out of scope.

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use super::PATIENCE;
use super::wire::{self, ReadError, Wire};

/// Longer than any test takes.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    /// Which of the upstream's connections it came on, counted from zero.
    pub(crate) connection: usize,
    /// The head, byte for byte.
    pub(crate) raw: String,
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<String>,
    /// The whole body arrived.
    pub(crate) complete: bool,
}

impl Received {
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        wire::all(&self.headers, name)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        !self.all(name).is_empty()
    }

    #[track_caller]
    pub(crate) fn one(&self, name: &str) -> &str {
        let values = self.all(name);
        assert_eq!(values.len(), 1, "expected one {name} in:\n{}", self.raw);
        values[0]
    }
}

/// What a script does with the connection once it has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    Keep,
    Close,
}

/// One request in the hands of a script: its head has arrived, its body may not have.
#[derive(Debug)]
pub(crate) struct Exchange<'a> {
    pub(crate) request: Received,
    pub(crate) wire: &'a mut Wire,
    body_read: bool,
    seen: &'a Seen,
    slot: usize,
}

impl Exchange<'_> {
    /// Reads the body to its end, once.
    pub(crate) fn read_body(&mut self) {
        if std::mem::replace(&mut self.body_read, true) {
            return;
        }
        let coding = self.request.all("transfer-encoding").first().copied();
        let length = self.request.all("content-length").first().and_then(|it| it.parse().ok());
        let mut body = Vec::new();
        let outcome = if coding.is_some() {
            self.wire.take_chunked(&mut body)
        } else {
            self.wire.take(length.unwrap_or(0)).map(|taken| {
                body = taken;
                Vec::new()
            })
        };
        self.request.body = body;
        self.request.complete = outcome.is_ok();
        self.request.trailers = outcome.unwrap_or_default();
    }

    /// Writes part or all of an answer. The request is recorded first, so that a
    /// client that has the answer finds the request as well.
    pub(crate) fn reply(&mut self, bytes: impl AsRef<[u8]>) {
        self.record();
        self.wire.write(bytes.as_ref());
    }

    fn record(&self) {
        self.seen.requests.lock().unwrap()[self.slot] = self.request.clone();
    }
}

#[derive(Debug, Default)]
struct Seen {
    heads: AtomicUsize,
    connections: AtomicUsize,
    open_connections: AtomicUsize,
    requests: Mutex<Vec<Received>>,
    faults: Mutex<Vec<String>>,
    sockets: Mutex<Vec<TcpStream>>,
    over: AtomicBool,
}

#[derive(Debug)]
pub(crate) struct Upstream {
    address: SocketAddr,
    seen: Arc<Seen>,
}

/// A 200 with a length.
pub(crate) fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

impl Upstream {
    /// Answers every request with a short 200 and keeps the connection.
    pub(crate) fn ok() -> Upstream {
        Upstream::replying(|_| ok("ok"))
    }

    /// Never answers, and closes when the gateway does.
    pub(crate) fn silent() -> Upstream {
        Upstream::scripted(|exchange| {
            exchange.wire.set_patience(LONG);
            while exchange.wire.fill().is_ok() {}
            After::Close
        })
    }

    /// Answers each request with that body, once it is told to.
    pub(crate) fn on_demand(body: &'static str) -> (Upstream, mpsc::Sender<()>) {
        let (go, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let upstream = Upstream::scripted(move |exchange| {
            let _ = wait.lock().unwrap().recv_timeout(PATIENCE);
            exchange.reply(ok(body));
            After::Keep
        });
        (upstream, go)
    }

    /// Reads each request whole, answers it with these bytes and keeps the connection.
    pub(crate) fn replying(
        reply: impl Fn(&Received) -> Vec<u8> + Send + Sync + 'static,
    ) -> Upstream {
        Upstream::scripted(move |exchange| {
            exchange.read_body();
            if !exchange.request.complete {
                return After::Close;
            }
            exchange.reply(reply(&exchange.request));
            After::Keep
        })
    }

    /// Hands each request to the script as soon as its head is there.
    pub(crate) fn scripted(
        script: impl Fn(&mut Exchange<'_>) -> After + Send + Sync + 'static,
    ) -> Upstream {
        Upstream::at(([127, 0, 0, 1], 0).into(), script)
    }

    /// The same at an address of the test's choice.
    pub(crate) fn at(
        address: SocketAddr,
        script: impl Fn(&mut Exchange<'_>) -> After + Send + Sync + 'static,
    ) -> Upstream {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Seen::default());
        let script = Arc::new(script);
        let shared = Arc::clone(&seen);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if shared.over.load(Ordering::SeqCst) {
                    return;
                }
                let (shared, script) = (Arc::clone(&shared), Arc::clone(&script));
                shared.sockets.lock().unwrap().push(stream.try_clone().unwrap());
                let connection = shared.connections.fetch_add(1, Ordering::SeqCst);
                shared.open_connections.fetch_add(1, Ordering::SeqCst);
                thread::spawn(move || {
                    let served = AssertUnwindSafe(|| serve(stream, connection, &shared, &*script));
                    if catch_unwind(served).is_err() {
                        shared.faults.lock().unwrap().push("what a script could not bear".into());
                    }
                    shared.open_connections.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Upstream { address, seen }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many requests began to arrive.
    pub(crate) fn heads(&self) -> usize {
        self.seen.heads.load(Ordering::SeqCst)
    }

    pub(crate) fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    /// Those that nobody has closed.
    pub(crate) fn open_connections(&self) -> usize {
        self.seen.open_connections.load(Ordering::SeqCst)
    }

    /// Every request that began to arrive, as far as it has been read.
    pub(crate) fn requests(&self) -> Vec<Received> {
        self.seen.requests.lock().unwrap().clone()
    }

    /// The last of them.
    #[track_caller]
    pub(crate) fn last(&self) -> Received {
        self.requests().pop().expect("a request upstream")
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.seen.over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        for socket in self.seen.sockets.lock().unwrap().iter() {
            let _ = socket.shutdown(Shutdown::Both);
        }
        let faults = self.seen.faults.lock().unwrap();
        if !thread::panicking() {
            assert!(faults.is_empty(), "sent upstream: {faults:#?}");
        }
    }
}

fn serve(
    stream: TcpStream,
    connection: usize,
    seen: &Seen,
    script: &dyn Fn(&mut Exchange<'_>) -> After,
) {
    let mut wire = Wire::new(stream);
    loop {
        let head = match wire.take_through(b"\r\n\r\n") {
            Ok(head) => head,
            // An idle connection is the gateway's to keep.
            Err(ReadError::Silence) if !seen.over.load(Ordering::SeqCst) => continue,
            Err(_) => return,
        };
        let raw = String::from_utf8_lossy(&head).into_owned();
        let request = match parse(raw, connection) {
            Ok(request) => request,
            Err(fault) => {
                seen.faults.lock().unwrap().push(fault);
                seen.heads.fetch_add(1, Ordering::SeqCst);
                wire.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
                return;
            }
        };
        let slot = {
            let mut requests = seen.requests.lock().unwrap();
            requests.push(request.clone());
            // Under the lock, so that a test that has seen the count finds the request.
            seen.heads.fetch_add(1, Ordering::SeqCst);
            requests.len() - 1
        };
        let mut exchange = Exchange { request, wire: &mut wire, body_read: false, seen, slot };
        let after = script(&mut exchange);
        if after == After::Keep {
            exchange.read_body();
        }
        exchange.record();
        if after == After::Close || !exchange.request.complete {
            let _ = wire.stream().shutdown(Shutdown::Both);
            return;
        }
    }
}

/// What a careful origin demands of a request from a proxy.
fn parse(raw: String, connection: usize) -> Result<Received, String> {
    let (line, lines) = raw.split_once("\r\n").unwrap();
    let parts: Vec<&str> = line.split(' ').collect();
    let &[method, target, "HTTP/1.1"] = &parts[..] else {
        return Err(format!("a bad request line {line:?}"));
    };
    let (method, target) = (method.to_owned(), target.to_owned());
    let headers = wire::parse_headers(lines)?;
    let count = |name| wire::all(&headers, name).len();
    if count("host") != 1 {
        return Err(format!("not one Host in\n{raw}"));
    }
    if count("content-length") + count("transfer-encoding") > 1 {
        return Err(format!("an ambiguous length in\n{raw}"));
    }
    if wire::all(&headers, "transfer-encoding").iter().any(|it| *it != "chunked") {
        return Err(format!("an unknown coding in\n{raw}"));
    }
    if wire::all(&headers, "content-length").iter().any(|it| it.parse::<u64>().is_err()) {
        return Err(format!("a bad length in\n{raw}"));
    }
    Ok(Received {
        connection,
        method,
        target,
        headers,
        body: Vec::new(),
        trailers: Vec::new(),
        complete: false,
        raw,
    })
}
