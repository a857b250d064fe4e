//! An HTTP/2 server that answers by the path of a request, and records what it received.

mod stream;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};

use stream::Stream;

/// What a server allows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Http2Options {
    /// Streams at a time.
    pub(crate) max_streams: Option<u32>,
    /// Where to listen; any port if left out.
    pub(crate) port: u16,
    /// How long a new connection waits for its SETTINGS.
    pub(crate) settings_delay: Duration,
}

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Http2Received {
    /// Which of the server's connections it came on, counted from zero.
    pub(crate) connection: usize,
    pub(crate) method: String,
    pub(crate) uri: http::Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: usize,
    pub(crate) trailers: Option<HeaderMap>,
}

#[derive(Debug, Default)]
struct Seen {
    connections: usize,
    open_connections: usize,
    requests: Vec<Http2Received>,
    open: usize,
    most_open: usize,
    /// Streams that the client has reset.
    resets: usize,
    /// How often each path was refused.
    refused: HashMap<String, usize>,
}

/// Answers by the path of a request:
///
/// - `/echo`: with its body, as it comes, and its trailers.
/// - `/held…`: when [`release`](Http2Upstream::release) is called.
/// - `/silent`: never; `/stall`: the beginning of a body, and no more.
/// - `/refuse`: REFUSED_STREAM the first time, then as others.
/// - `/refuse-always`, `/reset`: a reset.
/// - `/cut`: the beginning of a body, then a reset.
/// - `/early`: 413 before the body is read.
/// - `/trailers/A,B`: a body with trailers of these names.
/// - `/bytes/N`: so many bytes.
/// - `/longer`: more bytes than its Content-Length; `/shorter`: fewer.
/// - `/headers/N`: a header of so many bytes; `/heads/N`: that in many fields; `/fields/N`: so many
///   fields; `/large-trailers/N`: a trailer of so many bytes.
/// - `/status/N`: that status.
/// - `/fatal`: the connection is closed, with everything on it.
/// - everything else: `ok`.
#[derive(Debug)]
pub(crate) struct Http2Upstream {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    control: watch::Sender<Control>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

/// What all connections are told to do, each a count of how often.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Control {
    released: usize,
    going_away: usize,
}

impl Http2Upstream {
    pub(crate) fn start() -> Http2Upstream {
        Http2Upstream::with(Http2Options::default())
    }

    pub(crate) fn with(options: Http2Options) -> Http2Upstream {
        let seen = Arc::<Mutex<Seen>>::default();
        let (control, commands) = watch::channel(Control::default());
        let (end, over) = oneshot::channel();
        let (address, bound) = std::sync::mpsc::channel();
        let inner = Arc::clone(&seen);
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async move {
                let listener = TcpListener::bind(("127.0.0.1", options.port)).await.unwrap();
                address.send(listener.local_addr().unwrap()).unwrap();
                tokio::select! {
                    () = accept(listener, options, inner, commands) => {}
                    _ = over => {}
                }
            });
        });
        let address = bound.recv().unwrap();
        Http2Upstream { address, seen, control, end: Some(end), thread: Some(thread) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    /// Connections that were made.
    pub(crate) fn connections(&self) -> usize {
        self.seen().connections
    }

    pub(crate) fn open_connections(&self) -> usize {
        self.seen().open_connections
    }

    pub(crate) fn requests(&self) -> Vec<Http2Received> {
        self.seen().requests.clone()
    }

    /// Requests under way.
    pub(crate) fn open(&self) -> usize {
        self.seen().open
    }

    /// The most that were ever under way.
    pub(crate) fn most_open(&self) -> usize {
        self.seen().most_open
    }

    /// Streams that the client has reset.
    pub(crate) fn resets(&self) -> usize {
        self.seen().resets
    }

    /// Answers those that are held.
    pub(crate) fn release(&self) {
        self.control.send_modify(|control| control.released += 1);
    }

    /// Ends all connections in order: those under way are answered.
    pub(crate) fn go_away(&self) {
        self.control.send_modify(|control| control.going_away += 1);
    }

    /// Ends at once, with everything on it.
    pub(crate) fn kill(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Http2Upstream {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn accept(
    listener: TcpListener,
    options: Http2Options,
    seen: Arc<Mutex<Seen>>,
    commands: watch::Receiver<Control>,
) {
    while let Ok((stream, _)) = listener.accept().await {
        let (options, seen, commands) = (options.clone(), Arc::clone(&seen), commands.clone());
        let number = {
            let mut seen = seen.lock().unwrap();
            seen.connections += 1;
            seen.open_connections += 1;
            seen.connections - 1
        };
        tokio::spawn(async move {
            let _ = serve(stream, options, &seen, commands, number).await;
            seen.lock().unwrap().open_connections -= 1;
        });
    }
}

async fn serve(
    stream: TcpStream,
    options: Http2Options,
    seen: &Arc<Mutex<Seen>>,
    mut commands: watch::Receiver<Control>,
    number: usize,
) -> Result<(), h2::Error> {
    let mut builder = h2::server::Builder::new();
    if let Some(max) = options.max_streams {
        builder.max_concurrent_streams(max);
    }
    tokio::time::sleep(options.settings_delay).await;
    let mut connection = builder.handshake::<_, Bytes>(stream).await?;
    let began = *commands.borrow_and_update();
    loop {
        tokio::select! {
            accepted = connection.accept() => match accepted {
                Some(accepted) => {
                    let (request, respond) = accepted?;
                    if request.uri().path() == "/fatal" {
                        return Ok(());
                    }
                    let (seen, commands) = (Arc::clone(seen), commands.clone());
                    tokio::spawn(async move {
                        let stream = Stream { respond, seen, commands, number };
                        stream.serve(request).await;
                    });
                }
                None => return Ok(()),
            },
            changed = commands.changed() => {
                if changed.is_ok() && commands.borrow_and_update().going_away > began.going_away {
                    connection.graceful_shutdown();
                }
            }
        }
    }
}
